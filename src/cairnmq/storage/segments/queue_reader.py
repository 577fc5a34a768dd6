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
from cairnmq.storage.batches.batch_run import BatchPlace, NotCached, Part, Suspect, Wanted, read_batches
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.format import IDENTITY_FILE, Aborted, RowSum, numbered
from cairnmq.storage.segments.index_rebuild import INDEX_INTERVAL_BYTES, rebuild_indexes
from cairnmq.storage.segments.newest_time import NewestTime, claimed, newest_since, proven
from cairnmq.storage.segments.queue_log import stranger_in
from cairnmq.storage.segments.segment import (
    LOG,
    TXN_INDEX,
    SegmentRun,
    find_time,
    forget_oldest,
    segment_name,
)
from cairnmq.storage.segments.txn_index import NO_ROWS, NOTHING_KNOWN, Overlap, differs, holds, overlap

PLACES_KEPT = 64
FILES_KEPT = 4
LOOKUPS_MAX = 3
ANY = -1

T = TypeVar("T")
# segment, position, size of the batch there (0: not known), and that size again if all of the batch was looked at
Spot = tuple[int, int, int, int]


class QueueReader:
    """Reads with `cached=True` never wait for the disk: they return `NotCached` instead, which is loaded on a thread.
    Everything else here runs on the owner's thread only."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        ignored: Collection[int] = (),
        queue_id: int = ANY,
    ) -> None:
        """`ignored`: segments that do not count. `queue_id`: whose directory it must be."""
        self.disk = disk
        self._ignored = ignored
        self._queue_id = queue_id
        self.directory = directory
        self.index_interval_bytes = index_interval_bytes
        self._stranger = ""  # the other queue whose directory is in this place
        self._is_mine = queue_id == ANY  # it was looked at
        self.bases: list[int] = []
        self._aborting: list[int] = []  # segments with aborted transactions
        self._aborted: dict[int, File] = {}
        self._sums = NOTHING_KNOWN  # of the rows of these segments
        self._proven: dict[int, RowSum] = {}  # rows that were compared with such a sum
        self._files: dict[int, File] = {}
        self._opened: set[int] = set()  # segments whose file was opened before: again, that does not wait
        self._places: dict[int, Spot] = {}  # by next offset
        # Offsets whose batch seemed to be damaged, or very large: it is looked at as a whole, where that may block.
        self._suspects: frozenset[int] = frozenset()
        self._rebuilt: set[int] = set()  # segments whose indexes were made again
        self._newest: dict[int, NewestTime] = {}  # by segment, as far as anybody asked
        self._listed = False  # all that is to be known of the directory is

    def saw_segment(self, base: int, *, aborted: bool = False) -> None:
        """The splitter's last segment, as its rounds report it; it may have begun others before that one, and written
        aborted transactions to any of them. Who reads next looks, where that may block."""
        if aborted or not self.bases or self.bases[-1] < base:
            self._listed = False

    def refresh(self) -> None:
        self._listed = True  # first: what is reported meanwhile needs another look
        if not self._is_mine:
            self._stranger = stranger_in(self.disk, self.directory, self._queue_id)
            self._is_mine = not self._stranger
        names = self.disk.list(self.directory) if self._is_mine else []
        self.bases = [base for base in numbered(names, LOG) if base not in self._ignored]
        # Of a segment that is lost too: a transaction that ends there may have begun in the one before.
        aborting = set(numbered(names, TXN_INDEX))
        self._aborting = sorted(
            (aborting | self._sums.keys()).intersection(self.bases) | (aborting & self._sums.keys())
        )
        for base in [base for base in self._aborted.copy() if base not in self._aborting]:
            self._aborted.pop(base, None)
        for base in [base for base in self._files.copy() if base not in self.bases]:
            self._files.pop(base, None)  # closed when the last read on it ends
        for base in [base for base in self._newest.copy() if base not in self.bases]:
            self._newest.pop(base, None)
        self._opened.intersection_update(self.bases)

    def _open(self, base: int) -> None:
        """For the first time, which may wait for the disk; retention may have deleted the segment."""
        try:
            self._file(base)
        except FileNotFoundError:
            self.refresh()

    def _file(self, base: int) -> File:
        file = self._files.get(base)
        if file is None:
            self._opened.add(base)
            file = self._files[base] = self.disk.open(segment_name(self.directory, base, LOG))
            forget_oldest(self._files, FILES_KEPT)
        return file

    def read(self, wanted: Wanted, *, whole: bool, cached: bool) -> Part | NotCached:
        """At least one batch if `whole`, however large.

        An empty part means: the next batch does not fit.
        """
        offset = wanted.offset
        for _ in range(3):
            place = self._places.get(offset) if self._listed else None
            if place is None and self._listed:
                place = self._first_place(offset)
                if place is not None and cached and place[0] not in self._opened:
                    return NotCached(partial(self._open, place[0]))
            if place is None:
                if cached:
                    return NotCached(partial(self._remember, offset, wanted.epoch))
                place = self._remember(offset, wanted.epoch)
            try:
                part = self._read_at(place, wanted, whole=whole, cached=cached)
            except FileNotFoundError:
                part = None  # the end of a segment that retention has deleted since
            if isinstance(part, Part):
                return part
            if isinstance(part, Suspect):
                # A compacted file may have the name now: the place is forgotten, and looked up once more.
                self._places.pop(offset, None)
                self._files.pop(place[0], None)
                suspects = self._suspects if len(self._suspects) < PLACES_KEPT else frozenset[int]()
                self._suspects = suspects | {offset}
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
        return (offset, 0, 0, 0) if begins and offset not in self._suspects else None

    def _missing(self, offset: int, limit: int) -> Corrupt:
        """The segment that should hold `offset` ends before it, or is not there."""
        bases = self.bases
        index = bisect_right(bases, offset) - 1
        end = min(limit, bases[index + 1]) if index + 1 < len(bases) else limit
        queue = self.directory.rpartition("/")[2]
        if self._stranger:
            why = f"its {IDENTITY_FILE} is that of {self._stranger}"
            return Damage(Place(self.directory, -1, queue, offset, end, why))
        if index < 0:
            return Damage(Place(self.directory, -1, queue, offset, end), "no segment holds them")
        file = self._file(bases[index])
        return Damage(Place(file.name, file.size(), queue, offset, end), "the file ends there")

    def _remember(self, offset: int, epoch: int) -> Spot:
        """Where the batch holding `offset` is, which should have this leader epoch. Blocks."""
        if not self._listed:
            self.refresh()
            known = self._places.get(offset)
            if known is not None:
                return known
        for _ in range(2):
            bases = self.bases  # `refresh` may put in others meanwhile: cold reads have threads of their own
            index = bisect_right(bases, offset) - 1
            if index >= 0:
                base = bases[index]
                try:
                    spot = self._look_up(base, offset, epoch)
                except FileNotFoundError:
                    spot = None  # all of that segment was deleted; a newer one holds the offset
                except Damage as damage:
                    self._files.pop(base, None)  # it may be repaired: then another file has its name
                    self._listed = False
                    raise self._bounded(damage, base) from None
                if spot is not None:
                    return self._keep(offset, spot)
            self.refresh()
        raise self._missing(offset, offset + 1)

    def _look_up(self, base: int, offset: int, epoch: int) -> Spot | None:
        """In one segment. A suspect batch is looked at as a whole; until that is done none of it is served."""
        file = self._file(base)
        if base == offset and offset not in self._suspects:
            return base, 0, 0, 0
        segment = SegmentRun(self.disk, self.directory, base, file)
        found = segment.find(offset, partial(self._rebuild_index, base))
        if found is None or offset not in self._suspects:
            return (base, found.position, found.size, 0) if found is not None else None
        segment.look_closer(found.position, offset, epoch)
        self._aborted = {}  # if it was repaired meanwhile, rows of aborted transactions may have come with it
        self.refresh()
        self._suspects = self._suspects - {offset}
        return base, found.position, found.size, found.size

    def _bounded(self, damage: Damage, base: int) -> Damage:
        """Nothing in this segment is known behind the damage; the next one is good."""
        bases = self.bases
        following = bisect_right(bases, base)
        if damage.place.end >= 0 or following == len(bases):
            return damage
        return Damage(replace(damage.place, end=bases[following]))

    def _rebuild_index(self, base: int) -> None:
        """An index lies. Of the last segment the splitter is the owner; it looks when it opens the log."""
        if base not in self._rebuilt and bisect_right(bases := self.bases, base) < len(bases):
            self._rebuilt.add(base)
            try:
                rebuild_indexes(self.disk, self.directory, base, self.index_interval_bytes)
            except (OSError, Corrupt):
                return  # it is only a hint, and what is wrong with the log its readers say

    def _keep(self, offset: int, spot: Spot) -> Spot:
        self._places[offset] = spot
        forget_oldest(self._places, PLACES_KEPT)
        return spot

    def _read_at(self, spot: Spot, wanted: Wanted, *, whole: bool, cached: bool) -> Part | NotCached | Suspect | None:
        """None: there is nothing at this position."""
        base, position, first, checked = spot
        file = self._file(base)
        bases = self.bases
        following = bisect_right(bases, base)
        if following < len(bases) and bases[following] < wanted.limit:
            # behind damage the splitter begins a new segment, whatever the damaged one still holds
            if bases[following] <= wanted.offset:
                return None
            wanted = replace(wanted, limit=bases[following])
        part = read_batches(file, position, None, wanted, whole=whole, cached=cached, first=first, checked=checked)
        if isinstance(part, Part) and len(part.data):
            self._keep(part.next_offset, (base, position + len(part.data), part.following, 0))
        return part

    def aborted(
        self, start: int, end: int, limit: int, *, cached: bool, sums: Mapping[int, RowSum] = NOTHING_KNOWN
    ) -> list[Aborted] | NotCached:
        """Aborted transactions with records from offset `start` up to `end` and a marker below `limit`.

        `sums`: of rows that were written to segments; never changed, but another one when more is known.
        """
        found: list[Aborted] = []
        if sums is not self._sums:
            self._sums = sums
            self._listed = False
        if not self._listed:
            if cached:
                return NotCached(self.refresh)
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
            not_cached = self._prove(base, file, cached=cached)
            if not_cached is not None:
                return not_cached
            following = bisect_right(self.bases, base)
            closed = following < len(self.bases) and self.bases[following] < limit
            part = overlap(file, start, end, limit, closed=closed, cached=cached)
            if not isinstance(part, Overlap):
                return part
            found.extend(part.rows)
            if part.complete:
                break
        return found

    def _prove(self, base: int, file: File, *, cached: bool) -> NotCached | None:
        """The file begins with the rows that were written to it, or damage is raised."""
        wanted, proven = self._sums.get(base, NO_ROWS), self._proven.get(base, NO_ROWS)
        if wanted[0] <= proven[0]:
            return None
        found = holds(file, proven, wanted, cached=cached)
        if isinstance(found, NotCached):
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
            on_lie = partial(self._rebuild_index, base)
            place = find_time(self.disk, self.directory, base, self._file(base), timestamp, end, on_lie)
            if place is not None:
                return place
        return None

    def newest(self, start: int, limit: int) -> NewestTime | None:
        """The largest timestamp of the records from offset `start` up to `limit`, and the first batch that has it. None
        if there are none. Blocks; what was looked at once is not read again."""
        return self._while_files_go(partial(self._find_newest, start, limit))

    def _find_newest(self, start: int, limit: int) -> NewestTime | None:
        self.refresh()
        best: NewestTime | None = None
        for index, base in enumerate(self._below(limit)):
            end = self._end(index, limit)
            if end <= start:
                continue
            found = self._newest_of(base, start, end)
            if found.time >= 0 and (best is None or found.time > best.time):
                best = found
        return best

    def _newest_of(self, base: int, start: int, end: int) -> NewestTime:
        known = self._newest.get(base)
        if known is not None and known.offset >= end and known.last >= start:
            return known
        run = SegmentRun(self.disk, self.directory, base, self._file(base))
        try:
            known = proven(run, known or claimed(run, end, partial(self._rebuild_index, base)), end)
        except Damage:
            self._newest.pop(base, None)  # a compacted file may have the name now
            self._files.pop(base, None)
            raise
        if 0 <= known.last < start:  # that one is deleted; what is left is looked at by itself
            known = proven(run, newest_since(run, start), end)
        self._newest[base] = known
        return known

    def _below(self, limit: int) -> list[int]:
        """Segments that begin below an offset; a round that failed may have left others."""
        if self._stranger:
            raise self._missing(0, limit)
        return self.bases[: bisect_left(self.bases, limit)]

    def _end(self, index: int, limit: int) -> int:
        return min(limit, self.bases[index + 1]) if index + 1 < len(self.bases) else limit
