"""Records that wait to be sent, by partition: where each goes, and when there are enough. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from cairnmq.client.partitioner import partition_for
from cairnmq.codec.records import Record
from cairnmq.spark.errors import SparkSourceError
from cairnmq.types import TopicPartition

BATCH_BYTES = 900 * 1024  # below what a topic takes by default, with room for what a record needs beside its bytes
TOTAL_BYTES = 8 * 1024 * 1024
_RECORD_BYTES = 24


class _Waiting(Struct):
    records: list[Record]
    size: int


class Outbox:
    """`partitions` tells how many a topic has. `turn` is where rows without a key begin: tasks begin at different
    ones, and go on to the next with every batch, as Kafka's own producer does."""

    def __init__(self, partitions: Callable[[str], int], turn: int) -> None:
        self._partitions = partitions
        self._counts: dict[str, int] = {}
        """Asked for once between two takes, not with every row: that was a quarter of a task's time."""
        self._turn = turn
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._size = 0

    def put(self, topic: str, partition: int | None, record: Record) -> bool:
        """True: it is time to take all."""
        place = TopicPartition(topic, self._choose(topic, partition, record.key))
        waiting = self._waiting.get(place)
        if waiting is None:
            waiting = self._waiting[place] = _Waiting([], 0)
        size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(_RECORD_BYTES + len(name) + len(value or b"") for name, value in record.headers)
        waiting.records.append(record)
        waiting.size += size
        self._size += size
        return waiting.size >= BATCH_BYTES or self._size >= TOTAL_BYTES

    def take(self) -> list[dict[TopicPartition, list[Record]]]:
        """Everything, as requests: one batch at most for each partition in each, and none of them too large."""
        requests: list[dict[TopicPartition, list[Record]]] = []
        for place, waiting in self._waiting.items():
            for number, batch in enumerate(_parts(waiting)):
                if number == len(requests):
                    requests.append({})
                requests[number][place] = batch
        self._waiting.clear()
        self._counts.clear()
        self._size = 0
        self._turn += 1
        return requests

    def _choose(self, topic: str, partition: int | None, key: bytes | None) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._partitions(topic)
        if partition is None:
            return self._turn % count if key is None else partition_for(key, count)
        if not 0 <= partition < count:
            raise SparkSourceError(f"a row wants partition {partition} of topic {topic}, which has 0 to {count - 1}")
        return partition


def _parts(waiting: _Waiting) -> list[list[Record]]:
    """The last record may have gone over the limit: it goes alone then."""
    if waiting.size <= BATCH_BYTES or len(waiting.records) == 1:
        return [waiting.records]
    return [waiting.records[:-1], waiting.records[-1:]]
