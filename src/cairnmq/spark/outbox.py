"""Records that wait to be sent, by partition: where each goes, and when there are enough. Pure."""

from __future__ import annotations

from collections.abc import Callable

from cairnmq import kernels
from cairnmq.codec import row_packing
from cairnmq.codec.row_packing import PackedRecords, Rows, Unpackable
from cairnmq.spark.errors import SparkSourceError
from cairnmq.types import TopicPartition

TOTAL_BYTES = 8 * 1024 * 1024

_pack_rows = kernels.pick(row_packing.pack_rows)


class Outbox:
    """`partitions` tells how many a topic has. `turn` is where rows without a key begin: tasks begin at different
    ones, and go on to the next with every batch, as Kafka's own producer does. `batch_bytes` is for the records of one
    batch, without its header."""

    def __init__(self, partitions: Callable[[str], int], turn: int, batch_bytes: int) -> None:
        self._partitions = partitions
        self._turn = turn
        self._batch_bytes = batch_bytes
        self._waiting: dict[str, list[PackedRecords]] = {}
        """One for each partition, whose number is asked for once between two takes."""

    def put(self, topic: str, rows: Rows, start: int = 0) -> int:
        """Packs rows from `start` on; gives the first one for which all must be taken before."""
        packed = self._waiting.get(topic)
        if packed is None:
            packed = self._waiting[topic] = [PackedRecords() for _ in range(self._partitions(topic))]
        room = TOTAL_BYTES - sum(len(each.body) for boxes in self._waiting.values() for each in boxes)
        try:
            return _pack_rows(rows, start, packed, self._turn % len(packed), self._batch_bytes, room)
        except Unpackable as error:
            raise SparkSourceError(f"topic {topic}: {error}") from None

    def take(self) -> dict[TopicPartition, PackedRecords]:
        """Everything, as one request; no batch is too large unless a record is."""
        request = {
            TopicPartition(topic, number): each
            for topic, packed in self._waiting.items()
            for number, each in enumerate(packed)
            if each.count
        }
        self._waiting.clear()
        self._turn += 1
        return request
