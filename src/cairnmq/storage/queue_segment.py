"""One segment of a queue log, in Kafka's files: lookups by offset and time, and walks over batch headers.

Both the writer (splitter) and the readers (broker) come through here. Index files are hints: whatever they say is
checked against the batch headers, and a segment without an index is only slower. A damaged batch costs the records up
to the next one that its neighbour or the index leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from cairnmq.codec import batch
from cairnmq.codec.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, stored_crc
from cairnmq.codec.crc32c import crc32c
from cairnmq.kernels import pick
from cairnmq.storage.chunks import Tray
from cairnmq.storage.damage import Damage, Place
from cairnmq.storage.disk import Disk, File, Unreadable
from cairnmq.storage.format import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, digits

K = TypeVar("K")
V = TypeVar("V")

sound_batches = pick(batch.sound_batches)

WINDOW_BYTES = 64 << 10
WALK_BYTES_MAX = 4 << 20  # who walks further than this has no good index
LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
CLEANED = ".cleaned"  # behind the suffix: a compacted segment's files before they take their place


class BatchPlace(Struct, frozen=True, gc=False):
    """A batch in a segment file, by its header."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    count: int = 1


class Wanted(Struct, frozen=True, gc=False):
    """What a read of split records asks for: `max_bytes` of the batches from the one holding `offset` on.

    They end before the offset `limit`, and up to there all have the leader epoch `epoch` (any, if negative).
    `tray`: where they are to lie, if that matters.
    """

    offset: int
    limit: int
    epoch: int
    max_bytes: int
    tray: Tray | None = None


class Part(Struct, frozen=True, gc=False):
    """Whole batches, the offset behind them, and what the header there says of its batch's size (0: unknown)."""

    data: memoryview
    next_offset: int
    following: int = 0


OnLie = Callable[[], None]
NOTHING = memoryview(b"")
Warm = Callable[[], object]  # a blocking read that brings what is needed into the page cache


def segment_name(directory: str, base: int, suffix: str) -> str:
    return f"{directory}/{digits(base, suffix)}"


def left_over(names: Collection[str], swaps: Iterable[Sequence[int]]) -> set[int]:
    """Segments whose records are in compacted ones that have taken their place with all files: of these a power loss
    may have left any. Before that they are all there, and as good as the compacted ones."""
    done = (swap for swap in swaps if not any(digits(swap[0], suffix) + CLEANED in names for suffix in SUFFIXES))
    return {base for swap in done for base in swap[1:]}


def forget_oldest(known: dict[K, V], most: int) -> None:
    """Bounds what readers remember; they have threads of their own."""
    while len(known) > most:
        try:
            known.pop(next(iter(known)), None)
        except (RuntimeError, StopIteration):
            continue  # another thread has changed it meanwhile


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
        base, length, epoch, magic, _, _, delta, _, max_timestamp, _, _, _, count = HEADER.unpack_from(window, at)
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC or size < HEADER_SIZE or delta < 0:
            return
        yield BatchPlace(position, size, base, base + delta, max_timestamp, epoch, count)
        position += size


