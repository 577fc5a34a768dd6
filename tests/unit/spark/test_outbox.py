"""Where rows go, and how they become batches."""

from __future__ import annotations

import pytest

from cairnmq.codec.partitioner import partition_for
from cairnmq.codec.row_packing import Cells, Numbers, Rows
from cairnmq.spark.errors import OptionError, SparkSourceError
from cairnmq.spark.options import BATCH_BYTES
from cairnmq.spark.outbox import TOTAL_BYTES, Outbox
from cairnmq.spark.row_shape import row_shape
from cairnmq.types import TopicPartition


def cells(*texts: bytes) -> Cells:
    ends = b"".join(sum(map(len, texts[:i])).to_bytes(4, "little") for i in range(len(texts) + 1))
    return Cells(0, None, ends, b"".join(texts))


def row(size: int = 10, key: bytes | None = None, partition: int | None = None) -> Rows:
    wanted = None if partition is None else Numbers(0, None, partition.to_bytes(4, "little"))
    return Rows(1, 0, cells(bytes(size)), None if key is None else cells(key), partitions=wanted)


def places(outbox: Outbox) -> dict[int, int]:
    return {place.partition: packed.count for place, packed in outbox.take().items()}


def test_a_key_has_its_partition_and_a_row_may_name_one() -> None:
    outbox = Outbox(lambda topic: 5, 0, BATCH_BYTES)
    outbox.put("t", row(key=b"user"))
    outbox.put("t", row(key=b"user", partition=1))
    assert places(outbox) == {partition_for(b"user", 5): 1, 1: 1}
    with pytest.raises(SparkSourceError, match="topic t: a row has partition 5; the topic has partitions 0 to 4"):
        outbox.put("t", row(partition=5))


def test_rows_without_a_key_move_on_with_every_batch() -> None:
    outbox = Outbox(lambda topic: 3, 1, BATCH_BYTES)
    for partition in (1, 2, 0):
        outbox.put("t", row())
        outbox.put("t", row())
        assert places(outbox) == {partition: 2}


def test_no_batch_is_too_large_unless_a_record_is() -> None:
    outbox = Outbox(lambda topic: 1, 0, BATCH_BYTES)
    rows = Rows(3, 0, cells(bytes(BATCH_BYTES // 2), bytes(2 * BATCH_BYTES), b"small"))
    start = 0
    for after in (1, 2, 3):
        start = outbox.put("t", rows, start)
        assert start == after
        assert places(outbox) == {0: 1}
    assert outbox.take() == {}


def test_batches_may_be_smaller() -> None:
    outbox = Outbox(lambda topic: 1, 0, 1000)
    rows = Rows(30, 0, cells(*(bytes(100) for _ in range(30))))
    start, sizes = 0, []
    while start < rows.count:
        start = outbox.put("t", rows, start)
        sizes += [len(packed.body) for packed in outbox.take().values()]
    assert len(sizes) == 4 and max(sizes) <= 1000


def test_many_partitions_fill_up_together() -> None:
    outbox = Outbox(lambda topic: 1000, 0, BATCH_BYTES)
    count = 0
    while outbox.put("t", row(10_000, partition=count % 1000)) == 1:
        count += 1
    assert TOTAL_BYTES / 11_000 < count < TOTAL_BYTES / 10_000 + 1
    assert outbox.put("u", row()) == 0, "the room is shared by all topics"
    assert sum(places(outbox).values()) == count


def test_partitions_are_counted_anew_with_every_take() -> None:
    counts = {"t": 2}
    outbox = Outbox(counts.__getitem__, 0, BATCH_BYTES)
    outbox.put("t", row())
    counts["t"] = 9
    with pytest.raises(SparkSourceError, match="partition 8; the topic has partitions 0 to 1"):
        outbox.put("t", row(partition=8))
    outbox.take()
    assert outbox.put("t", row(partition=8)) == 1
    assert list(outbox.take()) == [TopicPartition("t", 8)]


@pytest.mark.parametrize(
    ("types", "topic", "sentence"),
    [
        ({"key": "string"}, "t", "column value is missing"),
        ({"value": "bigint"}, "t", "column value must be string or binary, not bigint"),
        ({"value": "string"}, None, "set option topic or add a column topic"),
        ({"value": "string", "kye": "string"}, "t", "column kye cannot be written; did you mean key"),
        ({"value": "string", "partition": "bigint"}, "t", "column partition must be int"),
    ],
)
def test_shapes_that_cannot_be_written(types: dict[str, str], topic: str | None, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        row_shape(types, topic)


def test_what_was_read_can_be_written() -> None:
    types = {"key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint"}
    assert row_shape({**types, "timestampType": "int"}, None).places == {
        "key": 0,
        "value": 1,
        "topic": 2,
        "partition": 3,
    }
    assert "topic" not in row_shape(types, "other").places, "the option goes before the column"
