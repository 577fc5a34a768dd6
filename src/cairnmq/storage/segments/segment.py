"""One segment of a queue log, in Kafka's files: lookups by offset and time.

Both the writer (splitter) and the readers (broker) come through here. Index files are hints: whatever they say is
checked against the batch headers, and a segment without an index is only slower.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from cairnmq.storage.batches.batch_run import PIECE_BYTES, BatchPlace, BatchRun
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.format import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, digits

K = TypeVar("K")
V = TypeVar("V")

WALK_BYTES_MAX = 4 << 20  # who walks further than this has no good index
CROSSINGS_LOOKED_AT = 8
INDEX_BLOCK_BYTES = 512 * OFFSET_INDEX_ENTRY.size
LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
CLEANED = ".cleaned"  # behind the suffix: a compacted segment's files before they take their place

OnLie = Callable[[], None]


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


class SegmentRun(BatchRun):
    """All that a segment holds now. Of its offset index nothing is believed that the batches do not say too."""

    __slots__ = ("disk", "directory", "base")

    def __init__(self, disk: Disk, directory: str, base: int, file: File) -> None:
        super().__init__(file, file.size(), directory.rpartition("/")[2])
        self.disk = disk
        self.directory = directory
        self.base = base

    def indexed(self, position: int) -> Iterator[tuple[int, int]]:
        return index_behind(self.disk, self.directory, self.base, position)

    def is_whole(self, place: BatchPlace) -> bool:
        return not self._is_crossed(place) and super().is_whole(place)

    def _is_crossed(self, place: BatchPlace) -> bool:
        """Both the index and a header there say that another batch begins inside of this one: then none of it is
        read, which matters for one that says it is large."""
        if place.size <= PIECE_BYTES:
            return False
        for last, at in islice(self.indexed(place.position), CROSSINGS_LOOKED_AT):
            if at >= place.position + place.size:
                return False
            other = self.place_at(at)
            if other is not None and other.last_offset == last and other.base_offset > place.base_offset:
                return True
        return False

    def find(self, offset: int, on_lie: OnLie | None = None) -> BatchPlace | None:
        """The first batch whose last offset is at or behind `offset`. None: the segment ends before it.

        `on_lie` hears of an offset index that is wrong or of little use.
        """
        base, start, expected = self.base, 0, self.base
        hint = offset_hint(self.disk, self.directory, base, offset)
        if hint is not None:
            place = self.place_at(hint[0])
            if place is not None and place.last_offset == hint[1] and base <= place.base_offset <= hint[1]:
                start, expected = place.position, place.base_offset
            elif on_lie is not None:
                on_lie()
        found = self.seek(start, expected, offset)
        if on_lie is not None and found is not None and found.position - start > WALK_BYTES_MAX:
            on_lie()
        return found


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


def index_behind(disk: Disk, directory: str, base: int, position: int) -> Iterator[tuple[int, int]]:
    """(last offset, position) of the entries of an offset index that lie behind a file position; none without one."""
    try:
        file = disk.open(segment_name(directory, base, INDEX))
    except FileNotFoundError:
        return
    entry = OFFSET_INDEX_ENTRY
    try:
        low, high = 0, file.size() // entry.size
        while low < high:
            middle = (low + high) // 2
            data = file.read(middle * entry.size, entry.size)
            if len(data) == entry.size and entry.unpack(data)[1] <= position:
                low = middle + 1
            else:
                high = middle
        at = low * entry.size
        while block := file.read(at, INDEX_BLOCK_BYTES):
            at += len(block)
            for relative, place in entry.iter_unpack(block[: len(block) // entry.size * entry.size]):
                if place > position:
                    yield base + relative, place
    except Unreadable:
        return
    finally:
        file.close()


def find_offset(
    disk: Disk, directory: str, base: int, file: File, offset: int, on_lie: OnLie | None = None
) -> BatchPlace | None:
    return SegmentRun(disk, directory, base, file).find(offset, on_lie)


def time_hint(disk: Disk, directory: str, base: int, timestamp: int) -> tuple[int, int, int]:
    """The last entry of the time index below `timestamp`, its offset (up to which nothing is newer than it) and its
    time; and the largest indexed time. (base, -1, -1) without an index."""
    try:
        file = disk.open(segment_name(directory, base, TIME_INDEX))
    except FileNotFoundError:
        return base, -1, -1
    entry = TIME_INDEX_ENTRY
    try:
        count = file.size() // entry.size
        low, high, found, largest = 0, count, (base, -1), -1
        if count:
            largest = entry.unpack(file.read((count - 1) * entry.size, entry.size))[0]
        while low < high:
            middle = (low + high) // 2
            at, relative = entry.unpack(file.read(middle * entry.size, entry.size))
            if at < timestamp:
                low, found = middle + 1, (base + relative, at)
            else:
                high = middle
        return *found, largest
    except Unreadable:
        return base, -1, -1
    finally:
        file.close()


def time_start(
    run: SegmentRun, timestamp: int, limit: int, on_lie: OnLie | None = None
) -> tuple[BatchPlace | None, int]:
    """Where to look for `timestamp`, and the largest one up to that batch: the last entry of the time index below it,
    if that is true and below offset `limit` (behind it a crash may have left anything). Else the segment's first batch
    and -1."""
    behind, said, _ = time_hint(run.disk, run.directory, run.base, timestamp)
    # a crash can leave the first entry zeroed: it says nothing
    if 0 <= said and run.base <= behind < limit and (said or behind > run.base):
        place = run.find(behind, on_lie)
        if place is not None and place.last_offset == behind and place.max_timestamp == said:
            return place, said
        if on_lie is not None:
            on_lie()
    return run.find(run.base), -1


def sound_walk(
    disk: Disk, directory: str, base: int, file: File, first: BatchPlace, limit: int
) -> Iterator[BatchPlace]:
    return SegmentRun(disk, directory, base, file).sound_walk(first.position, first.base_offset, limit)


def find_time(
    disk: Disk, directory: str, base: int, file: File, timestamp: int, limit: int, on_lie: OnLie | None = None
) -> BatchPlace | None:
    """The first batch of the segment, below offset `limit`, whose maximum timestamp reaches `timestamp`."""
    run = SegmentRun(disk, directory, base, file)
    place, _ = time_start(run, timestamp, limit, on_lie)
    if place is None:
        return None
    for candidate in run.sound_walk(place.position, place.base_offset, limit):
        if candidate.max_timestamp >= timestamp:
            return candidate
    return None
