"""The catalog as handlers use it: blocking work on one metadata thread, storage told before clients can see a change.

A topic becomes visible in `image` only when its queues exist, and disappears from it before they go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.broker.coordination.offset_purge import OffsetPurges
from cairnmq.broker.metadata_turn import MetadataTurn
from cairnmq.broker.opened import OpenMetadata
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import Corrupt, ErrorCode, Refusal
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.image import Image, Topic
from cairnmq.metadata.quotas import QuotaChange
from cairnmq.metadata.topics import PARTITIONS_MAX, CreateTopic
from cairnmq.settings.alteration import ConfigChange
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.broker_table import BROKER
from cairnmq.settings.definition import nearest
from cairnmq.settings.topic import effective
from cairnmq.storage.api.start import QueueSpec, witness_fact
from cairnmq.types import Counters, Slots, highest

log = logging.getLogger("cairnmq.broker")

T = TypeVar("T")
TopicChange: TypeAlias = tuple[Topic | None, Topic | None]
"""As it was and as it is."""

_PRODUCER_IDS = 1000
KEEP_SECONDS = 1.0


def queue_specs(topic: Topic, config: BrokerConfig, first_partition: int = 0) -> list[QueueSpec]:
    """What storage must know of a topic's queues, from `first_partition` on."""
    log_config = effective(topic.configs, config)
    return [
        QueueSpec(queue_id, topic.name, partition, topic.topic_id, log_config, journal)
        for partition, queue_id, journal in topic.places()
        if partition >= first_partition
    ]


class Hosting(Protocol):
    """The journals of this broker, in a cluster."""

    def hosts(self, journal: int) -> bool:
        """Whether it has this journal, as leader or follower."""

    async def host(self, cluster: ClusterImage) -> None:
        """Make the journals that are new and that this broker is a replica of."""

    def knows_queues(self, next_queue: int) -> None:
        """All queues below this id are known by now; of those that were deleted nothing needs to be kept."""


def all_queue_specs(image: Image, config: BrokerConfig) -> list[QueueSpec]:
    return [spec for topic in image.topics.values() for spec in queue_specs(topic, config)]


class Folded(Struct, frozen=True):
    """The newest images, as the metadata thread handed them over. `touched`: topics that may differ from those that
    are read."""

    image: Image
    cluster: ClusterImage | None
    touched: frozenset[str] = frozenset()


class TopicQueues:
    """The queues of topics in storage. `hosting`: in a cluster, journals of others are none of this broker's."""

    def __init__(self, store: Store, image: Image) -> None:
        self.hosting: Hosting | None = None
        self.count = sum(topic.count for topic in image.topics.values())  # in all journals
        self._store = store

    def create(self, changes: Sequence[TopicChange], config: BrokerConfig) -> None:
        """Queues that are new, and settings that are others, before anybody reads of them."""
        specs = [spec for old, new in changes if new is not None for spec in self._new_specs(old, new, config)]
        if specs:
            self._store.create_queues(specs)
        for old, new in changes:
            if old is not None and new is not None and old.configs != new.configs:
                self.configure(new, config)
            self.count += (0 if new is None else new.count) - (0 if old is None else old.count)

    async def settle(self, image: Image, config: BrokerConfig) -> None:
        """At the start: storage was opened with what the metadata said before this broker was registered."""
        self.count = 0
        self.create([(None, topic) for topic in image.topics.values()], config)
        for topic in image.topics.values():
            self.configure(topic, config)
        self.all_known(image)
        await self._store.delete_queues([each for each in self._store.queues if image.find_queue(each) is None])

    def configure(self, topic: Topic, config: BrokerConfig) -> None:
        """Settings of a topic under those of the broker."""
        log_config = effective(topic.configs, config)
        for _, queue_id in topic.queues():
            queue = self._store.queues.get(queue_id)
            if queue is not None and queue.config != log_config:
                self._store.configure(queue_id, log_config)

    def too_many(self, more: int, config: BrokerConfig) -> Refusal | None:
        """Whether a broker's limit refuses so many partitions more."""
        limit, now = config.cairn_partitions_max, self.count
        if not 0 < more <= PARTITIONS_MAX or now + more <= limit:
            return None
        why = f"{more} partitions more than the {now} that exist would exceed cairn.partitions.max={limit}"
        return Refusal(ErrorCode.POLICY_VIOLATION, why)

    def all_known(self, image: Image) -> None:
        """Whoever meets another id below the next one knows that its topic is deleted."""
        if self.hosting is not None:
            self.hosting.knows_queues(image.next_queue_id)

    async def delete(self, changes: Sequence[TopicChange]) -> list[Topic]:
        """Topics that are gone, when nobody reads of them any more."""
        gone = [old for old, new in changes if old is not None and (new is None or new.topic_id != old.topic_id)]
        for topic in gone:
            await self._store.delete_queues([each for _, each in topic.queues() if each in self._store.queues])
        return gone

    def _new_specs(self, old: Topic | None, new: Topic, config: BrokerConfig) -> list[QueueSpec]:
        first = old.count if old is not None and old.topic_id == new.topic_id else 0
        if first == new.count:
            return []
        hosting, present = self.hosting, self._store.queues
        if hosting is None:
            return queue_specs(new, config, first)
        wanted = {queue for _, queue, journal in new.places() if queue not in present and hosting.hosts(journal)}
        return [spec for spec in queue_specs(new, config, first) if spec.queue_id in wanted] if wanted else []


