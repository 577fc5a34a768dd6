"""The reading side of one queue's log, in the broker: whole batches by offset, lookups by time.

The splitter appends to the same files from another process; offsets below the queue's split end never change, so no
lock is needed. Sequential readers are remembered by their next offset and need no index.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from cairnmq.errors import Corrupt
from cairnmq.storage.damage import Damage, Place
from cairnmq.storage.disk import Disk, File
from cairnmq.storage.format import Aborted, RowSum, numbered
from cairnmq.storage.queue_segment import (
    LOG,
    TXN_INDEX,
    BatchPlace,
    Part,
    Wanted,
    Warm,
    damage_at,
    find_offset,
    find_time,
    forget_oldest,
    newest_time,
    read_batches,
    segment_name,
)
from cairnmq.storage.repair import INDEX_INTERVAL_BYTES, rebuild_indexes
from cairnmq.storage.txn_index import NO_ROWS, NOTHING_KNOWN, Overlap, differs, holds, overlap

PLACES_KEPT = 64
FILES_KEPT = 4
LOOKUPS_MAX = 3

T = TypeVar("T")
Spot = tuple[int, int, int]  # segment, position, size of the batch there (0: not known)


class QueueReader:
    """Reads with `cached=True` never wait for the disk: they return a `Warm` instead, to be called on a thread; then
    the same read is asked again. So everything else here runs on the owner's thread only."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        ignored: Collection[int] = (),
    ) -> None:
        """`ignored`: segments that do not count."""
        self.disk = disk
        self._ignored = ignored
        self.directory = directory
        self.index_interval_bytes = index_interval_bytes
        self.bases: list[int] = []
        self._aborting: list[int] = []  # segments with aborted transactions
        self._aborted: dict[int, File] = {}
        self._sums = NOTHING_KNOWN  # of the rows of these segments
        self._proven: dict[int, RowSum] = {}  # rows that were compared with such a sum
        self._files: dict[int, File] = {}
        self._places: dict[int, Spot] = {}  # by next offset
        self._doubted: set[int] = set()  # the offset whose place seemed to be damaged
        self._mended: set[int] = set()  # segments whose indexes were made again
        self.refresh()

    def saw_segment(self, base: int, *, aborted: bool = False) -> None:
        """The splitter's last segment, as its rounds report it; it may have begun others before that one, and written
        aborted transactions to any of them."""
        if aborted or not self.bases or self.bases[-1] < base:
            self.refresh()

    def refresh(self) -> None:
        names = self.disk.list(self.directory)
        self.bases = [base for base in numbered(names, LOG) if base not in self._ignored]
        self._aborting = sorted({*numbered(names, TXN_INDEX), *self._sums}.intersection(self.bases))
        for base in [base for base in self._aborted.copy() if base not in self._aborting]:
            self._aborted.pop(base, None)
        for base in [base for base in self._files.copy() if base not in self.bases]:
            self._files.pop(base, None)  # closed when the last read on it ends

    def _file(self, base: int) -> File:
        file = self._files.get(base)
        if file is None:
            file = self._files[base] = self.disk.open(segment_name(self.directory, base, LOG))
            forget_oldest(self._files, FILES_KEPT)
        return file

    def read(self, wanted: Wanted, *, whole: bool, cached: bool) -> Part | Warm:
        """At least one batch if `whole`, however large.

        An empty part means: the next batch does not fit.
        """
        offset = wanted.offset
        for _ in range(3):
            place = self._places.get(offset) or self._first_place(offset)
            if place is None:
                if cached:
                    return lambda: self._remember(offset)
                place = self._remember(offset)
            try:
                part = self._read_at(place, wanted, whole=whole, cached=cached)
            except FileNotFoundError:
                part = None  # the end of a segment that retention has deleted since
            except Damage:
                # A compacted file may have the name now: the place is forgotten, and looked up once more.
                if offset in self._doubted:
                    self._doubted.discard(offset)
                    raise
                self._doubted = {offset, *self._doubted} if len(self._doubted) < PLACES_KEPT else {offset}
                continue
            if part is not None:
                return part
            # the remembered place is the end of its segment: a newer segment goes on
            self._places.pop(offset, None)
            self.refresh()
        raise self._missing(offset, wanted.limit)

    def _first_place(self, offset: int) -> Spot | None:
        """A segment begins with its first offset, which needs no index; unless that has just proved wrong."""
        bases = self.bases
        index = bisect_left(bases, offset)
        begins = index < len(bases) and bases[index] == offset
        return (offset, 0, 0) if begins and offset not in self._doubted else None

    def _missing(self, offset: int, limit: int) -> Corrupt:
        """The segment that should hold `offset` ends before it, or is not there."""
        bases = self.bases
        index = bisect_right(bases, offset) - 1
        end = min(limit, bases[index + 1]) if index + 1 < len(bases) else limit
        queue = self.directory.rpartition("/")[2]
        if index < 0:
            return Damage(Place(self.directory, -1, queue, offset, end), "no segment holds them")
        file = self._file(bases[index])
        return Damage(Place(file.name, file.size(), queue, offset, end), "the file ends there")

    def _remember(self, offset: int) -> Spot:
        """Where the batch holding `offset` is. Blocks."""
        for _ in range(2):
            bases = self.bases  # `refresh` may put in others meanwhile: cold reads have threads of their own
            index = bisect_right(bases, offset) - 1
            if index >= 0:
                base = bases[index]
                try:
                    on_lie = partial(self._mend, base)
                    found = find_offset(self.disk, self.directory, base, self._file(base), offset, on_lie)
                except FileNotFoundError:
                    found = None  # all of that segment was deleted; a newer one holds the offset
                except Damage as damage:
                    self._files.pop(base, None)  # it may be repaired: then another file has its name
                    raise self._bounded(damage, base) from None
                if found is not None:
                    return self._keep(offset, base, found.position, found.size)
            self.refresh()
        raise self._missing(offset, offset + 1)

    def _bounded(self, damage: Damage, base: int) -> Damage:
        """Nothing in this segment is known behind the damage; the next one is good."""
        bases = self.bases
        following = bisect_right(bases, base)
        if damage.place.end >= 0 or following == len(bases):
            return damage
        return Damage(replace(damage.place, end=bases[following]))

    def _mend(self, base: int) -> None:
        """An index lies. Of the last segment the splitter is the owner; it looks when it opens the log."""
        if base not in self._mended and bisect_right(bases := self.bases, base) < len(bases):
            self._mended.add(base)
            try:
                rebuild_indexes(self.disk, self.directory, base, self.index_interval_bytes)
            except (OSError, Corrupt):
                return  # it is only a hint, and what is wrong with the log its readers say

    def _keep(self, offset: int, base: int, position: int, size: int) -> Spot:
        spot = self._places[offset] = (base, position, size)
        forget_oldest(self._places, PLACES_KEPT)
        return spot

    def _read_at(self, spot: Spot, wanted: Wanted, *, whole: bool, cached: bool) -> Part | Warm | None:
        """None: there is nothing at this position."""
        base, position, first = spot
        file = self._file(base)
        bases = self.bases
        following = bisect_right(bases, base)
        if following < len(bases) and bases[following] < wanted.limit:
            # behind damage the splitter begins a new segment, whatever the damaged one still holds
            if bases[following] <= wanted.offset:
                return None
            wanted = replace(wanted, limit=bases[following])
        try:
            part = read_batches(file, position, None, wanted, whole=whole, cached=cached, first=first)
        except Damage:
            self._places.pop(wanted.offset, None)
            self._files.pop(base, None)
            damage = damage_at(self.disk, self.directory, base, file, position, wanted.offset)
            raise self._bounded(damage, base) from None
        if isinstance(part, Part) and len(part.data):
            self._keep(part.next_offset, base, position + len(part.data), part.following)
        return part

    def aborted(
        self, start: int, end: int, limit: int, *, cached: bool, sums: Mapping[int, RowSum] = NOTHING_KNOWN
    ) -> list[Aborted] | Warm:
        """Aborted transactions with records from offset `start` up to `end` and a marker below `limit`.

        `sums`: of rows that were written to segments; never changed, but another one when more is known.
        """
        found: list[Aborted] = []
        if sums is not self._sums:
            self._sums = sums
            self.refresh()
        if not self._aborting:
            return found
        # a marker lies in the segment of `start` or behind it
        first = self.bases[max(0, bisect_right(self.bases, start) - 1)] if self.bases else 0
        for base in self._aborting[bisect_left(self._aborting, first) : bisect_left(self._aborting, limit)]:
            file = self._aborted.get(base)
            if file is None:
                try:
                    file = self.disk.open(segment_name(self.directory, base, TXN_INDEX))
                except FileNotFoundError:
                    self.refresh()
                    if base in self._aborting:
                        raise differs(segment_name(self.directory, base, TXN_INDEX), -1) from None
                    # retention has deleted the segment, or its rows are in a compacted one now
                    return self.aborted(start, end, limit, cached=cached, sums=sums)
                self._aborted = {base: file}  # one: what is read next is mostly in the same segment
            if warm := self._prove(base, file, cached=cached):
                return warm
            following = bisect_right(self.bases, base)
            closed = following < len(self.bases) and self.bases[following] < limit
            part = overlap(file, start, end, limit, closed=closed, cached=cached)
            if not isinstance(part, Overlap):
                return part
            found.extend(part.rows)
            if part.complete:
                break
        return found

    def _prove(self, base: int, file: File, *, cached: bool) -> Warm | None:
        """The file begins with the rows that were written to it, or damage is raised."""
        wanted, proven = self._sums.get(base, NO_ROWS), self._proven.get(base, NO_ROWS)
        if wanted[0] <= proven[0]:
            return None
        found = holds(file, proven, wanted, cached=cached)
        if callable(found):
            return found
        if not found:
            self._aborted.pop(base, None)  # it may be repaired: then another file has its name
            raise differs(file.name)
        self._proven[base] = wanted
        return None

    def find_time(self, timestamp: int, limit: int) -> BatchPlace | None:
        """The first batch below `limit` (an offset) whose maximum timestamp reaches `timestamp`. Blocks."""
        return self._while_files_go(partial(self._find_time, timestamp, limit))

    def _while_files_go(self, look: Callable[[], T]) -> T:
        """Retention and compaction do not wait for a lookup: it begins again with the files that are there."""
        for _ in range(LOOKUPS_MAX):
            try:
                return look()
            except FileNotFoundError:
                self._files.clear()  # another file may have the name of one that is open
        return look()

    def _find_time(self, timestamp: int, limit: int) -> BatchPlace | None:
        self.refresh()
        for index, base in enumerate(self._below(limit)):
            end = self._end(index, limit)
            on_lie = partial(self._mend, base)
            place = find_time(self.disk, self.directory, base, self._file(base), timestamp, end, on_lie)
            if place is not None:
                return place
        return None

    def largest_timestamp(self, limit: int) -> int:
        """The largest timestamp below `limit`; -1 in an empty log. Blocks."""
        return self._while_files_go(partial(self._largest_timestamp, limit))

    def _largest_timestamp(self, limit: int) -> int:
        self.refresh()
        largest = -1
        for index, base in enumerate(self._below(limit)):
            end = self._end(index, limit)
            on_lie = partial(self._mend, base)
            largest = max(largest, newest_time(self.disk, self.directory, base, self._file(base), end, on_lie))
        return largest

    def _below(self, limit: int) -> list[int]:
        """Segments that begin below an offset; a round that failed may have left others."""
        return self.bases[: bisect_left(self.bases, limit)]

    def _end(self, index: int, limit: int) -> int:
        return min(limit, self.bases[index + 1]) if index + 1 < len(self.bases) else limit
