"""Changes of the store as images: topics and settings in one, brokers and journals in another. One watch feeds both."""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.metadata import cluster_image, groups, quotas, topics
from cairnmq.metadata.cluster_image import ClusterImage, is_cluster_key
from cairnmq.metadata.decoding import decoded, number
from cairnmq.metadata.groups import GROUP_CONFIGS
from cairnmq.metadata.image import Image, Topic
from cairnmq.metadata.quotas import QUOTAS
from cairnmq.metadata.store import ABSENT, Change
from cairnmq.metadata.topics import BROKER_CONFIGS, NEXT_QUEUE, SLOTS, TOPICS


class MetadataFold:
    """`cluster` is None on one node. `touched`: topics that changed since somebody last cleared it."""

    def __init__(self, *, in_cluster: bool) -> None:
        self.image = Image()
        self.cluster = ClusterImage() if in_cluster else None
        self.touched: set[str] = set()
        self._revisions: dict[str, int] = {}
        self._removed: dict[str, int] = {}

    def begin(self, version: int) -> None:
        """Everything is read anew."""
        self.touched.update(self.image.topics)
        self.image = Image(version=version)
        self.cluster = None if self.cluster is None else ClusterImage()
        self._revisions, self._removed = {}, {}

    def revision(self, key: str) -> int:
        """At which the images know a key."""
        return self._revisions.get(key, ABSENT)

    def take(self, changes: Iterable[Change], last_epoch: int) -> None:
        """Apply changes that are news. A watch repeats our own, and a key's older values must not come back."""
        news = [change for change in changes if self._is_news(change)]
        ours = [change for change in news if is_cluster_key(change.key)]
        if self.cluster is not None and (ours or last_epoch > self.cluster.view.last_epoch):
            self.cluster = cluster_image.after(self.cluster, ours, last_epoch)
        if len(news) > len(ours):
            self._take_topics([change for change in news if not is_cluster_key(change.key)])

    def _is_news(self, change: Change) -> bool:
        key = change.key
        if change.revision <= max(self._revisions.get(key, 0), self._removed.get(key, 0)):
            return False
        if change.value is None:
            self._revisions.pop(key, None)
            self._removed[key] = change.revision
        else:
            self._revisions[key] = change.revision
            self._removed.pop(key, None)
        return True

    def _take_topics(self, changes: Iterable[Change]) -> None:
        put: dict[str, Topic] = {}
        gone: set[str] = set()
        version, next_queue_id = self.image.version, self.image.next_queue_id
        configs, group_configs = dict(self.image.broker_configs), dict(self.image.group_configs)
        limits, slots = dict(self.image.quotas), self.image.slots
        for change in changes:
            key, value = change.key, change.value
            version = max(version, change.revision)
            if key.startswith(TOPICS):
                name = key[len(TOPICS) :]
                put.pop(name, None)
                gone.add(name)
                if value is not None:
                    put[name] = decoded(key, value, topics.decode_topic)
            elif key.startswith(BROKER_CONFIGS):
                configs.pop(key[len(BROKER_CONFIGS) :], None)
                if value is not None:
                    configs[key[len(BROKER_CONFIGS) :]] = decoded(key, value, topics.decode_configs)
            elif key.startswith(GROUP_CONFIGS):
                group_configs.pop(groups.group_of(key), None)
                if value is not None:
                    group_configs[groups.group_of(key)] = decoded(key, value, topics.decode_configs)
            elif key.startswith(QUOTAS):
                limits.pop(quotas.entity_of(key), None)
                if value is not None:
                    limits[quotas.entity_of(key)] = decoded(key, value, quotas.decode_quotas)
            elif key == NEXT_QUEUE and value is not None:
                next_queue_id = number(key, value)
            elif key == SLOTS and value is not None:
                slots = decoded(key, value, topics.decode_slots)
        self.touched |= gone
        self.image = self.image.after(
            version,
            put=put.values(),
            gone=gone,
            next_queue_id=next_queue_id,
            broker_configs=configs,
            group_configs=group_configs,
            quotas=limits,
            slots=slots,
        )
