"""Records as the buffers of Arrow columns: Arrow's layout, without its library. Pure; twin of _columns.pyx."""

from __future__ import annotations

from array import array

from cairnmq.codec.batch import APPEND_TIME_BIT, BatchHeader
from cairnmq.codec.compression import Undecodable
from cairnmq.codec.records import decode_records
from cairnmq.types import Buffer

MICROS = 1000
MILLIS_MAX = (2**63 - 1) // MICROS  # what a column of microseconds holds; anything later is shown as this


class BinaryColumn:
    """Bytes that may be null: where each ends (int32, after a first 0), all of them in a row, a bit for each."""

    __slots__ = ("data", "ends", "nulls", "valid")

    def __init__(self) -> None:
        self.ends = bytearray(4)
        self.data = bytearray()
        self.valid = bytearray()
        self.nulls = 0

    def put(self, row: int, text: bytes | None) -> None:
        if text is not None:
            self.data += text
        self.ends += len(self.data).to_bytes(4, "little")
        self.nulls += _put_bit(self.valid, row, text is not None)


class HeaderColumn:
    """A column of lists of name and value; a record without headers is null, as Spark's connector has it."""

    __slots__ = ("ends", "names", "nulls", "rows", "valid", "values")

    def __init__(self) -> None:
        self.rows = 0  # of all lists together
        self.ends = bytearray(4)
        self.valid = bytearray()
        self.nulls = 0
        self.names = BinaryColumn()
        self.values = BinaryColumn()

    def put(self, row: int, headers: tuple[tuple[str, bytes | None], ...]) -> None:
        for name, value in headers:
            # A column of strings must be UTF-8, whatever a producer has called its header.
            text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()
            self.names.put(self.rows, text)
            self.values.put(self.rows, value)
            self.rows += 1
        self.ends += self.rows.to_bytes(4, "little")
        self.nulls += _put_bit(self.valid, row, bool(headers))


class Columns:
    """Columns as they grow; offsets and microseconds are int64, the type of a timestamp is int32."""

    __slots__ = ("headers", "keys", "offsets", "rows", "timestamps", "types", "values")

    def __init__(self, *, keys: bool = True, values: bool = True, headers: bool = True) -> None:
        self.rows = 0
        self.offsets = bytearray()
        self.timestamps = bytearray()
        self.types = bytearray()
        self.keys = BinaryColumn() if keys else None
        self.values = BinaryColumn() if values else None
        self.headers = HeaderColumn() if headers else None

    @property
    def size(self) -> int:
        """Bytes held, about."""
        held = len(self.offsets) * 3
        for column in (self.keys, self.values):
            held += len(column.data) if column is not None else 0
        if self.headers is not None:
            held += len(self.headers.names.data) + len(self.headers.values.data) + 8 * self.headers.rows
        return held


def append(columns: Columns, header: BatchHeader, body: Buffer, low: int, high: int) -> None:
    """Adds the records of an opened batch whose offsets are at least `low` and below `high`."""
    records = list(decode_records(header, body))
    for record in records:
        if not header.base_offset <= record.offset <= header.last_offset:
            raise Undecodable(f"batch at offset {header.base_offset}: a record has offset {record.offset}")
    kept = [record for record in records if low <= record.offset < high]
    kind = int(bool(header.attributes & APPEND_TIME_BIT))
    columns.offsets += array("q", [record.offset for record in kept]).tobytes()
    times = [max(-MILLIS_MAX, min(record.timestamp, MILLIS_MAX)) * MICROS for record in kept]
    columns.timestamps += array("q", times).tobytes()
    columns.types += kind.to_bytes(4, "little") * len(kept)
    for row, record in enumerate(kept, columns.rows):
        if columns.keys is not None:
            columns.keys.put(row, record.key)
        if columns.values is not None:
            columns.values.put(row, record.value)
        if columns.headers is not None:
            columns.headers.put(row, record.headers)
    columns.rows += len(kept)


def _put_bit(bits: bytearray, row: int, is_set: bool) -> int:
    """Says whether a row has a value; gives 1 for one that has not."""
    if row & 7 == 0:
        bits.append(0)
    bits[row >> 3] |= is_set << (row & 7)
    return not is_set
