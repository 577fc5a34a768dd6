"""The catalog as handlers use it: blocking work on one metadata thread, storage told before clients can see a change.

A topic becomes visible in `image` only when its queues exist, and disappears from it before they go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from cairnmq.broker.coordination.offset_purge import OffsetPurges
from cairnmq.broker.opened import OpenMetadata
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import Corrupt, ErrorCode, Refusal
from cairnmq.metadata.image import Image, Topic
from cairnmq.metadata.quotas import QuotaChange
from cairnmq.metadata.topics import PARTITIONS_MAX, CreateTopic
from cairnmq.settings.alteration import ConfigChange
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.broker_table import BROKER
from cairnmq.settings.definition import nearest
from cairnmq.settings.topic import effective
from cairnmq.storage.api.start import QueueSpec, witness_fact
from cairnmq.types import Counters, highest

log = logging.getLogger("cairnmq.broker")

T = TypeVar("T")

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


def all_queue_specs(image: Image, config: BrokerConfig) -> list[QueueSpec]:
    return [spec for topic in image.topics.values() for spec in queue_specs(topic, config)]


class LiveCatalog:
    """Changes are made one after another; readers take `image` and `config`, which are replaced and never changed.

    `purge` drops what groups hold of a deleted topic. `on_config` hears of new settings when storage has them.
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
        self._clock = clock
        self._on_config = on_config
        self._turn = asyncio.Lock()
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
            done, counters = await loop.run_in_executor(self._thread, lambda: (work(), self._catalog.counters()))
        except Corrupt as error:  # a disk that is full says so elsewhere, and gets over it
            if self.trouble != str(error):
                self.trouble = str(error)
                log.error("metadata: %s", error)
            raise
        self.trouble = ""
        assert self._counters is None or highest(counters, self._counters) == counters, "numbers of the metadata fell"
        if counters != self._counters:
            self._counters = counters if await self._witness(counters) else None
            if self._keep_later is None:
                self._keep_later = loop.call_later(KEEP_SECONDS, self._keep)
        return done

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
        if self._keep_later is not None:
            self._keep_later.cancel()
            self._keep()

    async def create_topic(self, request: CreateTopic, *, validate_only: bool = False) -> Topic | Refusal:
        async with self._turn:
            now_ms, config = self._clock(), self.config
            count = len(request.assignments) or (
                config.num_partitions if request.partitions < 0 else request.partitions
            )
            if refusal := self._too_many(count):
                return refusal
            topic = await self._call(
                lambda: self._catalog.create_topic(request, broker=config, now_ms=now_ms, validate_only=validate_only)
            )
            if isinstance(topic, Topic) and not validate_only:
                self._store.create_queues(queue_specs(topic, config))
                self.image = self._catalog.image
            return topic

    async def delete_topic(self, topic: Topic) -> Refusal | None:
        """By id: a topic of the same name that was made meanwhile is not meant."""
        async with self._turn:
            config = self.config
            deleted = await self._call(lambda: self._catalog.delete_topic_by_id(topic.topic_id, broker=config))
            if isinstance(deleted, Refusal):
                return deleted
            self.image = self._catalog.image
            await self._store.delete_queues([queue_id for _, queue_id in deleted.queues()])
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
        async with self._turn:
            before = self.image.topic(name)
            if before is not None and (refusal := self._too_many(count - before.count)):
                return refusal
            topic = await self._call(
                lambda: self._catalog.add_partitions(name, count, assignments=assignments, validate_only=validate_only)
            )
            if isinstance(topic, Topic) and not validate_only:
                self._store.create_queues(queue_specs(topic, self.config, 0 if before is None else before.count))
                self.image = self._catalog.image
            return topic

    async def alter_configs(
        self, name: str, changes: Sequence[ConfigChange], *, whole: bool = False, validate_only: bool = False
    ) -> Refusal | None:
        """`whole`: settings that are not named go back to their defaults."""
        async with self._turn:
            config = self.config
            topic = await self._call(
                lambda: self._catalog.alter_configs(
                    name, changes, broker=config, whole=whole, validate_only=validate_only
                )
            )
            if isinstance(topic, Refusal):
                return topic
            if not validate_only:
                self._configure(topic)
                self.image = self._catalog.image
            return None

    async def alter_broker_configs(
        self,
        node_id: int | None,
        changes: Sequence[ConfigChange],
        *,
        whole: bool = False,
        validate_only: bool = False,
    ) -> Refusal | None:
        async with self._turn:
            config = self.config
            altered = await self._call(
                lambda: self._catalog.alter_broker_configs(
                    node_id, changes, broker=config, whole=whole, validate_only=validate_only
                )
            )
            if isinstance(altered, Refusal):
                return altered
            if not validate_only:
                for name in sorted({change.name for change in changes} & altered.keys() - BROKER.keys()):
                    log.warning("broker setting %s is stored but has no effect here%s", name, nearest(name, BROKER))
                built = self._catalog.broker_config(config)
                assert not isinstance(built, Refusal), f"accepted settings are not valid together: {built}"
                self.config = built
                self.image = self._catalog.image
                # Many broker settings are defaults of topic settings.
                for topic in self.image.topics.values():
                    self._configure(topic)
                self._store.reconfigure(built)
                self._on_config(built)
            return None

    async def alter_group_configs(
        self, group: str, changes: Sequence[ConfigChange], *, whole: bool = False, validate_only: bool = False
    ) -> Refusal | None:
        async with self._turn:
            config = self.config
            refusal = await self._call(
                lambda: self._catalog.alter_group_configs(
                    group, changes, broker=config, whole=whole, validate_only=validate_only
                )
            )
            self.image = self._catalog.image
            return refusal

    async def alter_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> list[Refusal | None]:
        async with self._turn:
            answers = await self._call(lambda: self._catalog.alter_quotas(changes, validate_only=validate_only))
            self.image = self._catalog.image
            return answers

    def _too_many(self, more: int) -> Refusal | None:
        limit, now = self.config.cairn_partitions_max, len(self._store.queues)
        if not 0 < more <= PARTITIONS_MAX or now + more <= limit:
            return None
        why = f"{more} partitions more than the {now} that exist would exceed cairn.partitions.max={limit}"
        return Refusal(ErrorCode.POLICY_VIOLATION, why)

    def _configure(self, topic: Topic) -> None:
        log_config = effective(topic.configs, self.config)
        for _, queue_id in topic.queues():
            if self._store.queues[queue_id].config != log_config:
                self._store.configure(queue_id, log_config)

    async def next_producer_id(self) -> int:
        """Numbers come in blocks, so that a new producer rarely waits for the metadata store."""
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            async with self._turn:
                producer_id = next(self._producer_ids, None)
                if producer_id is None:
                    self._producer_ids = iter(await self._call(lambda: self._catalog.producer_id_block(_PRODUCER_IDS)))
                    producer_id = next(self._producer_ids)
        return producer_id
