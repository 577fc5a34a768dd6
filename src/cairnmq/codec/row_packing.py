"""Rows that lie in the buffers of Arrow columns, packed as the records of batches. Pure; twin of _row_packing.pyx.

Knows Arrow's layout, not its library. Each column has its own first row: Arrow cuts a column without moving its bytes.
"""

from __future__ import annotations

import struct

from msgspec import Struct

from cairnmq.codec.partitioner import partition_for
from cairnmq.codec.records import Headers, Record, append_record
from cairnmq.types import Buffer

_MICROS = 1000


class Unpackable(Exception):
    """A row that no record can hold; it says why."""


class Cells(Struct, frozen=True):
    """Bytes that may be null: a bit for each (none: all are there), int32 ends behind a first start, the bytes."""

    first: int
    valid: Buffer | None
    ends: Buffer
    data: Buffer


class Numbers(Struct, frozen=True):
    """Numbers that may be null."""

    first: int
    valid: Buffer | None
    data: Buffer


class HeaderCells(Struct, frozen=True):
    """Lists of name and value."""

    first: int
    valid: Buffer | None
    ends: Buffer
    names: Cells
    values: Cells


class Rows(Struct, frozen=True):
    """`partitions` are int32, `timestamps` int64 microseconds; a row without a time was made at `now_ms`."""

    count: int
    now_ms: int
    values: Cells
    keys: Cells | None = None
    headers: HeaderCells | None = None
    timestamps: Numbers | None = None
    partitions: Numbers | None = None


class PackedRecords:
    """The records of one batch to be; their count gives the next its place."""

    __slots__ = ("base_timestamp", "body", "count", "max_timestamp")

    def __init__(self) -> None:
        self.body = bytearray()
        self.count = 0
        self.base_timestamp = 0
        self.max_timestamp = 0


def pack_rows(rows: Rows, start: int, packed: list[PackedRecords], keyless: int, limit: int, room: int) -> int:
    """Packs rows from `start` on, each for its partition: the one it names, that of its key, or `keyless`.

    Gives the first row that was left: its batch would have more than `limit` bytes, or all got `room` bytes. A batch
    that is empty takes any row, so whoever empties them gets on.
    """
    for row in range(start, rows.count):
        key = _bytes(rows.keys, row)
        partition = _number(rows.partitions, row, "<i")
        if partition is None:
            partition = keyless if key is None else partition_for(key, len(packed))
        if not 0 <= partition < len(packed):
            raise Unpackable(f"a row has partition {partition}; the topic has partitions 0 to {len(packed) - 1}")
        micros = _number(rows.timestamps, row, "<q")
        millis = rows.now_ms if micros is None else micros // _MICROS
        box = packed[partition]
        before = len(box.body)
        record = Record(0, millis, key, _bytes(rows.values, row), _headers(rows.headers, row))
        append_record(box.body, box.count, box.base_timestamp if before else millis, record)
        if room <= 0 or (before and len(box.body) > limit):
            del box.body[before:]
            return row
        if not before:
            box.base_timestamp = box.max_timestamp = millis
        box.max_timestamp = max(box.max_timestamp, millis)
        box.count += 1
        room -= len(box.body) - before
    return rows.count


def _is_null(valid: Buffer | None, place: int) -> bool:
    return valid is not None and not valid[place >> 3] >> (place & 7) & 1


def _bytes(cells: Cells | None, row: int) -> bytes | None:
    if cells is None or _is_null(cells.valid, cells.first + row):
        return None
    start, end = struct.unpack_from("<ii", cells.ends, 4 * (cells.first + row))
    return bytes(cells.data[start:end])


def _number(numbers: Numbers | None, row: int, kind: str) -> int | None:
    if numbers is None or _is_null(numbers.valid, numbers.first + row):
        return None
    (number,) = struct.unpack_from(kind, numbers.data, struct.calcsize(kind) * (numbers.first + row))
    return int(number)


def _headers(cells: HeaderCells | None, row: int) -> Headers:
    if cells is None or _is_null(cells.valid, cells.first + row):
        return ()
    start, end = struct.unpack_from("<ii", cells.ends, 4 * (cells.first + row))
    found = []
    for place in range(start, end):
        name = _bytes(cells.names, place)
        if name is None:
            raise Unpackable("a header has no name")
        found.append((name.decode("utf-8", "surrogateescape"), _bytes(cells.values, place)))
    return tuple(found)
