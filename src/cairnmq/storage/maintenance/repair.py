"""Damaged queue logs and packs made whole again from journals that still hold the batches, by the splitter.

A queue log is a copy of journal entries, byte for byte and in the same order. So a damaged stretch is filled with what
the journal has, until the old file goes on soundly. Nothing is changed unless all of a file can be made good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cairnmq.codec.batch import CONTROL_BIT, CRC_START, HEADER_SIZE, read_header, stored_crc
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import iter_batches
from cairnmq.errors import Corrupt
from cairnmq.storage.batches.batch_run import walk
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.format import (
    BATCH,
    ENTRY_SIZE,
    IDENTITY_FILE,
    NO_SEGMENTS,
    PACK_SUFFIX,
    Entry,
    Extent,
    numbered,
    pack_name,
    txn_index_bytes,
)
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.maintenance.segment_restore import Kept, restore_segment
from cairnmq.storage.packs.pack import EXTENT_BYTES, PackReader, PackWriter
from cairnmq.storage.packs.pack_set import gaps
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.queue.tail import Tail
from cairnmq.storage.segments.index_rebuild import rebuild_indexes
from cairnmq.storage.segments.queue_log import QueueLog, stranger_in
from cairnmq.storage.segments.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_name
from cairnmq.storage.segments.txn_index import NO_ROWS, read_rows, sum_with
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_records import RepairedRecords

Ranges = Mapping[int, Sequence[tuple[int, int]]]  # queue id -> offsets, each from the first up to the second


class JournalCopies:
    """The batches that begin at some offsets of some queues, as far as journals still hold them below `limits`, or
    packs that count for nothing else.

    Only where they are is in memory, 32 bytes each: journals may hold a million of them.
    """

    def __init__(self, disk: Disk, limits: dict[int, int], wanted: Ranges, packs: Sequence[PackReader] = ()) -> None:
        self._packs = packs
        self._extent: tuple[PackReader, Extent, bytes] | None = None  # the one that was looked into last
        self._readers: dict[int, JournalReader] = {}
        self._tails: dict[int, dict[int, Tail]] = {}  # queue id -> journal -> where
        for journal, limit in limits.items() if wanted else ():
            reader = self._readers[journal] = JournalReader(disk, journal)
            for index, base in enumerate(reader.bases):
                end = min(limit, reader.bases[index + 1]) if index + 1 < len(reader.bases) else limit
                for entry in reader.entries(base, end):  # ends at damage; the next segment is as good as ever
                    if entry.kind == BATCH and any(
                        first <= entry.base_offset < last for first, last in wanted.get(entry.queue_id, ())
                    ):
                        tail = self._tails.setdefault(entry.queue_id, {}).setdefault(journal, Tail())
                        size = len(entry.payload)
                        tail.add(entry.base_offset, entry.position + ENTRY_SIZE, size, entry.max_timestamp)

    def batch(self, queue_id: int, offset: int) -> Kept | None:
        for journal, tail in self._tails.get(queue_id, {}).items():
            index = tail.find(offset)
            if index < 0 or tail.offsets[index] != offset:
                continue
            data = self._readers[journal].read(tail.positions[index], tail.sizes[index])[0]
            if len(data) == tail.sizes[index] and crc32c(data[CRC_START:]) == stored_crc(data):
                return Kept(data, read_header(data).last_offset, tail.timestamps[index])
        for pack in self._packs:
            for extent in pack.of_queue(queue_id):
                if extent.base_offset <= offset < extent.end_offset:
                    if (kept := self._batch_in(pack, extent, offset)) is not None:
                        return kept
        return None

    def _batch_in(self, pack: PackReader, extent: Extent, offset: int) -> Kept | None:
        if self._extent is None or self._extent[:2] != (pack, extent):
            self._extent = pack, extent, pack.data(extent)
        for batch in iter_batches(self._extent[2]):
            header = read_header(batch)
            if header.base_offset == offset:
                return Kept(memoryview(batch), header.last_offset, header.max_timestamp)
        return None

    def runs(self, queue_id: int, first: int, end: int) -> Iterator[list[Entry]]:
        """Batches that hold the offsets from `first` to `end`, as entries of them, a part at a time; Corrupt if any is
        missing."""
        run, size = list[Entry](), 0
        while first < end:
            kept = self.batch(queue_id, first)
            if kept is None or kept.last_offset >= end:
                raise Corrupt(f"no journal holds offset {first} of queue {queue_id} any more")
            run.append(Entry.of_stored(queue_id, kept.data, (first, kept.last_offset), kept.max_timestamp))
            first, size = kept.last_offset + 1, size + len(kept.data)
            if size >= EXTENT_BYTES:
                yield run
                run, size = [], 0
        if run:
            yield run

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        for pack in self._packs:
            pack.close()


class Repairer:
    """One splitter's. Everything here runs between its rounds; Corrupt says what cannot be made good."""

    def __init__(self, records: RepairedRecords) -> None:
        self.records = records
        self.disk = records.read_disk

    def repair(self, queue_id: int, file: str) -> bool:
        """True: it counts from the next checkpoint on, which should follow at once."""
        if file.endswith(PACK_SUFFIX):
            self.repair_pack(numbered([file.rpartition("/")[2]], PACK_SUFFIX)[0])
            return True
        if file.endswith(TXN_INDEX):
            self.repair_aborted(queue_id, file)
        elif file.endswith((INDEX, TIME_INDEX)):
            self.repair_indexes(queue_id, file)
        elif not file.endswith(IDENTITY_FILE):  # that one is written again when the log is opened
            self.repair_segment(queue_id, file)
        return False

    # -------------------------------------------------------------------------------------------------- segments

    def _segmented(self, queue_id: int) -> SplitQueue:
        queue = self.records.learn(queue_id)
        if queue is None or queue.segments_from == NO_SEGMENTS:  # opening its log would make the directory again
            raise Corrupt(f"queue {queue_id} has no segments any more")
        return queue

    def _closed(self, queue_id: int) -> tuple[SplitQueue, QueueLog]:
        """So that nothing of it is in memory alone."""
        queue = self._segmented(queue_id)
        log = queue.log or self.records.open_log(queue)
        log.flush_indexes()
        log.close_file()
        if stranger_in(self.disk, log.directory, queue_id):  # since the log was opened
            log = self.records.open_log(queue)
            log.close_file()
        return queue, log

    def repair_segment(self, queue_id: int, file: str) -> None:
        """`file` is a segment, or a directory: then what is missing at its front."""
        queue, log = self._closed(queue_id)
        if file != log.directory and not file.startswith(f"{log.directory}/"):
            raise Corrupt(f"queue {queue_id} has its records in {log.directory}")
        first = max(queue.state.log_start, queue.segments_from)
        base = next((b for b in log.bases if segment_name(log.directory, b, LOG) == file), first)
        end = min((b for b in log.bases if b > base), default=queue.state.end)
        if base < queue.compaction.rewritten_end:
            raise Corrupt(f"{file} was compacted: journals hold what it was made of, not what was left")
        copies = JournalCopies(self.records.journal_disk, self.records.progress.positions, {queue_id: [(base, end)]})
        try:
            restore_segment(
                self.disk,
                log.directory,
                base,
                end,
                queue.state,
                lambda offset: copies.batch(queue_id, offset),
                lambda file: self._complete_aborted(queue, log, base, end, file),
            )
        finally:
            copies.close()
        rebuild_indexes(self.disk, log.directory, base, queue.spec.config.index_interval_bytes)
        self.records.open_log(queue)  # it knows what the next checkpoint must sync

    def _complete_aborted(self, queue: SplitQueue, log: QueueLog, base: int, end: int, file: File) -> None:
        """A segment may get batches that were in another one before, which is lost, and with it the rows of the aborted
        transactions that end there. They are written before anybody can read the batches."""
        places = list(walk(file, 0))
        if not any(read_header(file.read(place.position, HEADER_SIZE)).attributes & CONTROL_BIT for place in places):
            return
        state = QueueState()
        self._replay(queue, state, base)
        for place in places:
            state.apply_batch(file.read(place.position, place.size), 0)
        try:
            known = read_rows(self.disk, log.directory, base, log.row_sums)
        except (Damage, Unreadable):
            known = []  # whoever reads it finds that, and it is made again
        lasts = {row.last for row in known}
        more = [row for row in state.aborted if base <= row.last < end and row.last not in lasts]
        if more:
            data = txn_index_bytes(sorted([*known, *more], key=lambda row: row.last))
            self.disk.replace(segment_name(log.directory, base, TXN_INDEX), data)
            queue.row_sums[base] = sum_with(NO_ROWS, data)
            queue.dirty = True

    def _replay(self, queue: SplitQueue, state: QueueState, end: int | None = None) -> None:
        """All that the queue holds, or that its packs and its segments before `end` do."""
        for pack, extent in self.records.pack_set.extents(queue.spec.queue_id):
            if queue.state.log_start < extent.end_offset <= queue.segments_from:
                for batch in iter_batches(pack.data(extent)):
                    state.apply_batch(batch, 0)
        for entry in self.records.stored(queue, end):
            state.apply_batch(entry.payload, 0)

    def repair_indexes(self, queue_id: int, file: str) -> None:
        """Both of a segment, from its log."""
        queue, log = self._closed(queue_id)
        base = _base_of(log, file)
        rebuild_indexes(self.disk, log.directory, base, queue.spec.config.index_interval_bytes)
        self.records.open_log(queue)  # it knows what the next checkpoint must sync

    def repair_aborted(self, queue_id: int, file: str) -> None:
        """A segment's aborted transactions, by a replay of everything that the queue holds."""
        queue = self._segmented(queue_id)
        log = queue.log or self.records.open_log(queue)
        base = _base_of(log, file)
        end = min((b for b in log.bases if b > base), default=queue.state.end)
        state = QueueState()
        self._replay(queue, state)
        data = txn_index_bytes(row for row in state.aborted if base <= row.last < end)
        self.disk.replace(file, data)
        # Not always what it was: of a transaction the replay sees what is left of it, and that is enough.
        queue.row_sums[base] = sum_with(NO_ROWS, data)
        queue.dirty = True
        self.records.open_log(queue)  # it knows what the next checkpoint must sync

    # ----------------------------------------------------------------------------------------------------- packs

    def repair_pack(self, number: int) -> None:
        """It is replaced by a new one when the next checkpoint counts."""
        records = self.records
        if number not in records.image.packs or records.has_merge:
            raise Corrupt(f"{pack_name(number)} cannot be replaced now")
        pack = records.pack_set.check(number)
        label = records.take_label()
        wanted = self._damaged_in(pack) if pack is not None else self._gaps_without(number)
        copies = JournalCopies(records.journal_disk, records.progress.positions, wanted, records.spares.open())
        writer = PackWriter(self.disk, label)
        try:
            if pack is not None:
                self._copy_extents(pack, writer, copies)
            else:
                for queue_id, ranges in wanted.items():
                    for first, end in ranges:
                        for run in copies.runs(queue_id, first, end):
                            writer.add_batches(queue_id, run)
            writer.finish()
            writer.file.sync()
        except (Corrupt, OSError):
            writer.abandon()
            records.spares.put_aside(records.progress.epoch)
            raise
        finally:
            copies.close()
        records.replace_packs([number], label.number)
        records.spares.remove()

    def _extents(self, pack: PackReader) -> Iterator[Extent]:
        """Those that somebody may ask for."""
        rows = self.records.image.queues
        for extent in pack:
            row = rows.get(extent.queue_id)
            if row is not None and extent.end_offset > row.log_start and row.needs_packs:
                yield extent

    def _damaged_in(self, pack: PackReader) -> Ranges:
        found: dict[int, list[tuple[int, int]]] = {}
        for extent in self._extents(pack):
            try:
                pack.data(extent)
            except (Corrupt, Unreadable):
                found.setdefault(extent.queue_id, []).append((extent.base_offset, extent.end_offset))
        return found

    def _copy_extents(self, pack: PackReader, writer: PackWriter, copies: JournalCopies) -> None:
        for extent in self._extents(pack):
            try:
                data = pack.data(extent)
            except (Corrupt, Unreadable):
                runs = copies.runs(extent.queue_id, extent.base_offset, extent.end_offset)
                data = b"".join(entry.payload for run in runs for entry in run)
                if len(data) != extent.size or crc32c(data) != extent.crc:
                    raise
            writer.add_extent(extent, data)

    def _gaps_without(self, number: int) -> Ranges:
        """Nobody knows what was in a pack without a table: it was what the others do not have."""
        if list(self.records.pack_set.broken) != [number]:
            raise Corrupt(f"{pack_name(number)} is not the only pack that cannot be opened")
        rows = self.records.image.queues
        found: dict[int, list[tuple[int, int]]] = {}
        for queue_id in sorted(rows):
            held = [extent for _, extent in self.records.pack_set.extents(queue_id)]
            for first, end in gaps(rows[queue_id], held):
                if first < rows[queue_id].compaction.rewritten_end:
                    raise Corrupt(f"{pack_name(number)} holds records of queue {queue_id} that were compacted")
                found.setdefault(queue_id, []).append((first, end))
        return found


def _base_of(log: QueueLog, file: str) -> int:
    suffix = file[file.rindex(".") :]
    base = next((b for b in log.bases if segment_name(log.directory, b, suffix) == file), None)
    if base is None:
        raise Corrupt(f"{file} is gone")
    return base
