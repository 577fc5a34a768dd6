"""The reading side of one queue's log, in the broker: whole batches by offset, lookups by time.

The splitter appends to the same files from another process; offsets below the queue's split end never change, so no
lock is needed. Sequential readers are remembered by their next offset and need no index.
"""

from __future__ import annotations

from bisect import bisect_right

from cairnmq.errors import Corrupt
from cairnmq.storage.disk import Disk, File
from cairnmq.storage.format import numbered
from cairnmq.storage.queue_segment import (
    LOG,
    BatchPlace,
    Part,
    Wanted,
    Warm,
    find_offset,
    find_time,
    read_batches,
    segment_name,
    time_hint,
    walk,
)

PLACES_KEPT = 64
FILES_KEPT = 4


class QueueReader:
    """Reads with `cached=True` never wait for the disk: they return a `Warm` instead, to be called on a thread; then
    the same read is asked again. So everything else here runs on the owner's thread only."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.bases = numbered(disk.list(directory), LOG)
        self._files: dict[int, File] = {}
        self._places: dict[int, tuple[int, int]] = {}  # next offset -> (segment, position)

    def saw_segment(self, base: int) -> None:
        """The splitter's last segment, as its rounds report it; it may have begun others before that one."""
        if not self.bases or self.bases[-1] < base:
            self.refresh()

    def refresh(self) -> None:
        self.bases = numbered(self.disk.list(self.directory), LOG)
        for base in [base for base in self._files if base not in self.bases]:
            del self._files[base]  # closed when the last read on it ends

    def _file(self, base: int) -> File:
        file = self._files.get(base)
        if file is None:
            file = self._files[base] = self.disk.open(segment_name(self.directory, base, LOG))
            while len(self._files) > FILES_KEPT:
                del self._files[next(iter(self._files))]
        return file

    def read(self, wanted: Wanted, *, whole: bool, cached: bool) -> Part | Warm:
        """At least one batch if `whole`, however large.

        An empty part means: the next batch does not fit.
        """
        offset = wanted.offset
        for _ in range(3):
            place = self._places.get(offset)
            if place is None:
                if cached:
                    return lambda: self._remember(offset)
                place = self._remember(offset)
            try:
                part = self._read_at(*place, wanted, whole=whole, cached=cached)
            except FileNotFoundError:
                part = None  # the end of a segment that retention has deleted since
            if part is not None:
                return part
            # the remembered place is the end of its segment: a newer segment goes on
            self._places.pop(offset, None)
            self.refresh()
        raise Corrupt(f"{self.directory}: offset {offset} is below {wanted.limit} but cannot be read")

    def _remember(self, offset: int) -> tuple[int, int]:
        """(segment, position) of the batch holding `offset`. Blocks."""
        for _ in range(2):
            index = bisect_right(self.bases, offset) - 1
            if index >= 0:
                base = self.bases[index]
                try:
                    found = find_offset(self.disk, self.directory, base, self._file(base), offset)
                except FileNotFoundError:
                    found = None  # all of that segment was deleted; a newer one holds the offset
                if found is not None:
                    self._keep(offset, base, found.position)
                    return base, found.position
            self.refresh()
        raise Corrupt(f"{self.directory} holds no batch for offset {offset}")

    def _keep(self, offset: int, base: int, position: int) -> None:
        places = self._places
        places[offset] = (base, position)
        while len(places) > PLACES_KEPT:
            places.pop(next(iter(places)), None)

    def _read_at(self, base: int, position: int, wanted: Wanted, *, whole: bool, cached: bool) -> Part | Warm | None:
        """None: there is nothing at this position."""
        part = read_batches(self._file(base), position, None, wanted, whole=whole, cached=cached)
        if isinstance(part, Part) and len(part.data):
            self._keep(part.next_offset, base, position + len(part.data))
        return part

    def find_time(self, timestamp: int, limit: int) -> BatchPlace | None:
        """The first batch below `limit` (an offset) whose maximum timestamp reaches `timestamp`. Blocks."""
        self.refresh()
        for base in self.bases:
            place = find_time(self.disk, self.directory, base, self._file(base), timestamp)
            if place is not None:
                return place if place.base_offset < limit else None
        return None

    def largest_timestamp(self, limit: int) -> int:
        """The largest timestamp below `limit`; -1 in an empty log. Blocks."""
        self.refresh()
        largest = -1
        for base in self.bases:
            behind, indexed = time_hint(self.disk, self.directory, base, 1 << 62)
            largest = max(largest, indexed)
            start = find_offset(self.disk, self.directory, base, self._file(base), behind)
            for place in walk(self._file(base), start.position if start else 0):
                if place.base_offset >= limit:
                    break
                largest = max(largest, place.max_timestamp)
                if place.last_offset + 1 >= limit:
                    break
        return largest
