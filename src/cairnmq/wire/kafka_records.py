"""Records of Kafka's internal topics: what groups committed, and what the cluster knows of its topics. Pure.

Both are folds: later records replace earlier ones. Bytes that make no sense are Malformed.
"""

from __future__ import annotations

from msgspec import Struct

from cairnmq.types import TopicPartition
from cairnmq.wire.codec import Malformed, decode
from cairnmq.wire.messages import (
    ConfigRecord,
    Message,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from cairnmq.wire.primitives import read_uvarint

Committed = dict[str, dict[TopicPartition, int]]  # group -> offsets

_COMMIT_KEY_VERSION_MAX = 1  # later ones are of groups, not of offsets
_COMMIT_VALUE_VERSION_MAX = 4
_TOPIC_RESOURCE = 2
_KINDS: dict[tuple[int, int], type[Message]] = {
    (2, 0): TopicRecord,
    (3, 0): PartitionRecord,
    (3, 1): PartitionRecord,
    (3, 2): PartitionRecord,
    (4, 0): ConfigRecord,
    (9, 0): RemoveTopicRecord,
}


class KafkaTopic(Struct):
    """A topic as the cluster's metadata describes it."""

    name: str
    topic_id: bytes
    partitions: int = 0
    configs: dict[str, str] = {}


def fold_commit(committed: Committed, key: bytes | None, value: bytes | None) -> None:
    """One record of __consumer_offsets; those that are no commits change nothing."""
    if key is None or int.from_bytes(key[:2], "big") > _COMMIT_KEY_VERSION_MAX:
        return
    what, _ = decode(OffsetCommitKey, int.from_bytes(key[:2], "big"), memoryview(key), 2)
    offsets = committed.setdefault(what.group, {})
    place = TopicPartition(what.topic, what.partition)
    if value is None:
        offsets.pop(place, None)
        return
    version = int.from_bytes(value[:2], "big")
    if version > _COMMIT_VALUE_VERSION_MAX:
        raise Malformed(f"a commit of version {version}; up to {_COMMIT_VALUE_VERSION_MAX} is known")
    offsets[place] = decode(OffsetCommitValue, version, memoryview(value), 2)[0].offset


class Topics:
    """The topics of a cluster, as its metadata log tells it."""

    def __init__(self) -> None:
        self.by_name: dict[str, KafkaTopic] = {}
        self._by_id: dict[bytes, KafkaTopic] = {}

    def fold(self, value: bytes | None) -> None:
        """One record of __cluster_metadata; the many kinds that say nothing about topics change nothing."""
        fact = _fact(value) if value else None
        if isinstance(fact, TopicRecord):
            topic = KafkaTopic(fact.name, fact.topic_id)
            self._by_id[fact.topic_id] = self.by_name[fact.name] = topic
        elif isinstance(fact, PartitionRecord) and fact.topic_id in self._by_id:
            topic = self._by_id[fact.topic_id]
            topic.partitions = max(topic.partitions, fact.partition_id + 1)
        elif isinstance(fact, ConfigRecord) and fact.resource_type == _TOPIC_RESOURCE:
            self._config(fact)
        elif isinstance(fact, RemoveTopicRecord) and fact.topic_id in self._by_id:
            self.by_name.pop(self._by_id.pop(fact.topic_id).name, None)

    def _config(self, fact: ConfigRecord) -> None:
        topic = self.by_name.get(fact.resource_name)
        if topic is None:
            return
        if fact.value is None:
            topic.configs.pop(fact.name, None)
        else:
            topic.configs[fact.name] = fact.value


def _fact(value: bytes) -> Message | None:
    view = memoryview(value)
    try:
        _frame, at = read_uvarint(view, 0)
        kind, at = read_uvarint(view, at)
        version, at = read_uvarint(view, at)
    except IndexError:
        raise Malformed("a metadata record without a kind") from None
    cls = _KINDS.get((kind, version))
    return None if cls is None else decode(cls, version, view, at)[0]
