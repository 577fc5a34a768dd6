"""Where rows go, and how they become batches."""

from __future__ import annotations

import pytest

from cairnmq.client.partitioner import partition_for
from cairnmq.codec.records import Record
from cairnmq.spark.errors import OptionError, SparkSourceError
from cairnmq.spark.outbox import BATCH_BYTES, TOTAL_BYTES, Outbox
from cairnmq.spark.row_shape import row_shape
from cairnmq.types import TopicPartition


def record(size: int = 10, key: bytes | None = None) -> Record:
    return Record(0, 0, key, b"x" * size)


def places(outbox: Outbox) -> dict[int, int]:
    (request,) = outbox.take()
    return {place.partition: len(records) for place, records in request.items()}


def test_a_key_has_its_partition_and_a_row_may_name_one() -> None:
    outbox = Outbox(lambda topic: 5, 0)
    outbox.put("t", None, record(key=b"user"))
    outbox.put("t", 1, record(key=b"user"))
    assert places(outbox) == {partition_for(b"user", 5): 1, 1: 1}
    with pytest.raises(SparkSourceError, match="partition 5 of topic t, which has 0 to 4"):
        outbox.put("t", 5, record())


def test_rows_without_a_key_move_on_with_every_batch() -> None:
    outbox = Outbox(lambda topic: 3, 1)
    for partition in (1, 2, 0):
        outbox.put("t", None, record())
        outbox.put("t", None, record())
        assert places(outbox) == {partition: 2}


def test_no_batch_is_too_large_unless_a_record_is() -> None:
    outbox = Outbox(lambda topic: 1, 0)
    assert not outbox.put("t", None, record(BATCH_BYTES // 2))
    assert outbox.put("t", None, record(BATCH_BYTES))
    first, second = outbox.take()
    assert [len(part[TopicPartition("t", 0)]) for part in (first, second)] == [1, 1]
    assert outbox.put("t", None, record(2 * BATCH_BYTES))
    assert len(outbox.take()) == 1
    assert outbox.take() == []


def test_many_partitions_fill_up_together() -> None:
    outbox = Outbox(lambda topic: 1000, 0)
    count = 1
    while not outbox.put("t", count % 1000, record(10_000)):
        count += 1
    assert TOTAL_BYTES / 11_000 < count < TOTAL_BYTES / 10_000 + 1


@pytest.mark.parametrize(
    ("types", "topic", "sentence"),
    [
        ({"key": "string"}, "t", "column value is missing"),
        ({"value": "bigint"}, "t", "column value must be string or binary, not bigint"),
        ({"value": "string"}, None, "neither the option topic nor a column topic"),
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
