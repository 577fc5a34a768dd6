"""All topics as of one revision: a read-only value that is replaced, never changed, so that readers need no lock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from cairnmq.settings.broker_table import with_current_names
from cairnmq.types import QueueId, Slots

ALL_BROKERS = "all"
NAMED_MAX = 100  # topics in a line

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: ("user", name) and such, by type; None is the default of a type."""


class QueueRange(Struct, frozen=True, array_like=True, gc=False):
    """Queues that were made together, in partition order, and the journals that they take in turn."""

    first: int
    count: int
    cycle: tuple[int, ...] = ()  # none: stored by a version that took the journal from the queue id

    @property
    def end(self) -> int:
        """The queue id behind the last one."""
        return self.first + self.count

    def continued(self) -> tuple[int, ...]:
        """The cycle of a range that begins where this one ends, if the journals go on in turn."""
        start = self.count % len(self.cycle) if self.cycle else 0
        return self.cycle[start:] + self.cycle[:start]


class Topic(Struct, frozen=True):
    """A topic. Its partitions are ranges of queue ids in partition order: one range per time partitions were added."""

    name: str
    topic_id: bytes
    partitions: tuple[QueueRange, ...]
    configs: dict[str, str] = {}
    created_ms: int = 0

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return sum(each.count for each in self.partitions)

    def queue_id(self, partition: int) -> QueueId | None:
        """The queue of a partition, None if there is no such partition."""
        if partition < 0:
            return None
        for each in self.partitions:
            if partition < each.count:
                return QueueId(each.first + partition)
            partition -= each.count
        return None

    def journal_of(self, partition: int) -> int | None:
        """The journal of a partition, None if there is no such partition."""
        if partition < 0:
            return None
        for each in self.partitions:
            if partition < each.count:
                return each.cycle[partition % len(each.cycle)] if each.cycle else None
            partition -= each.count
        return None

    def queues(self) -> Iterator[tuple[int, QueueId]]:
        """Every partition with its queue."""
        partition = 0
        for each in self.partitions:
            for step in range(each.count):
                yield partition + step, QueueId(each.first + step)
            partition += each.count

    def places(self) -> Iterator[tuple[int, QueueId, int]]:
        """The same, with the journal of each."""
        partition = 0
        for each in self.partitions:
            assert each.cycle, f"topic {self.name}: its queues from {each.first} on have no journals"
            for step, journal in zip(range(each.count), cycle(each.cycle), strict=False):
                yield partition + step, QueueId(each.first + step), journal
            partition += each.count

    def partition_of(self, queue_id: int) -> int | None:
        """The partition that a queue is, None if it is not of this topic."""
        before = 0
        for each in self.partitions:
            if each.first <= queue_id < each.end:
                return before + queue_id - each.first
            before += each.count
        return None


