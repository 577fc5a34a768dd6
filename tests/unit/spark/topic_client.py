"""A client of topics that only exist here, with what the modules under test ask of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cairnmq.client.errors import Absent
from cairnmq.client.records import EARLIEST, Fetched, Listed
from cairnmq.client.session import Cluster, Partition, Topic
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition

MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicClient:
    """Topics have one partition. `held`: the id of each, and its records from `first` on, in batches of one."""

    def __init__(self, held: Mapping[str, tuple[bytes, int]], first: int = 0) -> None:
        self.held = dict(held)
        self.first = first
        self.errors: dict[str, int] = {}  # in metadata
        self.fetch_error = 0
        self.fetches = 0
        self.lookups = 0
        self.deleted_at_fetch: int | None = None
        self.committed: list[Mapping[TopicPartition, int]] = []

    def __enter__(self) -> TopicClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def metadata(self, names: Iterable[str] | None) -> Cluster:
        topics = {}
        for name in {*self.held, *self.errors} if names is None else names:
            error = self.errors.get(name, 0 if name in self.held else MISSING)
            topics[name] = Topic(name, bytes(16), False, (), error) if error else _topic(name, self.held[name][0])
        return Cluster("c", 1, {}, topics)

    def topic(self, name: str) -> Topic:
        (topic,) = self.metadata([name]).topics.values()
        if topic.error:
            raise Absent(topic.error, f"topic {name}")
        return topic

    def list_offsets(self, name: str, indexes: Sequence[int], time: int, **_: Any) -> dict[int, Listed]:
        return self.list_offsets_of({name: indexes}, time)[name]

    def list_offsets_of(self, topics: Mapping[str, Sequence[int]], time: int, **_: Any) -> dict[str, dict[int, Listed]]:
        self.lookups += 1
        for name in topics:
            self.topic(name)
        ends = {name: self.first if time == EARLIEST else self.held[name][1] for name in topics}
        return {name: {index: Listed(ends[name], 0, 0) for index in parts} for name, parts in topics.items()}

    def fetch(self, positions: Mapping[str, Mapping[int, int]], **_: Any) -> list[Fetched]:
        ((name, parts),) = positions.items()
        ((index, at),) = parts.items()
        self.fetches += 1
        if self.fetches == self.deleted_at_fetch:
            del self.held[name]
        self.topic(name)
        error = self.fetch_error or (0 if self.first <= at <= self.held[name][1] else ErrorCode.OFFSET_OUT_OF_RANGE)
        batches = () if error or at == self.held[name][1] else (memoryview(_batch(at)),)
        return [Fetched(name, index, error, self.held[name][1], self.first, batches)]

    def offset_commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        for place in offsets:
            self.topic(place.topic)
        self.committed.append(offsets)


def _topic(name: str, topic_id: bytes) -> Topic:
    return Topic(name, topic_id, False, (Partition(0, 1, 0, (1,), (1,), (), 0),))


def _batch(offset: int) -> bytes:
    return build_batch([Record(offset, 0, None, b"%d" % offset)], base_offset=offset)