class LiveCatalog:
    """Changes are made one after another; readers take `image` and `config`, which are replaced and never changed.

    `purge` drops what groups hold of a deleted topic. `on_config` hears of new settings when storage has them. In a
    cluster, `queues.hosting` is to be set before the first `refresh`.
    """

    def __init__(
        self,
        metadata: OpenMetadata,
        store: Store,
        purge: OffsetPurges,
        *,
        clock: Callable[[], int],
        on_config: Callable[[BrokerConfig], None],
    ) -> None:
        self.image: Image = metadata.catalog.image
        self.config = metadata.config
        self._catalog = metadata.catalog
        self._thread = metadata.thread
        self._store = store
        self._purge = purge
        self.queues = TopicQueues(store, self.image)
        self.on_image: Callable[[], None] = lambda: None  # hears when clients read what was folded
        self.cluster = metadata.catalog.cluster  # brokers and journals; None on one node
        self._is_settled = self.cluster is None  # on one node nothing changes while it starts
        if self._is_settled:
            metadata.catalog.touched.clear()
        self._folded = Folded(self.image, self.cluster)  # `image` and `cluster` are what is read
        self._clock = clock
        self._on_config = on_config
        self.turn = MetadataTurn()
        self._producer_ids = iter(range(0))
        self._owner = metadata.witness
        self._counters = self._owner.kept  # what storage knows by now; None: it should be told again
        self._keep_later: asyncio.TimerHandle | None = None
        self.trouble = ""  # why the metadata cannot be changed or read; empty while they can

    async def _call(self, work: Callable[[], T]) -> T:
        """Every change is made here, and before anybody hears of it the journal knows how far the metadata are: if they
        fall back to an older state, the next start notices (storage/recovery/witness.py)."""
        loop = asyncio.get_running_loop()
        try:
            done, counters = await self.call(lambda: (work(), self._catalog.counters()))
        except Corrupt as error:  # a disk that is full says so elsewhere, and gets over it
            if self.trouble != str(error):
                self.trouble = str(error)
                log.error("metadata: %s", error)
            raise
        self.trouble = ""
        assert self._counters is None or highest(counters, self._counters) == counters, "numbers of the metadata fell"
        if counters != self._counters:
            # In a cluster no journal is this broker's alone, so the file has to do.
            known = self._catalog.cluster is not None or await self._witness(counters)
            self._counters = counters if known else None
            if self._keep_later is None:
                self._keep_later = loop.call_later(KEEP_SECONDS, self._keep)
        return done

    def _receive(self, image: Image, cluster: ClusterImage | None, touched: frozenset[str]) -> None:
        known = self._folded.touched
        self._folded = Folded(image, cluster, known | touched if touched else known)

    async def _witness(self, counters: Counters) -> bool:
        """Whether the page cache has it now. A journal that cannot take it refuses nobody: the witness then lags."""
        return await self._store.put_witness(witness_fact(counters))

    def _keep(self) -> None:
        """Into the file too, now and then: the disk with the checkpoint, where the fact ends up, may be lost."""
        self._keep_later = None
        self._thread.submit(lambda: self._owner.keep(self._catalog.counters()))

    def topic_ids(self) -> frozenset[bytes]:
        return frozenset(topic.topic_id for topic in self.image.topics.values())

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    async def close(self) -> None:
        await self.turn.close()
        if self._keep_later is not None:
            self._keep_later.cancel()
            self._keep()

    async def create_topic(self, request: CreateTopic, *, validate_only: bool = False) -> Topic | Refusal:
        async with self.turn:
            now_ms, config = self._clock(), self.config
            count = len(request.assignments) or (
                config.num_partitions if request.partitions < 0 else request.partitions
            )
            if refusal := self.queues.too_many(count, config):
                return refusal
            topic = await self._call(
                lambda: self._catalog.create_topic(request, broker=config, now_ms=now_ms, validate_only=validate_only)
            )
            await self._adopt()
            return topic

    async def delete_topic(self, topic: Topic) -> Refusal | None:
        """By id: a topic of the same name that was made meanwhile is not meant."""
        async with self.turn:
            config = self.config
            deleted = await self._call(lambda: self._catalog.delete_topic_by_id(topic.topic_id, broker=config))
            await self._adopt(topic)
        if isinstance(deleted, Refusal):
            return deleted
        await self._purge.of_topic(deleted, self.topic_ids)
        return None

    async def add_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic | Refusal:
        async with self.turn:
            before, config = self.image.topic(name), self.config
            if before is not None and (refusal := self.queues.too_many(count - before.count, config)):
                return refusal
            topic = await self._call(
                lambda: self._catalog.add_partitions(
                    name, count, broker=config, assignments=assignments, validate_only=validate_only
                )
            )
            await self._adopt()
            return topic

    async def alter_configs(
        self, name: str, changes: Sequence[ConfigChange], *, whole: bool = False, validate_only: bool = False
    ) -> Refusal | None:
        """`whole`: settings that are not named go back to their defaults."""
        async with self.turn:
            config = self.config
            topic = await self._call(
                lambda: self._catalog.alter_configs(
                    name, changes, broker=config, whole=whole, validate_only=validate_only
                )
            )
            await self._adopt()
            return topic if isinstance(topic, Refusal) else None

    async def alter_broker_configs(
        self,
        node_id: int | None,
        changes: Sequence[ConfigChange],
        *,
        whole: bool = False,
        validate_only: bool = False,
    ) -> Refusal | None:
        async with self.turn:
            config = self.config
            altered = await self._call(
                lambda: self._catalog.alter_broker_configs(
                    node_id, changes, broker=config, whole=whole, validate_only=validate_only
                )
            )
            if not isinstance(altered, Refusal) and not validate_only:
                for name in sorted({change.name for change in changes} & altered.keys() - BROKER.keys()):
                    log.warning("broker setting %s is stored but has no effect here%s", name, nearest(name, BROKER))
            await self._adopt()
            return altered if isinstance(altered, Refusal) else None

    async def alter_group_configs(
        self, group: str, changes: Sequence[ConfigChange], *, whole: bool = False, validate_only: bool = False
    ) -> Refusal | None:
        async with self.turn:
            config = self.config
            refusal = await self._call(
                lambda: self._catalog.alter_group_configs(
                    group, changes, broker=config, whole=whole, validate_only=validate_only
                )
            )
            await self._adopt()
            return refusal

    async def alter_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> list[Refusal | None]:
        async with self.turn:
            answers = await self._call(lambda: self._catalog.alter_quotas(changes, validate_only=validate_only))
            await self._adopt()
            return answers

    async def make_slots(self) -> Slots | Refusal:
        """Of a cluster: made when a coordinator is first asked for, and enough brokers are live."""
        async with self.turn:
            config = self.config
            slots = await self._call(lambda: self._catalog.make_slots_replicated(config))
            await self._adopt()
            return slots

    async def refresh(self) -> None:
        """Fold what other brokers changed."""
        await self._call(self._catalog.refresh)
        await self.adopt()

    async def call(self, work: Callable[[], T]) -> T:
        """Anything on the metadata thread, without waiting for changes of topics. What it has folded is handed over
        together, also if nobody waits for it any more; `adopt` lets it be read."""
        loop = asyncio.get_running_loop()

        def run() -> T:
            done = work()
            touched = frozenset(self._catalog.touched)
            self._catalog.touched.clear()
            loop.call_soon_threadsafe(self._receive, self._catalog.image, self._catalog.cluster, touched)
            return done

        return await loop.run_in_executor(self._thread, run)

    async def adopt(self) -> None:
        """What is folded is read from now on: topics, then the brokers and journals of the same moment."""
        if self.image is self._folded.image and self._is_settled:
            self.cluster = self._folded.cluster
        else:
            async with self.turn:
                await self._adopt()

    async def _adopt(self, own: Topic | None = None) -> None:
        """What is folded becomes what is read: storage has new queues before, and loses those of deleted topics after.
        Of their offsets whoever deletes a topic takes care, but for `own`."""
        if not self._is_settled and self.queues.hosting is not None and self.cluster is not None:
            await self.queues.hosting.host(self.cluster)
            await self.queues.settle(self.image, self.config)
            self._is_settled = True
            if self._folded.image is self.image:
                self._folded = replace(self._folded, touched=frozenset())
        while self.image is not (image := self._folded.image):
            if self.queues.hosting is not None and self._folded.cluster is not None:
                await self.queues.hosting.host(self._folded.cluster)
                if self._folded.image is not image:
                    continue
            changes = [(self.image.topic(name), image.topic(name)) for name in self._folded.touched]
            self._folded = replace(self._folded, touched=frozenset())
            config = self._new_config(image)
            self.queues.create(changes, self.config)
            self.image = image
            if config is not None:
                self._apply(config)
            self.queues.all_known(image)
            gone = await self.queues.delete(changes)
            if any(own is None or topic.topic_id != own.topic_id for topic in gone):
                self._purge.start(self.topic_ids)
        self.cluster = self._folded.cluster
        self.on_image()

    def _new_config(self, image: Image) -> BrokerConfig | None:
        """Settings that were changed at run time, for this broker or for all."""
        if image.broker_configs == self.image.broker_configs:
            return None
        built = self._catalog.broker_config(self.config, image)
        if isinstance(built, Refusal):  # another broker accepted them, which was started with others
            log.error("settings that were changed at run time are not valid here and ignored: %s", built.message)
            return None
        return built

    def _apply(self, config: BrokerConfig) -> None:
        """Many broker settings are defaults of topic settings."""
        self.config = config
        for topic in self.image.topics.values():
            self.queues.configure(topic, config)
        self._store.reconfigure(config)
        self._on_config(config)

    async def next_producer_id(self) -> int:
        """Numbers come in blocks, so that a new producer rarely waits for the metadata store."""
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            async with self.turn:
                producer_id = next(self._producer_ids, None)
                if producer_id is None:
                    self._producer_ids = iter(await self._call(lambda: self._catalog.producer_id_block(_PRODUCER_IDS)))
                    producer_id = next(self._producer_ids)
        return producer_id