class Image:
    """Topics by name, by id and by queue, the settings of brokers and groups, quotas, and the slots of coordinators;
    `version` is the store's revision."""

    __slots__ = (
        "_by_id",
        "_by_name",
        "_folded",
        "_ranges",
        "broker_configs",
        "group_configs",
        "next_queue_id",
        "quotas",
        "slots",
        "version",
    )

    def __init__(
        self,
        topics: Iterable[Topic] = (),
        *,
        version: int = 0,
        next_queue_id: int = 1,
        broker_configs: Mapping[str, dict[str, str]] | None = None,
        group_configs: Mapping[str, dict[str, str]] | None = None,
        quotas: Mapping[QuotaEntity, dict[str, float]] | None = None,
        slots: Slots | None = None,
    ) -> None:
        self._by_name = {topic.name: topic for topic in topics}
        self._by_id = {topic.topic_id: topic for topic in self._by_name.values()}
        self._folded = {fold(name): name for name in self._by_name}
        self._ranges: list[tuple[int, int, Topic]] | None = None
        self.version = version
        self.next_queue_id = next_queue_id
        self.broker_configs = MappingProxyType(dict(broker_configs or {}))
        self.group_configs = MappingProxyType(dict(group_configs or {}))
        self.quotas = MappingProxyType(dict(quotas or {}))
        self.slots = slots

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Every topic by name."""
        return MappingProxyType(self._by_name)

    def topic(self, name: str) -> Topic | None:
        """The topic of a name."""
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of an id."""
        return self._by_id.get(topic_id)

    def colliding(self, name: str) -> str | None:
        """A topic whose name differs only in '.' against '_', which metrics of Kafka tools cannot tell apart."""
        return self._folded.get(fold(name))

    def find_queue(self, queue_id: int) -> tuple[Topic, int] | None:
        """The topic and partition of a queue, None for a queue of a deleted topic."""
        if self._ranges is None:
            self._ranges = sorted(
                ((each.first, each.end, topic) for topic in self._by_name.values() for each in topic.partitions),
                key=lambda row: row[0],
            )
        place = bisect_right(self._ranges, queue_id, key=lambda row: row[0]) - 1
        if place < 0:
            return None
        _, end, topic = self._ranges[place]
        if queue_id >= end:
            return None
        partition = topic.partition_of(queue_id)
        assert partition is not None
        return topic, partition

    def summary(self) -> str:
        """What there is, for a person, in one line."""
        names = sorted(self._by_name)
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        topics = (
            f"topics and their settings ({', '.join(names[:NAMED_MAX])}{more})" if names else "that there is no topic"
        )
        return (
            f"{topics}, settings of {len(self.broker_configs)} brokers and {len(self.group_configs)} groups, "
            f"{len(self.quotas)} quotas"
        )

    def dynamic_configs(self, node_id: int | None) -> dict[str, str]:
        """Run-time settings of one broker; None: of all of them."""
        return with_current_names(self.broker_configs.get(ALL_BROKERS if node_id is None else str(node_id), {}))

    def after(
        self,
        version: int,
        *,
        put: Iterable[Topic] = (),
        gone: Iterable[str] = (),
        next_queue_id: int | None = None,
        broker_configs: Mapping[str, dict[str, str]] | None = None,
        group_configs: Mapping[str, dict[str, str]] | None = None,
        quotas: Mapping[QuotaEntity, dict[str, float]] | None = None,
        slots: Slots | None = None,
    ) -> Image:
        """This image with some topics set and some removed."""
        image = Image.__new__(Image)
        image._by_name, image._by_id, image._folded = dict(self._by_name), dict(self._by_id), dict(self._folded)
        image._ranges = None
        for name in gone:
            image._remove(name)
        for topic in put:
            image._remove(topic.name)
            image._by_name[topic.name] = image._by_id[topic.topic_id] = topic
            image._folded[fold(topic.name)] = topic.name
        image.version = version
        image.next_queue_id = self.next_queue_id if next_queue_id is None else next_queue_id
        image.broker_configs = self.broker_configs if broker_configs is None else MappingProxyType(dict(broker_configs))
        image.group_configs = self.group_configs if group_configs is None else MappingProxyType(dict(group_configs))
        image.quotas = self.quotas if quotas is None else MappingProxyType(dict(quotas))
        image.slots = self.slots if slots is None else slots
        return image

    def _remove(self, name: str) -> None:
        topic = self._by_name.pop(name, None)
        if topic is not None:
            del self._by_id[topic.topic_id]
            self._folded.pop(fold(name), None)

    def __eq__(self, other: object) -> bool:
        """The same content; `version` also counts changes that no image shows."""
        if not isinstance(other, Image):
            return NotImplemented
        return (
            self._by_name == other._by_name
            and self._by_id == other._by_id
            and self._folded == other._folded
            and self.next_queue_id == other.next_queue_id
            and self.broker_configs == other.broker_configs
            and self.group_configs == other.group_configs
            and self.quotas == other.quotas
            and self.slots == other.slots
        )

    __hash__ = None  # type: ignore[assignment]


def fold(name: str) -> str:
    """A name as Kafka's metrics spell it."""
    return name.replace(".", "_")
