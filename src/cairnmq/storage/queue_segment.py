"""One segment of a queue log, in Kafka's files: lookups by offset and time, and walks over batch headers.

Both the writer (splitter) and the readers (broker) come through here. Index files are hints: whatever they say is
checked against the batch headers, and a segment without an index is only slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from cairnmq.codec import batch
from cairnmq.codec.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from cairnmq.errors import Corrupt
from cairnmq.kernels import pick
from cairnmq.storage.disk import Disk, File
from cairnmq.storage.format import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, digits

sound_batches = pick(batch.sound_batches)

WINDOW_BYTES = 64 << 10
LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)


class BatchPlace(Struct, frozen=True, gc=False):
    """A batch in a segment file, by its header."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


class Wanted(Struct, frozen=True, gc=False):
    """What a read of split records asks for: `max_bytes` of the batches from the one holding `offset` on.

    They end before the offset `limit`, and up to there all have the leader epoch `epoch` (any, if negative).
    """

    offset: int
    limit: int
    epoch: int
    max_bytes: int


class Part(Struct, frozen=True, gc=False):
    """Whole batches, and the offset behind them."""

    data: memoryview
    next_offset: int


Warm = Callable[[], object]  # a blocking read that brings what is needed into the page cache


def segment_name(directory: str, base: int, suffix: str) -> str:
    return f"{directory}/{digits(base, suffix)}"


def walk(file: File, position: int, end: int | None = None) -> Iterator[BatchPlace]:
    """Batch headers from `position` on; stops where no whole header or no sane batch stands."""
    window = b""
    start = position
    while end is None or position < end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            start, at = position, 0
            window = file.read(position, WINDOW_BYTES)
            if len(window) < HEADER_SIZE:
                return
        base, length, epoch, magic, _, _, delta, _, max_timestamp, _, _, _, _ = HEADER.unpack_from(window, at)
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC or size < HEADER_SIZE or delta < 0:
            return
        yield BatchPlace(position, size, base, base + delta, max_timestamp, epoch)
        position += size


def read_batches(
    file: File, position: int, room: int | None, wanted: Wanted, *, whole: bool, cached: bool
) -> Part | Warm | None:
    """Whole batches at `position`, checked bit by bit; at least one if `whole`, however large.

    `room`: how far they may reach in the file. An empty part means: the next batch does not fit. None: nothing is
    there. A `Warm` (only if `cached`): reading it waits for the disk.
    """
    max_bytes = wanted.max_bytes
    size = max(max_bytes, HEADER_SIZE)
    while True:
        if room is not None:
            size = min(size, room)
        data = file.read_cached(position, size) if cached else file.read(position, size)
        if data is None:
            return partial(file.read, position, size)
        if len(data) < HEADER_SIZE:
            return None
        at, next_offset, damaged = sound_batches(data, size, wanted.offset, wanted.limit, wanted.epoch)
        if at:
            return Part(memoryview(data)[:at], next_offset)
        needed = HEADER.unpack_from(data)[1] + LENGTH_OVERHEAD
        end = room if room is not None else file.size() - position
        if damaged or needed > end:
            raise Corrupt(f"{file.name} is damaged at {position}: offset {wanted.offset} does not read back")
        if not whole or size >= needed:
            return Part(memoryview(b""), -1)
        size = needed


def offset_position(disk: Disk, directory: str, base: int, offset: int) -> int:
    """A file position at or before the batch holding `offset`, by the offset index (0 without one)."""
    name = segment_name(directory, base, INDEX)
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return 0
    try:
        low, high = 0, file.size() // OFFSET_INDEX_ENTRY.size
        found = 0
        while low < high:
            middle = (low + high) // 2
            data = file.read(middle * OFFSET_INDEX_ENTRY.size, OFFSET_INDEX_ENTRY.size)
            if len(data) < OFFSET_INDEX_ENTRY.size:
                return 0
            relative, position = OFFSET_INDEX_ENTRY.unpack(data)
            if base + relative <= offset:
                low, found = middle + 1, position
            else:
                high = middle
        return found
    finally:
        file.close()


def find_offset(disk: Disk, directory: str, base: int, file: File, offset: int) -> BatchPlace | None:
    """The first batch whose last offset is at or behind `offset`."""
    hint = offset_position(disk, directory, base, offset)
    for start in (hint, 0) if hint else (0,):
        first = True
        for place in walk(file, start):
            if first and start and place.base_offset > offset:
                break  # the index lies: begin at the front
            first = False
            if place.last_offset >= offset:
                return place
        else:
            if not first or not start:
                return None
    return None


def time_hint(disk: Disk, directory: str, base: int, timestamp: int) -> tuple[int, int]:
    """(offset up to which all is older than `timestamp`, largest indexed timestamp); (base, -1) without index."""
    try:
        file = disk.open(segment_name(directory, base, TIME_INDEX))
    except FileNotFoundError:
        return base, -1
    try:
        count = file.size() // TIME_INDEX_ENTRY.size
        low, high, found, largest = 0, count, base, -1
        if count:
            largest = TIME_INDEX_ENTRY.unpack(file.read((count - 1) * TIME_INDEX_ENTRY.size, TIME_INDEX_ENTRY.size))[0]
        while low < high:
            middle = (low + high) // 2
            at, relative = TIME_INDEX_ENTRY.unpack(file.read(middle * TIME_INDEX_ENTRY.size, TIME_INDEX_ENTRY.size))
            if at < timestamp:
                low, found = middle + 1, base + relative
            else:
                high = middle
        return found, largest
    finally:
        file.close()


def find_time(disk: Disk, directory: str, base: int, file: File, timestamp: int) -> BatchPlace | None:
    """The first batch of the segment whose maximum timestamp reaches `timestamp`."""
    behind, _ = time_hint(disk, directory, base, timestamp)
    place = find_offset(disk, directory, base, file, behind)
    if place is None:
        return None
    for candidate in walk(file, place.position):
        if candidate.max_timestamp >= timestamp:
            return candidate
    return None
