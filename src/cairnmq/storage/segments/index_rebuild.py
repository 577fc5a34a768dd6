"""The indexes of a segment: checked against their log, and rebuilt from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.batches.batch_run import BatchPlace, place_at, walk
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.format import (
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
)
from cairnmq.storage.segments.segment import INDEX, LOG, TIME_INDEX, find_offset, segment_name, sound_walk

INDEX_INTERVAL_BYTES = 4096
ENTRIES_LOOKED_AT = 64
# Behind the last entry of a time index nothing is newer. If entries are missing, that shows in the next batches, unless
# times stand still for long; and then it only makes lookups slower.
TIMES_LOOKED_AT_BYTES = 1 << 20


def indexes_lie(disk: Disk, directory: str, base: int, interval: int, *, closed: bool) -> bool:
    """Is anything wrong with the indexes of a segment, as far as a look at some of their entries tells?

    Those of one that is not closed may end early.
    """
    file = disk.open(segment_name(directory, base, LOG))
    try:
        return _offsets_lie(disk, directory, base, file, interval, closed) or _times_lie(
            disk, directory, base, file, closed
        )
    except Corrupt:
        return False  # the log is damaged, and its index may lead around that
    finally:
        file.close()


def _offsets_lie(disk: Disk, directory: str, base: int, file: File, interval: int, closed: bool) -> bool:
    entries = _Entries.of(
        disk, segment_name(directory, base, INDEX), OFFSET_INDEX_ENTRY.size, OFFSET_INDEX_ENTRY.iter_unpack
    )
    if entries is None:
        return closed and file.size() > 0
    if not entries.ascend():
        return True
    last = 0
    for relative, position in entries.some():
        place = place_at(file, position)
        if place is None or place.last_offset != base + relative:
            return True
        last = position
    unindexed = 0
    for place in walk(file, last) if closed else ():
        if unindexed > interval:
            return True
        unindexed += place.size
    return False


def _times_lie(disk: Disk, directory: str, base: int, file: File, closed: bool) -> bool:
    entries = _Entries.of(
        disk, segment_name(directory, base, TIME_INDEX), TIME_INDEX_ENTRY.size, TIME_INDEX_ENTRY.iter_unpack
    )
    if entries is None:
        return closed and file.size() > 0
    if not entries.ascend():
        return True
    place, newest = None, -1
    for timestamp, relative in entries.some():
        place, newest = find_offset(disk, directory, base, file, base + relative), timestamp
        if place is None or (place.last_offset, place.max_timestamp) != (base + relative, timestamp):
            return True
    start = place.position if place is not None else 0
    for place in walk(file, start, start + TIMES_LOOKED_AT_BYTES) if closed else ():
        if place.max_timestamp > newest and place.count:
            return True
    return False


class _Entries(Struct, frozen=True):
    """An index as it is in its file; as objects its entries would need ten times the memory."""

    data: bytes
    size: int
    unpack: Callable[[bytes], Iterable[tuple[int, int]]]

    @classmethod
    def of(
        cls, disk: Disk, name: str, size: int, unpack: Callable[[bytes], Iterable[tuple[int, int]]]
    ) -> _Entries | None:
        """None: the file is not there, cannot be read, or does not end with a whole entry."""
        if not disk.exists(name):
            return None
        file = disk.open(name)
        try:
            data = file.read(0, file.size())
        except Unreadable:
            return None
        finally:
            file.close()
        if len(data) % size:
            return None
        # A crash can leave the first entry zeroed: "look from the segment's beginning", which is never wrong.
        return cls(data if any(data[:size]) else data[size:], size, unpack)

    def ascend(self) -> bool:
        return not any(a >= b or p >= q for (a, p), (b, q) in pairwise(self.unpack(self.data)))

    def some(self) -> Iterator[tuple[int, int]]:
        """Not too many, in order, and the last one at the end."""
        count = len(self.data) // self.size
        step = max(1, count // ENTRIES_LOOKED_AT)
        for index in range((count - 1) % step, count, step) if count else ():
            yield from self.unpack(self.data[index * self.size : (index + 1) * self.size])


def rebuild_indexes(disk: Disk, directory: str, base: int, interval: int = INDEX_INTERVAL_BYTES) -> None:
    """Both indexes of a closed segment. A log with damage raises: its old index leads around the damage."""
    file = disk.open(segment_name(directory, base, LOG))
    try:
        first = find_offset(disk, directory, base, file, base)
        places = sound_walk(disk, directory, base, file, first, 1 << 62) if first is not None else ()
        offsets, times = index_bytes(places, base, interval)
    finally:
        file.close()
    disk.replace(segment_name(directory, base, INDEX), offsets)
    disk.replace(segment_name(directory, base, TIME_INDEX), times)


def index_bytes(places: Iterable[BatchPlace], base: int, interval: int) -> tuple[bytes, bytes]:
    """Offset and time index of a closed segment with these batches, by Kafka's rule: an entry for the first batch
    behind every `interval` bytes; the time index ends with the largest timestamp."""
    offsets, times = bytearray(), bytearray()
    unindexed, newest, newest_at, indexed = 0, -1, 0, -1
    for place in places:
        if place.max_timestamp > newest and place.count:
            newest, newest_at = place.max_timestamp, place.last_offset - base
        if unindexed > interval:
            offsets += OFFSET_INDEX_ENTRY.pack(place.last_offset - base, place.position)
            if newest > indexed:
                times += TIME_INDEX_ENTRY.pack(newest, newest_at)
                indexed = newest
            unindexed = 0
        unindexed += place.size
    if newest > indexed:
        times += TIME_INDEX_ENTRY.pack(newest, newest_at)
    return bytes(offsets), bytes(times)
