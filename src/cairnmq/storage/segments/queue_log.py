"""The writing side of one queue's log: Kafka's segment files, appended by the splitter only.

Index entries are buffered and written at checkpoints or when they pile up: opening two more files per queue and round
would cost more than the data. Everything behind the checkpoint is cut and written again after a crash.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

from cairnmq.errors import Corrupt
from cairnmq.storage.batches.batch_run import BatchPlace, walk
from cairnmq.storage.files.damage import Damage, Place, place_of
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.format import (
    DELETED_SUFFIX,
    IDENTITY_FILE,
    OFFSET_INDEX_ENTRY,
    QUEUES,
    TIME_INDEX_ENTRY,
    TXN_INDEX_ENTRY,
    Aborted,
    Entry,
    QueueIdentity,
    RowSum,
    digits,
    numbered,
    txn_index_bytes,
)
from cairnmq.storage.files.set_aside import put_aside
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.index_rebuild import indexes_lie, rebuild_indexes
from cairnmq.storage.segments.newest_time import NewestTime
from cairnmq.storage.segments.segment import (
    CLEANED,
    INDEX,
    LOG,
    SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    find_offset,
    offset_position,
    segment_name,
    whole_entries,
)
from cairnmq.storage.segments.txn_index import NO_ROWS, ROW, read_bytes, sound_rows, sum_with
from cairnmq.types import Buffer

INDEX_BUFFER_BYTES = 4096
RELATIVE_MAX = 0x7FFFFFFF
NAME_BYTES_MAX = 255  # of a file or directory


class QueueLog:
    """Appends batches in offset order; rolls, cuts and deletes segments."""

    def __init__(self, disk: Disk, spec: QueueSpec) -> None:
        self.disk = disk
        self.spec = spec
        self.directory = spec.directory
        self.bases: list[int] = []
        self.size = 0  # of the last segment
        self.new_names = False  # files or the directory itself were made and their names are not synced
        self._file: File | None = None
        self._unindexed = 0
        self._first_timestamp = -1
        self._max_timestamp = -1
        self._max_timestamp_offset = 0
        self._indexed_timestamp = -1
        self._indexed_offset = 0  # up to this one no timestamp is larger; only of use when a log is opened
        self._times_kept: int | None = None  # bytes of the time index that stay when it is next written
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self.row_sums: dict[int, RowSum] = {}  # of segments with aborted transactions
        self.newest: dict[int, NewestTime] = {}  # of segments that retention has looked at, as far as it came
        self._unsynced: set[str] = set()  # files that are not held open: closed segments and indexes
        self._sealed = False  # the last segment is damaged: nothing is appended to it
        self.damages: list[Place] = []  # found when the log was opened; only reads of those records fail
        self._misplaced = ""  # what was done about a directory of another queue

    # ------------------------------------------------------------------------------------------------- opening

    def open_at(
        self,
        offset: int,
        checkpointed: tuple[int, int],
        superseded: Collection[int] = (),
        *,
        split: bool = False,
        epoch: int = 0,
    ) -> None:
        """Ready to append `offset`: whatever lies there or behind is cut, because it will be split again.

        `checkpointed`: log start and end that the checkpoint claims; between them records must be there.
        `superseded`: segments whose records are in compacted ones.
        `split`: records have been split into it since the checkpoint, and count.
        `epoch`: the name under which a directory is put aside that is in the wrong place.
        """
        log_start, end = checkpointed
        holds_data = end > log_start
        self._claim_directory(holds_data, holds_data or split, epoch)
        self.bases = [base for base in numbered(self.disk.list(self.directory), LOG) if base not in superseded]
        if holds_data and (not self.bases or self.bases[0] > log_start):
            self._note_damage(self.directory, -1, log_start, min([end, *self.bases]), self._misplaced)
        while self.bases and self.bases[-1] >= offset:
            self._remove_segment(self.bases.pop())
        while not holds_data and self.bases and self.bases[0] < end:
            self._remove_segment(self.bases.pop(0))  # deleted before, but the deletion was lost in a crash
        self._mark_unsynced(end if holds_data else 0)
        if not self.bases:
            return
        base = self.bases[-1]
        file = self._open_file()
        try:
            self._open_last(file, base, offset)
        except (Damage, Unreadable) as error:
            place = place_of(error, self._label)
            self._note_damage(place.file, place.position, place.first, place.end)
            self.size, self._sealed = file.size(), True
            with suppress(Unreadable):
                self._cut_aborted(base, offset)

    def _open_last(self, file: File, base: int, offset: int) -> None:
        self.size = self._end_before(file, base, offset)
        if file.size() != self.size:
            file.truncate(self.size)
        self._cut_indexes(base, offset)
        self._cut_aborted(base, offset)
        if indexes_lie(self.disk, self.directory, base, self.spec.config.index_interval_bytes, closed=False):
            with suppress(Corrupt):  # damage that a reader will name
                rebuild_indexes(self.disk, self.directory, base, self.spec.config.index_interval_bytes)
                self._cut_indexes(base, offset)
        self._recall_times(base, file)

    def _note_damage(self, file: str, position: int, first: int, end: int, why: str = "") -> None:
        self.damages.append(Place(file, position, self._label, first, end, why))

    @property
    def _label(self) -> str:
        return f"{self.spec.topic}-{self.spec.partition}"

    def _mark_unsynced(self, checkpointed_end: int) -> None:
        """Whatever reaches behind the checkpoint may be unsynced: a splitter that died wrote it and synced nothing."""
        for index, base in enumerate(self.bases):
            following = self.bases[index + 1] if index + 1 < len(self.bases) else None
            # one that ends just there counts too: it may have been cut, and the cut not be synced
            if following is None or following >= checkpointed_end:
                names = (segment_name(self.directory, base, suffix) for suffix in SUFFIXES)
                self._unsynced.update(name for name in names if self.disk.exists(name))
                self.new_names = True
        if not checkpointed_end:
            self._unsynced.add(f"{self.directory}/{IDENTITY_FILE}")
            self.new_names = True

    def _claim_directory(self, holds_data: bool, is_mine: bool, epoch: int) -> None:
        """A directory that belongs to another queue is never used. That of a queue which was deleted, and whose topic
        was made again, is removed. One that is in the wrong place (somebody has copied or moved it, or only its
        identity) is put aside: nobody can tell whose records are in it, so they are neither served nor removed. The
        queue goes on in a new directory, and what it had in segments is damage.

        One made after the checkpoint may be there without a readable identity; then nothing in it counts.
        """
        found = read_identity(self.disk, self.directory)
        mine = QueueIdentity(self.spec.queue_id, self.spec.topic, self.spec.partition, self.spec.topic_id.hex())
        name = f"{self.directory}/{IDENTITY_FILE}"
        if found is not None and found.queue_id == self.spec.queue_id:
            if not holds_data:
                self.disk.replace(name, mine.sealed())  # it may be unsynced, and a sync of it may have failed
            return
        if found is not None and (is_mine or found.directory != self.directory):
            (moved,) = put_aside(self.disk, [self.directory], epoch)
            self._misplaced = f"its {IDENTITY_FILE} is that of {describe(found)}; it was moved to {moved}"
            if not holds_data:
                self._note_damage(name, 0, -1, -1, self._misplaced)
        elif is_mine:
            # The checkpoint or a predecessor says whose it is, so this one is damaged or lost: it is written again.
            self._note_damage(name, 0 if self.disk.exists(name) else -1, -1, -1)
        elif self.disk.list(self.directory):
            self.disk.remove_tree(retire_directory(self.disk, self.directory, found.queue_id if found else 0))
        self.disk.make_dir(self.directory)
        if is_mine:
            self.disk.replace(name, mine.sealed())
            self.new_names = True
            return
        file = self.disk.create(name)
        file.append([mine.sealed()])
        file.close()

    def _end_before(self, file: File, base: int, offset: int) -> int:
        """File position where `offset` belongs. The index shortens the walk; if it lies, begin at the front."""
        size = file.size()
        expected = base
        for start in (offset_position(self.disk, self.directory, base, offset - 1), 0):
            end, expected = start, base
            for place in walk(file, start):
                if not expected <= place.base_offset < offset or place.position + place.size > size:
                    break  # behind the checkpoint half a header may look like one
                end, expected = place.position + place.size, place.last_offset + 1
            if expected == offset:
                return end
        raise Damage(Place(file.name, end, self.spec.topic, expected, offset))

    def _cut_indexes(self, base: int, offset: int) -> None:
        """Keeps the ascending entries below `offset` up to the last true one: unsynced pages may hold anything."""
        log = self._open_file()
        offsets = whole_entries(self.disk, self.directory, base, INDEX, OFFSET_INDEX_ENTRY.size)
        count, before = 0, -1
        for relative, position in OFFSET_INDEX_ENTRY.iter_unpack(offsets):
            if base + relative >= offset or position >= self.size or relative <= before:
                break
            count, before = count + 1, relative
        while count:
            relative, position = OFFSET_INDEX_ENTRY.unpack_from(offsets, (count - 1) * OFFSET_INDEX_ENTRY.size)
            if self._is_batch(next(walk(log, position, self.size), None), base + relative):
                break
            count -= 1
        self._rewrite_index(base, INDEX, OFFSET_INDEX_ENTRY.size * count)
        self._cut_times(base, offset, log)

    def _cut_times(self, base: int, offset: int, log: File) -> None:
        stamps = whole_entries(self.disk, self.directory, base, TIME_INDEX, TIME_INDEX_ENTRY.size)
        count, before = 0, -1
        for timestamp, relative in TIME_INDEX_ENTRY.iter_unpack(stamps):
            if base + relative >= offset or timestamp <= before:
                break
            count, before = count + 1, timestamp
        while count:
            timestamp, relative = TIME_INDEX_ENTRY.unpack_from(stamps, (count - 1) * TIME_INDEX_ENTRY.size)
            try:
                place = find_offset(self.disk, self.directory, base, log, base + relative)
            except Damage:
                place = None  # a reader will name it; here it only makes the entry one that nothing confirms
            if self._is_batch(place, base + relative) and place and place.max_timestamp == timestamp:
                break
            count -= 1
        self._rewrite_index(base, TIME_INDEX, TIME_INDEX_ENTRY.size * count)
        # The last one may be younger than the batch it speaks of and, after a failed sync, read well without being on
        # disk. So it is made again, when the next one is written and at the latest when the segment is closed.
        count = max(0, count - 1)
        self._times_kept = TIME_INDEX_ENTRY.size * count
        self._indexed_timestamp, self._indexed_offset = -1, base
        if count:
            timestamp, relative = TIME_INDEX_ENTRY.unpack_from(stamps, (count - 1) * TIME_INDEX_ENTRY.size)
            self._indexed_timestamp, self._indexed_offset = timestamp, base + relative

    def _cut_aborted(self, base: int, offset: int) -> None:
        """Keeps the rows of markers below `offset`, up to the last true one."""
        rows = sound_rows(self.disk, self.directory, base, offset)
        while rows and not self._is_marker(base, rows[-1].last):
            rows.pop()
        self._rewrite_index(base, TXN_INDEX, TXN_INDEX_ENTRY.size * len(rows))

    def _is_marker(self, base: int, offset: int) -> bool:
        try:
            place = find_offset(self.disk, self.directory, base, self._open_file(), offset)
        except (Damage, Unreadable):
            return True  # nobody can tell; a row too many hides nothing that others may see
        return place is not None and place.base_offset == place.last_offset == offset

    def check_aborted(self, known: Mapping[int, RowSum]) -> None:
        """`known`: sums of rows that were written once. Whatever else a `.txnindex` holds is believed."""
        aborting = set(numbered(self.disk.list(self.directory), TXN_INDEX))
        # those of a lost segment count as well: a transaction that ends there may have begun in the one before
        for base in sorted((aborting | known.keys()).intersection(self.bases) | (aborting & known.keys())):
            try:
                data = read_bytes(self.disk, self.directory, base, known)
            except (Damage, Unreadable) as error:
                place = place_of(error, self._label)
                self._note_damage(place.file, place.position, -1, -1)
                if base in known:
                    self.row_sums[base] = known[base]
                continue
            if len(data) >= ROW:
                self.row_sums[base] = sum_with(NO_ROWS, data[: len(data) // ROW * ROW])

    @staticmethod
    def _is_batch(place: BatchPlace | None, last_offset: int) -> bool:
        return place is not None and place.last_offset == last_offset

    def _rewrite_index(self, base: int, suffix: str, size: int) -> None:
        name = segment_name(self.directory, base, suffix)
        if not self.disk.exists(name):
            return
        file = self.disk.open(name, write=True)
        if file.size() != size:
            file.truncate(size)
        file.close()

    def _recall_times(self, base: int, file: File) -> None:
        """Timestamps of the open segment: the first batch's, and the largest.

        The time index knows it up to its last entry. The offset index may reach further: a crash cuts each by itself.
        """
        self._unindexed = 0
        self._first_timestamp = next((place.max_timestamp for place in walk(file, 0, self.size)), -1)
        self._max_timestamp = self._indexed_timestamp
        for place in walk(file, offset_position(self.disk, self.directory, base, self._indexed_offset), self.size):
            if place.max_timestamp > self._max_timestamp and place.count:
                self._max_timestamp, self._max_timestamp_offset = place.max_timestamp, place.last_offset

    @property
    def max_timestamp(self) -> int:
        """Of the open segment."""
        return self._max_timestamp

    # ----------------------------------------------------------------------------------------------- appending

    def append(self, batches: Sequence[Entry], aborted: Iterable[Aborted] = ()) -> int:
        """One gathered write per segment touched; returns the bytes written. `batches` are journal entries of them,
        `aborted` the transactions that markers among them end."""
        run: list[Buffer] = []
        run_bytes = written = 0
        for batch in batches:
            data = batch.payload
            size = len(data)
            if not self.bases or self._sealed or self._must_roll(batch, self.size + run_bytes + size):
                if run:
                    self._write(run, run_bytes)
                run, run_bytes = [], 0
                self._roll(batch.base_offset)
            self._note(batch, self.size + run_bytes, size)
            run.append(data)
            run_bytes += size
            written += size
        if run:
            self._write(run, run_bytes)
        if len(self._offset_entries) > INDEX_BUFFER_BYTES:
            self.flush_indexes()
        self._note_aborted(aborted)
        return written

    def _note_aborted(self, rows: Iterable[Aborted]) -> None:
        """Not buffered: readers rely on these as soon as the round is reported."""
        for base, some in groupby(rows, key=lambda row: self.bases[bisect_right(self.bases, row.last) - 1]):
            name = segment_name(self.directory, base, TXN_INDEX)
            if self.disk.exists(name):
                file = self.disk.open(name, write=True)
            else:
                file = self.disk.create(name)
                self.new_names = True
            self._unsynced.add(name)
            data = txn_index_bytes(some)
            file.append([data])
            file.close()
            if data:
                self.row_sums[base] = sum_with(self.row_sums.get(base, NO_ROWS), data)

    def sums_from(self, offset: int) -> tuple[tuple[int, RowSum], ...]:
        """Of the segment that holds `offset` and those behind it."""
        first = self.bases[bisect_right(self.bases, offset) - 1]
        return tuple((base, known) for base, known in self.row_sums.items() if base >= first)

    def _must_roll(self, batch: Entry, size_after: int) -> bool:
        config = self.spec.config
        return (
            size_after > config.segment_bytes
            or batch.last_offset - self.bases[-1] > RELATIVE_MAX
            or (self._first_timestamp >= 0 and batch.max_timestamp - self._first_timestamp > config.segment_ms)
        )

    def _write(self, run: list[Buffer], size: int) -> None:
        file = self._open_file()
        try:
            file.append(run)
        except OSError:
            file.truncate(self.size)
            raise
        self.size += size

    def _note(self, batch: Entry, position: int, size: int) -> None:
        """Kafka's rule: an entry for the first batch behind every `index.interval.bytes`."""
        base = self.bases[-1]
        if self._first_timestamp < 0:
            self._first_timestamp = batch.max_timestamp
        if batch.max_timestamp > self._max_timestamp and batch.count:  # Kafka's tools look for a record of that time
            self._max_timestamp, self._max_timestamp_offset = batch.max_timestamp, batch.last_offset
        if self._unindexed > self.spec.config.index_interval_bytes:
            self._offset_entries += OFFSET_INDEX_ENTRY.pack(batch.last_offset - base, position)
            self._index_time()
            self._unindexed = 0
        self._unindexed += size

    def _index_time(self) -> None:
        if self._max_timestamp > self._indexed_timestamp:
            self._time_entries += TIME_INDEX_ENTRY.pack(
                self._max_timestamp, self._max_timestamp_offset - self.bases[-1]
            )
            self._indexed_timestamp = self._max_timestamp

    def _roll(self, base: int) -> None:
        if self.bases:
            self._close_segment()
        for suffix in SUFFIXES:
            self.disk.remove(segment_name(self.directory, base, suffix))  # an index whose log a crash took away
        self._file = self.disk.create(segment_name(self.directory, base, LOG))
        self.bases.append(base)
        self.new_names = True
        self.size = self._unindexed = 0
        self._sealed = False
        self._first_timestamp = self._max_timestamp = self._indexed_timestamp = -1
        self._times_kept = None

    def _close_segment(self) -> None:
        """A closed segment's time index ends with its largest timestamp: retention and lookups rely on it."""
        self._index_time()
        self.flush_indexes()
        self._unsynced.add(segment_name(self.directory, self.bases[-1], LOG))
        self.close_file()

    def flush_indexes(self) -> None:
        """An offset index stands beside every time index, if only an empty one: Kafka's tools look into both."""
        for suffix, entries in ((INDEX, self._offset_entries), (TIME_INDEX, self._time_entries)):
            name = segment_name(self.directory, self.bases[-1], suffix) if self.bases else ""
            if not entries and (not self._time_entries or self.disk.exists(name)):
                continue
            if self.disk.exists(name):
                file = self.disk.open(name, write=True)
            else:
                file = self.disk.create(name)
                self.new_names = True
            if entries and suffix == TIME_INDEX and self._times_kept is not None:
                file.truncate(min(self._times_kept, file.size()))
                self._times_kept = None
            if entries:
                file.append([bytes(entries)])
            file.close()
            self._unsynced.add(name)
            entries.clear()

    def _open_file(self) -> File:
        if self._file is None:
            self._file = self.disk.open(segment_name(self.directory, self.bases[-1], LOG), write=True)
        return self._file

    # -------------------------------------------------------------------------------------- syncing and removing

    def sync_parts(self) -> tuple[list[File], list[str], list[str]]:
        """What a checkpoint must sync: the file that is open, names of others written since the last one, and
        directories with new names."""
        self.flush_indexes()
        files, names = [], sorted(self._unsynced)
        if self._file is not None:
            files.append(self._file)
        elif self.bases:
            names.append(segment_name(self.directory, self.bases[-1], LOG))
        return files, names, ([self.directory, QUEUES, ""] if self.new_names else [])

    def synced(self) -> None:
        self._unsynced.clear()
        self.new_names = False

    def remove_below(self, offset: int) -> list[int]:
        """Deletes segments that lie wholly below `offset`; the last one too when nothing of it is left."""
        removed: list[int] = []
        while len(self.bases) > 1 and self.bases[1] <= offset:
            removed.append(self.bases.pop(0))
        for base in removed:
            self._remove_segment(base)
        for base in [base for base in self.row_sums if self.bases and base < self.bases[0]]:
            del self.row_sums[base]  # of a lost segment
        return removed

    def remove_last(self) -> None:
        """The last segment holds nothing that is still wanted; the next append begins a new one."""
        self.close_file()
        self._offset_entries.clear()
        self._time_entries.clear()
        self._times_kept = None
        self._remove_segment(self.bases.pop())
        self.size = 0

    def _remove_segment(self, base: int) -> None:
        self.row_sums.pop(base, None)
        self.newest.pop(base, None)
        for suffix in SUFFIXES:
            name = segment_name(self.directory, base, suffix)
            self._unsynced.discard(name)
            self.disk.remove(name)

    # ------------------------------------------------------------------------------------------------ compacting

    def remove_unfinished(self, kept: Collection[int] = ()) -> None:
        """Compacted files that count for nothing, but not those of the segments `kept`."""
        for name in self.disk.list(self.directory):
            if name.endswith(CLEANED) and not any(name.startswith(digits(base, ".")) for base in kept):
                self.disk.remove(f"{self.directory}/{name}")

    def sum_cleaned(self, bases: Sequence[int]) -> None:
        """From now on the rows of these segments are those of the compacted file."""
        for base in bases:
            self.row_sums.pop(base, None)
        self._sum_rows(bases[0], CLEANED)

    def prepend(self, bases: Sequence[int]) -> None:
        """Segments that are in place, and hold what comes before the first."""
        for base in bases:
            self._sum_rows(base)
        self.bases = [*bases, *self.bases]

    def discard(self, bases: Sequence[int]) -> None:
        """Segments that are in place, and not part of the log."""
        for base in bases:
            self._remove_segment(base)
        self.new_names = True

    def _sum_rows(self, base: int, more: str = "") -> None:
        name = segment_name(self.directory, base, TXN_INDEX) + more
        if self.disk.exists(name):
            file = self.disk.open(name)
            data = file.read(0, file.size())
            file.close()
            if data:
                self.row_sums[base] = sum_with(NO_ROWS, data)

    def swap_in(self, bases: Sequence[int]) -> None:
        """Compacted files take the names of the first segment; the others' files stay for those who read them."""
        for suffix in SUFFIXES:
            name = segment_name(self.directory, bases[0], suffix)
            if self.disk.exists(name + CLEANED):
                self.disk.rename(name + CLEANED, name)
        self.newest.pop(bases[0], None)
        self.bases = [base for base in self.bases if base not in bases[1:]]
        self.new_names = True

    def remove_superseded(self, bases: Sequence[int]) -> None:
        """The new names are on disk before the old ones go: a power loss must not undo only the former."""
        self.disk.sync_dir(self.directory)
        for base in bases[1:]:
            self._remove_segment(base)
        self.new_names = True

    def close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_identity(disk: Disk, directory: str) -> QueueIdentity | None:
    """None: there is none, or none that can be read."""
    name = f"{directory}/{IDENTITY_FILE}"
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return None
    try:
        return QueueIdentity.unseal(file.read(0, file.size()), name)
    except (Corrupt, UnicodeDecodeError, Unreadable):
        return None
    finally:
        file.close()


def stranger_in(disk: Disk, directory: str, queue_id: int) -> str:
    """Of which other queue the identity in a queue's directory is; empty if it is its own, or cannot be read."""
    found = read_identity(disk, directory)
    return describe(found) if found is not None and found.queue_id != queue_id else ""


def describe(identity: QueueIdentity) -> str:
    return f"queue {identity.queue_id} ({identity.topic}-{identity.partition})"


def retire_directory(disk: Disk, directory: str, queue_id: int) -> str:
    """Renames first, so that a half-deleted directory is never taken for a queue; returns the name to remove."""
    parent, _, name = directory.rpartition("/")
    mark = f".{queue_id}{DELETED_SUFFIX}"
    # The name of a topic may be as long as that of a file, so it is cut; the queue id tells directories apart.
    retired = f"{parent}/{name[: NAME_BYTES_MAX - len(mark)]}{mark}"
    disk.remove_tree(retired)
    disk.rename(directory, retired)
    return retired
