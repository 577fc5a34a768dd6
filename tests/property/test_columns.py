"""Records as columns: kernel and twin fill the same buffers, and Arrow reads out of them what was put in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq import kernels
from cairnmq.codec import columns as twin
from cairnmq.codec.batch import BatchHeader, set_append_time
from cairnmq.codec.columns import MILLIS_MAX, Columns
from cairnmq.codec.compression import Undecodable
from cairnmq.codec.records import Record, build_batch, decode_batch, open_batch
from cairnmq.spark.arrow import arrow_schema, record_batch
from property.test_kernels import kernel_of
from property.test_records import batches, codecs, maybe_bytes, offsets

NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
INT64 = st.integers(-(2**63), 2**63 - 1)
odd_names = st.lists(st.tuples(st.text(st.characters(max_codepoint=255), max_size=8), maybe_bytes), max_size=4)
odd_records = st.builds(Record, st.just(0), INT64, maybe_bytes, maybe_bytes, odd_names.map(tuple))


def state(columns: Columns) -> list[Any]:
    def binary(column: Any) -> Any:
        return column and (column.ends, column.data, column.valid, column.nulls)

    headers = columns.headers
    listed = headers and (headers.rows, headers.ends, headers.valid, headers.nulls)
    named = headers and (binary(headers.names), binary(headers.values))
    plain = [columns.rows, columns.offsets, columns.timestamps, columns.types]
    return [*plain, binary(columns.keys), binary(columns.values), listed, named]


def outcome(append: Any, columns: Columns, header: BatchHeader, body: Any, low: int, high: int) -> Any:
    try:
        append(columns, header, body, low, high)
    except Undecodable as error:
        return str(error)
    return state(columns)


def shown(record: Record, kind: int) -> tuple[Any, ...]:
    headers = [{"key": name, "value": value} for name, value in record.headers] or None
    return record.key, record.value, "t", 3, record.offset, record.timestamp * 1000, kind, headers


@given(st.lists(st.tuples(batches, codecs, st.booleans()), min_size=1, max_size=4), st.data())
def test_arrow_reads_what_was_put_in(parts: list[tuple[list[Record], int, bool]], data: st.DataObject) -> None:
    columns, expected, base = Columns(), [], 0
    for made, codec, append_time in parts:
        times = [Record(0, min(r.timestamp, MILLIS_MAX), r.key, r.value, r.headers) for r in made]
        batch = bytearray(build_batch(times, codec=codec, base_offset=base))
        if append_time:
            set_append_time(batch, codec, 77)
        low = data.draw(st.integers(base - 2, base + len(made)))
        high = data.draw(st.integers(low, base + len(made) + 2))
        header, body = open_batch(batch)
        kernels.pick(twin.append)(columns, header, body, low, high)
        expected += [shown(r, int(append_time)) for r in decode_batch(batch) if low <= r.offset < high]
        base += len(made)
    found = record_batch(arrow_schema(NAMES), columns, "t", 3)
    found.validate(full=True)
    times_at = NAMES.index("timestamp")
    as_numbers = found.set_column(times_at, "timestamp", found.column(times_at).cast("int64"))
    assert [tuple(row.values()) for row in as_numbers.to_pylist()] == expected


@given(st.lists(odd_records, min_size=1, max_size=30), codecs, offsets, INT64, INT64, st.tuples(*[st.booleans()] * 3))
def test_kernel_and_twin_agree(
    made: list[Record], codec: int, base: int, low: int, high: int, wanted: tuple[bool, bool, bool]
) -> None:
    # Times are stored as differences, and those of two 64-bit numbers may need more.
    fitting = [Record(0, max(-(2**62), min(r.timestamp, 2**62 - 1)), r.key, r.value, r.headers) for r in made]
    header, body = open_batch(build_batch(fitting, codec=codec, base_offset=base))
    keys, values, headers = wanted
    filled = []
    for append in (twin.append, kernel_of(twin.append)):
        columns = Columns(keys=keys, values=values, headers=headers)
        for bounds in ((low, high), (base + 1, base + 20), (base, base + 9)):
            outcome(append, columns, header, body, *bounds)
        filled.append(state(columns))
    assert filled[0] == filled[1]


@given(batches, st.data())
def test_kernel_and_twin_agree_on_damage(made: list[Record], data: st.DataObject) -> None:
    header, body = open_batch(build_batch(made))
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = damaged[: len(damaged) - data.draw(st.integers(0, 3))]
    low, high = 0, 2**40
    found = [outcome(append, Columns(), header, cut, low, high) for append in (twin.append, kernel_of(twin.append))]
    assert found[0] == found[1]


def test_the_kernel_needs_no_twin_for_sound_records(monkeypatch: pytest.MonkeyPatch) -> None:
    append = kernel_of(twin.append)
    monkeypatch.setattr("cairnmq.codec._columns._append", None)
    made = [Record(0, 5, b"k", None, (("a", b"b"), ("c", None))), Record(0, 3, None, b"v" * 300)]
    header, body = open_batch(build_batch(made, base_offset=2**61))
    append(Columns(), header, body, 0, 2**62)
