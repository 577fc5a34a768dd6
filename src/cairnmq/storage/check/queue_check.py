"""verify's part for one queue log: batches, order, indexes, epochs and producers against the checkpoint's row.

Below the row's end everything was synced, so whatever is wrong there is damage. Behind it lies what a start cuts and
splits again: there only a whole batch that the journal does not hold is a finding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

from msgspec import Struct

from cairnmq.storage.batches.batch_scan import NoBatch, StoredBatch, scan_batches
from cairnmq.storage.check.aborted_check import compare_aborted, compare_open
from cairnmq.storage.check.finding import Finding, note
from cairnmq.storage.check.journal_check import Unsplit
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import IDENTITY_FILE, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, QueueRow, digits, numbered
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.segments.segment import CLEANED, INDEX, LOG, SUFFIXES, TIME_INDEX, TXN_INDEX, segment_name
from cairnmq.storage.segments.txn_index import read_rows, sound_rows


class _Place(Struct, frozen=True, gc=False):
    """A sound batch, as index entries must show it. `newest` is the largest timestamp up to and with it."""

    position: int
    last_offset: int
    max_timestamp: int
    newest: int


class QueueCheck:
    """One queue directory. `unsplit`: the journal's batches of this queue behind the split position, by offset."""

    def __init__(self, disk: Disk, directory: str, root: str, row: QueueRow, unsplit: Mapping[int, Unsplit]) -> None:
        self.disk = disk
        self.directory = directory
        self.root = root
        self.row = row
        self.unsplit = unsplit
        self.damaged = False
        self._first = self._next = 0
        self._state = QueueState()
        self._cut = False  # a start cuts the log here; what follows does not count
        self._unfinished: set[int] = set()  # segments in the middle of a swap: their indexes may be those of either

    def findings(self, journal_damaged: bool) -> Iterator[Finding]:
        start, end = self.row.log_start, self.row.end
        names = self.disk.list(self.directory)
        bases = numbered(names, LOG)
        yield from self._strange_files(names, bases)
        bases = self._after_swaps(names, bases)
        if end > start and (not bases or bases[0] > start):
            self.damaged = True
            first = f"the first segment is {bases[0]}" if bases else "there is no segment"
            yield Finding(self._path(), f"records from offset {start} on are missing: {first}")
        # Segments wholly below the log start are on their way out: a crash may leave any of them.
        bases = bases[max(0, bisect_right(bases, start) - 1) :] if end > start else [b for b in bases if b >= end]
        first_offset = self._first = self._next = bases[0] if bases else end
        for index, base in enumerate(bases):
            if self._cut:
                break
            # Rolled before the checkpoint: a record behind the roll is below its end.
            is_closed = index + 1 < len(bases) and bases[index + 1] < end
            yield from self._segment(base, is_closed, journal_damaged)
        if self._next < end and end > start and not self.damaged:
            self.damaged = True
            file = self._path(bases[-1], LOG) if bases else self._path()
            yield Finding(file, f"ends at offset {self._next} where the checkpoint says {end}")
        if not self.damaged:
            yield from self._producers(first_offset)

    def _strange_files(self, names: list[str], bases: list[int]) -> Iterator[Finding]:
        known = {f"{base:020d}{suffix}" for base in bases for suffix in SUFFIXES} | {IDENTITY_FILE}
        for name in names:
            if name not in known:
                yield note(f"{self._path()}/{name}", "belongs to no segment")

    def _after_swaps(self, names: list[str], bases: list[int]) -> list[int]:
        """Segments that count: until the compacted one has taken its place, the old ones do."""
        self._unfinished = {base for base in bases for suffix in SUFFIXES if digits(base, suffix) + CLEANED in names}
        swaps = [swap for swap in self.row.compaction.swaps if digits(swap[0], LOG) + CLEANED not in names]
        superseded = {base for swap in swaps for base in swap[1:]}
        return [base for base in bases if base not in superseded]

    # ----------------------------------------------------------------------------------------------------- batches

    def _segment(self, base: int, is_closed: bool, journal_damaged: bool) -> Iterator[Finding]:
        name = self._path(base, LOG)
        if base != self._next:
            yield self._wrong(name, f"starts at offset {base}, but {self._next} is expected")
            self._next = base
        places: list[_Place] = []
        newest = -1
        was_damaged = self.damaged
        file = self.disk.open(segment_name(self.directory, base, LOG))
        for found in scan_batches(file):
            problem = self._problem(found)
            if problem is not None:
                yield self._wrong(name, problem)
            if isinstance(found, NoBatch) or self._cut:
                break
            header = found.header
            if problem is None and header.base_offset < self.row.end:
                yield from self._below_end(found, name)
            elif problem is None:
                yield from self._behind_end(found, name, journal_damaged)
            self._next = header.last_offset + 1
            newest = max(newest, header.max_timestamp) if header.count else newest  # empty ones are in no time index
            places.append(_Place(found.position, header.last_offset, header.max_timestamp, newest))
        file.close()
        if self.damaged == was_damaged and base not in self._unfinished:
            # Only entries of batches that came after the checkpoint can be torn.
            is_strict = is_closed or not self.unsplit
            yield from self._aborted(base)
            yield from self._offset_index(base, places, is_strict)
            yield from self._time_index(base, places, is_strict, newest if is_closed else -1)

    def _problem(self, found: StoredBatch | NoBatch) -> str | None:
        if isinstance(found, NoBatch):
            return f"no batch at {found.position}: {found.why}"
        if not found.crc_ok:
            return f"the CRC of the batch at {found.position} (offset {self._next}) does not match"
        if found.header.base_offset != self._next:
            return f"offset {found.header.base_offset} at {found.position}, but {self._next} is expected"
        return None

    def _wrong(self, name: str, text: str) -> Finding:
        """Damage below the checkpoint, and where nothing was split since; else a tail that a start cuts."""
        if self._next < self.row.end or not self.unsplit:
            self.damaged = True
            return Finding(name, text)
        self._cut = True
        return note(name, f"{text}; it was never synced and is split again at the next start")

    def _below_end(self, found: StoredBatch, name: str) -> Iterator[Finding]:
        header = found.header
        if header.last_offset >= self.row.end:
            self.damaged = True
            yield Finding(name, f"the checkpoint's end {self.row.end} lies inside the batch at {found.position}")
        self._state.apply_batch(found.data, 0)
        if header.base_offset < self.row.log_start:
            return
        known = [epoch for epoch, start in self.row.epochs if start <= header.base_offset]
        if not known or known[-1] != header.leader_epoch:
            self.damaged = True
            text = f"the batch at {found.position} has leader epoch {header.leader_epoch}"
            yield Finding(name, f"{text}, the checkpoint says {known[-1] if known else 'none'}")

    def _behind_end(self, found: StoredBatch, name: str, journal_damaged: bool) -> Iterator[Finding]:
        unsplit = self.unsplit.get(found.header.base_offset)
        if unsplit is None:
            if not journal_damaged:
                yield Finding(name, f"offset {found.header.base_offset} is in neither the checkpoint nor the journal")
        elif unsplit.read() != found.data:
            yield Finding(name, f"offset {found.header.base_offset} at {found.position} differs from the journal")

    def _aborted(self, base: int) -> Iterator[Finding]:
        """Rows of markers behind the checkpoint do not count: a start cuts them."""
        end = min(self._next, self.row.end)
        name = self._path(base, TXN_INDEX)
        try:
            file = segment_name(self.directory, base, TXN_INDEX)
            if self.unsplit or not self.disk.exists(file):
                rows = sound_rows(self.disk, self.directory, base, end)
            else:
                rows = read_rows(self.disk, self.directory, base)
        except Damage as damage:
            yield Finding(name, f"no row for aborted transactions at {damage.place.position}")
            return
        # of those below the log start a round may have left out some
        start = max(base, self.row.log_start)
        replayed = [row for row in self._state.aborted if start <= row.last < end]
        first = max(self._first, self.row.compaction.rewritten_end)  # compaction takes aborted records away
        for text in compare_aborted((row for row in rows if row.last >= start), replayed, first):
            yield Finding(name, text)

    # ----------------------------------------------------------------------------------------------------- indexes

    def _offset_index(self, base: int, places: list[_Place], is_strict: bool) -> Iterator[Finding]:
        by_position = {place.position: place for place in places}
        before = -1
        for at, data in self._index_entries(base, INDEX, OFFSET_INDEX_ENTRY.size):
            problem = None
            if len(data) == OFFSET_INDEX_ENTRY.size:
                relative, position = OFFSET_INDEX_ENTRY.unpack(data)
                place = by_position.get(position)
                if relative <= before:
                    problem = f"the entry at {at} is not above the one before"
                elif place is None or place.last_offset != base + relative:
                    problem = f"the entry at {at} says offset {base + relative} at {position}, which is wrong"
                before = relative
            else:
                problem = f"{len(data)} bytes at {at} are not an entry"
            if problem is not None:
                yield self._index_wrong(base, INDEX, problem, is_strict)
                return

    def _time_index(self, base: int, places: list[_Place], is_strict: bool, newest: int) -> Iterator[Finding]:
        by_offset = {place.last_offset: place for place in places}
        before = -1
        for at, data in self._index_entries(base, TIME_INDEX, TIME_INDEX_ENTRY.size):
            problem = None
            if len(data) == TIME_INDEX_ENTRY.size:
                timestamp, relative = TIME_INDEX_ENTRY.unpack(data)
                place = by_offset.get(base + relative)
                if timestamp <= before:
                    problem = f"the entry at {at} is not above the one before"
                elif place is None or place.max_timestamp != timestamp or place.newest != timestamp:
                    problem = f"the entry at {at} says time {timestamp} at offset {base + relative}, which is wrong"
                before = timestamp
            else:
                problem = f"{len(data)} bytes at {at} are not an entry"
            if problem is not None:
                yield self._index_wrong(base, TIME_INDEX, problem, is_strict)
                return
        if before < newest:
            yield Finding(self._path(base, TIME_INDEX), f"ends with time {before}; the segment's largest is {newest}")

    def _index_entries(self, base: int, suffix: str, size: int) -> Iterator[tuple[int, bytes]]:
        name = segment_name(self.directory, base, suffix)
        if not self.disk.exists(name):
            return
        file = self.disk.open(name)
        data = file.read(0, file.size())
        file.close()
        for at in range(0, len(data), size):
            entry = data[at : at + size]
            # A crash can leave the first entry zeroed: "look from the segment's beginning", which is never wrong.
            if at or len(entry) < size or any(entry):
                yield at, entry

    def _index_wrong(self, base: int, suffix: str, text: str, is_strict: bool) -> Finding:
        name = self._path(base, suffix)
        return Finding(name, text) if is_strict else note(name, f"{text}; the next start truncates it")

    # --------------------------------------------------------------------------------------------------- producers

    def _producers(self, first_offset: int) -> Iterator[Finding]:
        """Replay of the log gives the stored state. Either side may know fewer batches: old segments are deleted,
        and a producer that was silent for long is forgotten."""
        for stored in self.row.producers:
            replayed = self._state.producers.get(stored.producer_id)
            if replayed is None:
                if stored.batches and stored.batches[-1][2] >= first_offset:
                    yield Finding(
                        self._path(), f"no batch of producer {stored.producer_id}, which is in the checkpoint"
                    )
                continue
            for problem in compare_open(stored, replayed, max(first_offset, self.row.compaction.rewritten_end)):
                yield Finding(self._path(), problem)
            count = min(len(stored.batches), len(replayed.batches))
            if self.row.compaction.rewritten_end:
                count = min(count, 1)  # only a producer's last batch is sure to stay
            both = [row.batches[len(row.batches) - count :] for row in (stored, replayed)]
            if stored.epoch != replayed.epoch or both[0] != both[1]:
                text = f"producer {stored.producer_id}: the checkpoint has epoch {stored.epoch} and {stored.batches}"
                yield Finding(self._path(), f"{text}, the log epoch {replayed.epoch} and {replayed.batches}")

    def _path(self, base: int | None = None, suffix: str = "") -> str:
        return f"{self.root}/{self.directory if base is None else segment_name(self.directory, base, suffix)}"