def read_batches(
    file: File, position: int, room: int | None, wanted: Wanted, *, whole: bool, cached: bool, first: int = 0
) -> Part | Warm | None:
    """Whole batches at `position`, checked bit by bit; at least one if `whole`, however large.

    `room`: how far they may reach in the file. `first`: the size of the first one, if the read before has seen it. An
    empty part means: the next batch does not fit. None: nothing is there. A `Warm` (only if `cached`): reading it waits
    for the disk.
    """
    max_bytes, tray = wanted.max_bytes, wanted.tray
    size = max(max_bytes, HEADER_SIZE)
    if first > max_bytes:
        if not whole:
            return Part(NOTHING, -1)
        first = 0
    elif first:
        # No part of a batch is read that is then cut off, if all are as large as this one.
        size = min(size, max_bytes // first * first + HEADER_SIZE)
    while True:
        if room is not None:
            size = min(size, room)
        data = file.read_cached(position, size, tray) if cached else file.read(position, size)
        if data is None:
            return partial(file.read, position, size)
        if len(data) < HEADER_SIZE:
            return None
        at, next_offset, damaged, following = sound_batches(data, size, wanted.offset, wanted.limit, wanted.epoch)
        if at:
            view = memoryview(data)[:at]
            if tray is not None:
                tray.keep(view)
            return Part(view, next_offset, following)
        needed = HEADER.unpack_from(data)[1] + LENGTH_OVERHEAD
        end = room if room is not None else file.size() - position
        if damaged or needed > end:
            raise Damage(Place(file.name, position, "", wanted.offset))
        if first and needed <= max_bytes:
            first, size = 0, max_bytes  # it was said to be smaller
            continue
        if not whole or size >= needed:
            return Part(NOTHING, -1)
        size = needed


def offset_hint(disk: Disk, directory: str, base: int, offset: int) -> tuple[int, int] | None:
    """(position, last offset of the batch there) of the last entry of the offset index at or before `offset`."""
    try:
        file = disk.open(segment_name(directory, base, INDEX))
    except FileNotFoundError:
        return None
    try:
        low, high = 0, file.size() // OFFSET_INDEX_ENTRY.size
        found = None
        while low < high:
            middle = (low + high) // 2
            data = file.read(middle * OFFSET_INDEX_ENTRY.size, OFFSET_INDEX_ENTRY.size)
            if len(data) < OFFSET_INDEX_ENTRY.size:
                return None
            relative, position = OFFSET_INDEX_ENTRY.unpack(data)
            if base + relative <= offset:
                low, found = middle + 1, (position, base + relative)
            else:
                high = middle
        return found
    except Unreadable:
        return None
    finally:
        file.close()


def offset_position(disk: Disk, directory: str, base: int, offset: int) -> int:
    """A file position at or before the batch holding `offset`, by the offset index (0 without one)."""
    hint = offset_hint(disk, directory, base, offset)
    return hint[0] if hint is not None and hint[0] >= 0 else 0


def whole_entries(disk: Disk, directory: str, base: int, suffix: str, size: int) -> bytes:
    """The whole entries of an index; none if it is not there, or cannot be read: it is gone without then."""
    try:
        file = disk.open(segment_name(directory, base, suffix))
    except FileNotFoundError:
        return b""
    try:
        data = file.read(0, file.size())
    except Unreadable:
        return b""
    finally:
        file.close()
    return data[: len(data) // size * size]


def read_index(disk: Disk, directory: str, base: int) -> list[tuple[int, int]]:
    """All of an offset index: (last offset, position) each."""
    whole = whole_entries(disk, directory, base, INDEX, OFFSET_INDEX_ENTRY.size)
    return [(base + relative, position) for relative, position in OFFSET_INDEX_ENTRY.iter_unpack(whole)]


def place_at(file: File, position: int) -> BatchPlace | None:
    return next(walk(file, position), None) if position >= 0 else None


def is_sound(file: File, place: BatchPlace) -> bool:
    """What the batch's own checksum covers, which leaves out base offset, length and leader epoch."""
    data = file.read(place.position, place.size)
    return len(data) == place.size and crc32c(memoryview(data)[CRC_START:]) == stored_crc(data)


def find_offset(
    disk: Disk, directory: str, base: int, file: File, offset: int, on_lie: OnLie | None = None
) -> BatchPlace | None:
    """The first batch whose last offset is at or behind `offset`. None: the segment ends before it.

    Damage on the way is stepped over where the offset index knows a batch behind it; only if the offset lies between
    there and here it is raised. `on_lie` hears of an offset index that is wrong or of little use.
    """
    start, expected = 0, base
    hint = offset_hint(disk, directory, base, offset)
    if hint is not None:
        place = place_at(file, hint[0])
        if place is not None and place.last_offset == hint[1] and base <= place.base_offset <= hint[1]:
            start, expected = place.position, place.base_offset
        elif on_lie is not None:
            on_lie()
    found = _seek(disk, directory, base, file, start, expected, offset)
    if on_lie is not None and found is not None and found.position - start > WALK_BYTES_MAX:
        on_lie()
    return found


def _seek(
    disk: Disk, directory: str, base: int, file: File, position: int, expected: int, offset: int
) -> BatchPlace | None:
    """Walks from `position`, where offset `expected` lies, with an eye on each batch going on where the last ended."""
    size = file.size()
    while True:
        before: BatchPlace | None = None
        for place in walk(file, position):
            if place.base_offset != expected or place.position + place.size > size:
                break
            if place.last_offset >= offset:
                following = place_at(file, place.position + place.size)
                if following is None or following.base_offset == place.last_offset + 1 or is_sound(file, place):
                    return place
                break
            before, position, expected = place, place.position + place.size, place.last_offset + 1
        if position >= size:
            return None
        if before is not None and not is_sound(file, before):
            position, expected = before.position, before.base_offset  # it is the one that lies
        going_on = behind_damage(disk, directory, base, file, position, expected)
        if going_on is None or going_on.base_offset > offset:
            raise damage_at(disk, directory, base, file, position, expected)
        position, expected = going_on.position, going_on.base_offset


def behind_damage(disk: Disk, directory: str, base: int, file: File, position: int, expected: int) -> BatchPlace | None:
    """The first batch behind a bad one at `position` (of offset `expected`) that can be relied on.

    That is its neighbour, if the bad one's length is right, else the next that the offset index knows. Nobody looks
    for batches byte by byte: a client could have put one into a message.
    """
    bad = place_at(file, position)
    if bad is not None:
        place = place_at(file, position + bad.size)
        if place is not None and place.base_offset > expected and is_sound(file, place):
            return place
    for last, at in read_index(disk, directory, base):
        if at > position and last > expected:
            place = place_at(file, at)
            if place is not None and place.last_offset == last and place.base_offset > expected:
                return place
    return None


def _queue_of(directory: str) -> str:
    return directory.rpartition("/")[2]


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
    except Unreadable:
        return base, -1
    finally:
        file.close()


def time_start(
    disk: Disk, directory: str, base: int, file: File, timestamp: int, limit: int, on_lie: OnLie | None = None
) -> tuple[BatchPlace | None, int]:
    """Where to look for `timestamp`, and the largest one up to that batch: the last entry of the time index below it,
    if that is true and below offset `limit` (behind it a crash may have left anything). Else the segment's first batch
    and -1."""
    behind, _ = time_hint(disk, directory, base, timestamp)
    if base < behind < limit:
        place = find_offset(disk, directory, base, file, behind, on_lie)
        said, _ = _time_entry(disk, directory, base, behind)
        if place is not None and place.last_offset == behind and place.max_timestamp == said < timestamp:
            return place, said
        if on_lie is not None:
            on_lie()
    return find_offset(disk, directory, base, file, base), -1


def _time_entry(disk: Disk, directory: str, base: int, offset: int) -> tuple[int, int]:
    """(timestamp, offset) of the entry for `offset`; (-1, -1) if there is none that can be read."""
    whole = whole_entries(disk, directory, base, TIME_INDEX, TIME_INDEX_ENTRY.size)
    entries = TIME_INDEX_ENTRY.iter_unpack(whole)
    return next(((timestamp, offset) for timestamp, relative in entries if base + relative == offset), (-1, -1))


def sound_walk(
    disk: Disk, directory: str, base: int, file: File, first: BatchPlace, limit: int
) -> Iterator[BatchPlace]:
    """The batches from `first` on below offset `limit`, each whole and with the right checksum; else `Damage`."""
    expected, position, size = first.base_offset, first.position, file.size()
    for place in walk(file, position):
        if expected >= limit:
            return
        if place.base_offset != expected or place.position + place.size > size or not is_sound(file, place):
            break
        yield place
        expected, position = place.last_offset + 1, place.position + place.size
    if expected < limit and position < size:
        raise damage_at(disk, directory, base, file, position, expected)


def damage_at(disk: Disk, directory: str, base: int, file: File, position: int, expected: int) -> Damage:
    going_on = behind_damage(disk, directory, base, file, position, expected)
    end = going_on.base_offset if going_on is not None else -1
    return Damage(Place(file.name, position, _queue_of(directory), expected, end))


def find_time(
    disk: Disk, directory: str, base: int, file: File, timestamp: int, limit: int, on_lie: OnLie | None = None
) -> BatchPlace | None:
    """The first batch of the segment, below offset `limit`, whose maximum timestamp reaches `timestamp`."""
    place, _ = time_start(disk, directory, base, file, timestamp, limit, on_lie)
    if place is None:
        return None
    for candidate in sound_walk(disk, directory, base, file, place, limit):
        if candidate.max_timestamp >= timestamp:
            return candidate
    return None


def newest_time(disk: Disk, directory: str, base: int, file: File, limit: int, on_lie: OnLie | None = None) -> int:
    """The largest timestamp of the segment's batches below offset `limit`; -1 if there are none."""
    place, newest = time_start(disk, directory, base, file, 1 << 62, limit, on_lie)
    if place is None:
        return -1
    walked = sound_walk(disk, directory, base, file, place, limit)
    return max((each.max_timestamp for each in walked), default=newest)
