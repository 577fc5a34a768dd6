"""One segment's `.txnindex`, in Kafka's format: the aborted transactions whose markers lie in that segment.

Unlike the other indexes it is no hint: without its rows aborted records would count. So what is wrong is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from cairnmq.codec.crc32c import crc32c
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.format import TXN_INDEX_ENTRY, TXN_INDEX_VERSION, Aborted, RowSum
from cairnmq.storage.segments.segment import TXN_INDEX, segment_name

ROW = TXN_INDEX_ENTRY.size
ROWS_AT_ONCE = 120
NO_ROWS: RowSum = (0, 0)
NOTHING_KNOWN: Mapping[int, RowSum] = {}


class Overlap(Struct, frozen=True):
    """Aborted transactions in some range of offsets; `complete`: no later segment has another one."""

    rows: list[Aborted]
    complete: bool


class _Cold(Exception):
    """A read that waits for the disk."""


def parse(data: bytes, name: str, position: int = 0) -> Iterator[Aborted]:
    """Whole rows; damage is raised where a row cannot be one. `position`: of `data` in the file, for the message."""
    before = -1
    for at in range(0, len(data) - ROW + 1, ROW):
        row = row_at(data, at)
        if row is None or row.last <= before:
            raise _damage(name, position + at)
        before = row.last
        yield row


def row_at(data: bytes, at: int) -> Aborted | None:
    """None: these bytes are no row."""
    version, *fields = TXN_INDEX_ENTRY.unpack_from(data, at)
    row = Aborted(*fields)
    sane = row.producer_id >= 0 and 0 <= row.first < row.last and 0 <= row.stable <= row.last + 1
    return row if sane and version == TXN_INDEX_VERSION else None


def _damage(name: str, position: int) -> Damage:
    return Damage(Place(name, position), "no row of aborted transactions stands there")


def sum_with(known: RowSum, data: bytes) -> RowSum:
    """The sum when the rows in `data` follow those of `known`."""
    return known[0] + len(data) // ROW, crc32c(data, known[1])


def differs(name: str, position: int = 0) -> Damage:
    """`position` -1: the file is gone."""
    return Damage(Place(name, position), "its rows of aborted transactions are not those that were written")


def holds(file: File, proven: RowSum, wanted: RowSum, *, cached: bool) -> bool | NotCached:
    """Does the file begin with the rows of `wanted`? Those of `proven` need not be looked at again. More may follow:
    the splitter writes rows before it says so."""
    position, length = proven[0] * ROW, (wanted[0] - proven[0]) * ROW
    data = file.read_cached(position, length) if cached else file.read(position, length)
    if data is None:
        return NotCached(partial(file.read, position, length))
    return sum_with(proven, bytes(data)) == wanted


def read_bytes(disk: Disk, directory: str, base: int, known: Mapping[int, RowSum] = NOTHING_KNOWN) -> bytes:
    """Empty without a file; damage is raised if it does not begin with the rows of which the sum is known. Blocks."""
    name, wanted = segment_name(directory, base, TXN_INDEX), known.get(base, NO_ROWS)
    try:
        file = disk.open(name)
    except FileNotFoundError:
        if wanted != NO_ROWS:
            raise differs(name, -1) from None
        return b""
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    if sum_with(NO_ROWS, data[: wanted[0] * ROW]) != wanted:
        raise differs(name)
    return data


def read_rows(disk: Disk, directory: str, base: int, known: Mapping[int, RowSum] = NOTHING_KNOWN) -> list[Aborted]:
    """All of them, as `read_bytes`."""
    data = read_bytes(disk, directory, base, known)
    return list(parse(data, segment_name(directory, base, TXN_INDEX)))


def sound_rows(disk: Disk, directory: str, base: int, end: int) -> list[Aborted]:
    """The rows up to the first that is bad or has its marker at offset `end` or behind: there a crash may have left
    anything."""
    rows: list[Aborted] = []
    try:
        file = disk.open(segment_name(directory, base, TXN_INDEX))
    except FileNotFoundError:
        return rows
    try:
        for row in parse(file.read(0, file.size()), file.name):
            if not base <= row.last < end:
                break
            rows.append(row)
    except Damage:
        pass
    finally:
        file.close()
    return rows


def overlap(file: File, start: int, end: int, limit: int, *, closed: bool, cached: bool) -> Overlap | NotCached:
    """Those with records from offset `start` up to `end`; markers at `limit` and behind do not count yet.

    By bisection: markers ascend. `closed`: all markers of the segment count; else the file may end with what a crash
    left, until the splitter has cut it. `NotCached` only if `cached`.
    """
    size = file.size() // ROW * ROW

    def read(position: int, length: int) -> bytes:
        data = file.read_cached(position, length) if cached else file.read(position, length)
        if data is None:
            raise _Cold
        return bytes(data)

    try:
        return _search(read, file.name, size, start, end, limit, closed)
    except _Cold:
        return NotCached(partial(file.read, 0, size))


def _search(
    read: Callable[[int, int], bytes], name: str, size: int, start: int, end: int, limit: int, closed: bool
) -> Overlap:
    low, high = 0, size // ROW
    while low < high:
        middle = (low + high) // 2
        data = read(middle * ROW, ROW)
        row = row_at(data, 0) if len(data) == ROW else None
        if row is not None and row.last < start:
            low = middle + 1
        else:
            high = middle
    found: list[Aborted] = []
    position = low * ROW
    bad = -1  # what looks like a torn end, unless a row follows
    while position < size:
        data = read(position, min(ROWS_AT_ONCE * ROW, size - position))
        if len(data) < ROW:
            break  # cut meanwhile
        for at in range(0, len(data) - ROW + 1, ROW):
            row = row_at(data, at)
            if row is None and closed:
                raise _damage(name, position + at)
            if row is None:
                bad = position + at if bad < 0 else bad
            elif row.last >= limit:
                return Overlap(found, False)
            elif bad >= 0:
                raise _damage(name, bad)
            else:
                if row.last >= start and row.first < end:
                    found.append(row)
                if row.stable >= end:
                    return Overlap(found, True)
        position += len(data) // ROW * ROW
    return Overlap(found, False)
