"""Rows in Arrow columns: kernel and twin pack the same bytes, and they are the batches that records would give."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.codec import row_packing as twin
from cairnmq.codec.partitioner import partition_for
from cairnmq.codec.records import Record, build_batch, sealed_batch
from cairnmq.codec.row_packing import PackedRecords, Rows, Unpackable
from cairnmq.spark.arrow import HEADER, rows_by_topic
from cairnmq.spark.row_shape import RowShape
from property.test_kernels import kernel_of
from property.test_records import headers, maybe_bytes

NAMES = ("key", "value", "headers", "timestamp", "partition", "topic")
NOW = 1_700_000_000_123
MICROS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(NOW * 1000, NOW * 1000 + 10**7)
PARTITIONS = st.none() | st.integers(0, 3)
Row = tuple[bytes | None, bytes | None, Any, int | None, int | None, str]
rows = st.tuples(maybe_bytes, maybe_bytes, st.none() | headers, MICROS, PARTITIONS, st.sampled_from("ab"))
tables = st.lists(rows, max_size=30)


def arrow_batch(made: list[Row]) -> pa.RecordBatch:
    """A cut out of a larger one, so that no column begins at the begin of its buffers."""
    filler: Row = (b"filler", None, ((("f", b"f")), ("g", None)), 5, 1, "c")
    columns = list(zip(*[filler, *made, filler], strict=True))
    lists = [None if row is None else [{"key": n, "value": v} for n, v in row] for row in columns[2]]
    arrays = [
        pa.array(columns[0], pa.binary()),
        pa.array(columns[1], pa.large_binary()),
        pa.array(lists, pa.list_(pa.field("element", HEADER))),
        pa.array(columns[3], pa.timestamp("us", tz="UTC")),
        pa.array(columns[4], pa.int32()),
        pa.array(columns[5], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, NAMES).slice(1, len(made))


def shape(used: tuple[str, ...], topic: str | None = "t") -> RowShape:
    return RowShape({name: place for place, name in enumerate(NAMES) if name in used}, topic)


def only(made: list[Row], used: tuple[str, ...]) -> Rows:
    ((_, found),) = rows_by_topic(shape(used), arrow_batch(made), NOW)
    return found


def state(packed: list[PackedRecords]) -> list[tuple[Any, ...]]:
    return [(bytes(each.body), each.count, each.base_timestamp, each.max_timestamp) for each in packed]


def outcome(pack: Any, found: Rows, partitions: int, limit: int, room: int) -> Any:
    """Everything, in as many takes as that needs."""
    start, takes = 0, []
    while True:
        packed = [PackedRecords() for _ in range(partitions)]
        try:
            after = pack(found, start, packed, len(takes) % partitions, limit, room)
        except Unpackable as error:
            return [*takes, state(packed), str(error)]
        takes.append(state(packed))
        if after == found.count:
            return takes
        assert after > start, "an empty batch takes any row"
        start = after


used_columns = st.sets(st.sampled_from(NAMES[:-1])).map(lambda names: (*sorted(names), "value"))


@given(tables, used_columns, st.integers(1, 5), st.sampled_from([1, 40, 500, 10**6]), st.sampled_from([1, 300, 10**7]))
def test_kernel_and_twin_agree(made: list[Row], used: tuple[str, ...], partitions: int, limit: int, room: int) -> None:
    found = only(made, used)
    asked = (found, partitions, limit, room)
    assert outcome(kernel_of(twin.pack_rows), *asked) == outcome(twin.pack_rows, *asked)


@pytest.mark.parametrize("pack", [twin.pack_rows, "kernel"])
@given(made=tables)
def test_packed_rows_are_what_records_give(pack: Any, made: list[Row]) -> None:
    pack = kernel_of(twin.pack_rows) if pack == "kernel" else pack
    packed = [PackedRecords() for _ in range(4)]
    assert pack(only(made, NAMES[:-1]), 0, packed, 2, 10**8, 10**8) == len(made)
    expected: list[list[Record]] = [[] for _ in packed]
    for key, value, named, micros, partition, _ in made:
        place = partition if partition is not None else 2 if key is None else partition_for(key, 4)
        expected[place].append(Record(0, NOW if micros is None else micros // 1000, key, value, named or ()))
    for box, records in zip(packed, expected, strict=True):
        assert box.count == len(records)
        if records:
            sealed = sealed_batch(box.body, box.count, box.base_timestamp, box.max_timestamp)
            assert sealed == build_batch(records)


@given(tables)
def test_rows_of_each_topic_keep_their_order(made: list[Row]) -> None:
    found = {}
    for topic, its_rows in rows_by_topic(shape(("value", "topic"), None), arrow_batch(made), NOW):
        packed = [PackedRecords()]
        assert twin.pack_rows(its_rows, 0, packed, 0, 10**8, 10**8) == its_rows.count
        found[topic] = bytes(packed[0].body)
    expected: dict[str, list[PackedRecords]] = {}
    for row in made:
        twin.pack_rows(only([row], ("value",)), 0, expected.setdefault(row[5], [PackedRecords()]), 0, 10**8, 10**8)
    assert found == {topic: bytes(packed[0].body) for topic, packed in expected.items()}


@pytest.mark.parametrize("pack", [twin.pack_rows, "kernel"])
def test_rows_that_no_record_holds(pack: Any) -> None:
    pack = kernel_of(twin.pack_rows) if pack == "kernel" else pack
    sound: Row = (b"k", b"v", None, None, None, "a")
    for bad, why in (
        ((None, None, None, None, 4, "a"), "partition 4; the topic has partitions 0 to 3"),
        ((None, None, None, None, -1, "a"), "partition -1; the topic has partitions 0 to 3"),
        ((None, None, ((None, b"x"),), None, None, "a"), "a header has no name"),
    ):
        packed = [PackedRecords() for _ in range(4)]
        with pytest.raises(Unpackable, match=why):
            pack(only([sound, bad], NAMES[:-1]), 0, packed, 0, 10**8, 10**8)  # type: ignore[list-item]
        assert sum(each.count for each in packed) == 1


def test_the_kernel_needs_no_twin_for_sound_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = kernel_of(twin.pack_rows)
    monkeypatch.setattr("cairnmq.codec._row_packing._pack_rows", None)
    made: list[Row] = [(b"k" * n, b"v", (("a", b"b"), ("c", None)), -7, None, "a") for n in range(70)]
    assert pack(only(made, NAMES[:-1]), 0, [PackedRecords(), PackedRecords()], 0, 10**8, 10**8) == 70
