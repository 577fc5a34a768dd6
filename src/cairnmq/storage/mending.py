"""Damaged queue logs and packs made whole again from journals that still hold the batches, by the splitter.

A queue log is a copy of journal entries, byte for byte and in the same order. So a damaged stretch is filled with what
the journal has, until the old file goes on soundly. Nothing is changed unless all of a file can be made good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from cairnmq.codec.batch import CRC_START, stored_crc
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import iter_batches
from cairnmq.errors import Corrupt
from cairnmq.storage.disk import Disk, Unreadable
from cairnmq.storage.format import (
    BATCH,
    ENTRY_SIZE,
    IDENTITY_FILE,
    NO_SEGMENTS,
    PACK_SUFFIX,
    Entry,
    Extent,
    QueueRow,
    numbered,
    pack_name,
    txn_index_bytes,
)
from cairnmq.storage.journal import JournalReader
from cairnmq.storage.pack import PackReader, PackWriter
from cairnmq.storage.pack_check import are_read, packed_end
from cairnmq.storage.queue_log import QueueLog
from cairnmq.storage.queue_segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_name
from cairnmq.storage.queue_state import QueueState
from cairnmq.storage.repair import Kept, rebuild_indexes, restore_segment
from cairnmq.storage.split_queue import SplitQueue
from cairnmq.storage.splitter import Splitter
from cairnmq.storage.txn_index import NO_ROWS, sum_with


class _Copy(Struct, frozen=True, gc=False):
    """Where a journal holds a batch."""

    journal: int
    position: int
    size: int
    last_offset: int
    max_timestamp: int


class JournalCopies:
    """The batches of some queues that journals still hold below `limits`, by queue id and base offset."""

    def __init__(self, disk: Disk, limits: dict[int, int], queue_ids: Iterable[int] | None) -> None:
        """`queue_ids`: None for all."""
        self._readers: dict[int, JournalReader] = {}
        self._copies: dict[tuple[int, int], _Copy] = {}
        wanted = None if queue_ids is None else set(queue_ids)
        for journal, limit in limits.items():
            reader = self._readers[journal] = JournalReader(disk, journal)
            for index, base in enumerate(reader.bases):
                end = min(limit, reader.bases[index + 1]) if index + 1 < len(reader.bases) else limit
                for entry in reader.entries(base, end):  # ends at damage; the next segment is as good as ever
                    if entry.kind == BATCH and (wanted is None or entry.queue_id in wanted):
                        self._copies[entry.queue_id, entry.base_offset] = _Copy(
                            journal,
                            entry.position + ENTRY_SIZE,
                            len(entry.payload),
                            entry.last_offset,
                            entry.max_timestamp,
                        )

    def batch(self, queue_id: int, offset: int) -> Kept | None:
        copy = self._copies.get((queue_id, offset))
        if copy is None:
            return None
        data = self._readers[copy.journal].read(copy.position, copy.size)[0]
        if len(data) != copy.size or crc32c(data[CRC_START:]) != stored_crc(data):
            return None
        return Kept(data, copy.last_offset, copy.max_timestamp)

    def run(self, queue_id: int, first: int, end: int) -> list[Entry]:
        """Batches that hold the offsets from `first` to `end`, as entries of them; Corrupt if any is missing."""
        entries: list[Entry] = []
        while first < end:
            kept = self.batch(queue_id, first)
            if kept is None or kept.last_offset >= end:
                raise Corrupt(f"no journal holds offset {first} of queue {queue_id} any more")
            entries.append(
                Entry(0, 0, BATCH, 0, queue_id, 0, kept.data, first, kept.last_offset, max_timestamp=kept.max_timestamp)
            )
            first = kept.last_offset + 1
        return entries

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


class Mender:
    """One splitter's. Everything here runs between its rounds; Corrupt says what cannot be made good."""

    def __init__(self, splitter: Splitter) -> None:
        self.splitter = splitter
        self.disk = splitter.read_disk

    def mend(self, queue_id: int, file: str) -> bool:
        """True: it counts from the next checkpoint on, which should follow at once."""
        if file.endswith(PACK_SUFFIX):
            self.mend_pack(numbered([file.rpartition("/")[2]], PACK_SUFFIX)[0])
            return True
        if file.endswith(TXN_INDEX):
            self.mend_aborted(queue_id, file)
        elif file.endswith((INDEX, TIME_INDEX)):
            self.mend_indexes(queue_id, file)
        elif not file.endswith(IDENTITY_FILE):  # that one is written again when the log is opened
            self.mend_segment(queue_id, file)
        return False

    # -------------------------------------------------------------------------------------------------- segments

    def _segmented(self, queue_id: int) -> SplitQueue:
        queue = self.splitter.learn(queue_id)
        if queue is None or queue.segments_from == NO_SEGMENTS:  # opening its log would make the directory again
            raise Corrupt(f"queue {queue_id} has no segments any more")
        return queue

    def _closed(self, queue_id: int) -> tuple[SplitQueue, QueueLog]:
        """So that nothing of it is in memory alone."""
        queue = self._segmented(queue_id)
        log = queue.log or self.splitter.open_log(queue, queue.state.end)
        log.flush_indexes()
        log.close_file()
        return queue, log

    def mend_segment(self, queue_id: int, file: str) -> None:
        """`file` is a segment, or a directory: then what is missing at its front."""
        queue, log = self._closed(queue_id)
        first = max(queue.state.log_start, queue.segments_from)
        base = next((b for b in log.bases if segment_name(log.directory, b, LOG) == file), first)
        end = min((b for b in log.bases if b > base), default=queue.state.end)
        if base < queue.compaction.rewritten_end:
            raise Corrupt(f"{file} was compacted: journals hold what it was made of, not what was left")
        copies = JournalCopies(self.splitter.journal_disk, self.splitter.positions, [queue_id])
        try:
            restore_segment(
                self.disk, log.directory, base, end, queue.state, lambda offset: copies.batch(queue_id, offset)
            )
        finally:
            copies.close()
        rebuild_indexes(self.disk, log.directory, base, queue.spec.config.index_interval_bytes)
        self.splitter.open_log(queue, queue.state.end)  # it knows what the next checkpoint must sync

    def mend_indexes(self, queue_id: int, file: str) -> None:
        """Both of a segment, from its log."""
        queue, log = self._closed(queue_id)
        base = _base_of(log, file)
        rebuild_indexes(self.disk, log.directory, base, queue.spec.config.index_interval_bytes)
        self.splitter.open_log(queue, queue.state.end)  # it knows what the next checkpoint must sync

    def mend_aborted(self, queue_id: int, file: str) -> None:
        """A segment's aborted transactions, by a replay of everything that the queue holds."""
        queue = self._segmented(queue_id)
        log = queue.log or self.splitter.open_log(queue, queue.state.end)
        base = _base_of(log, file)
        end = min((b for b in log.bases if b > base), default=queue.state.end)
        state = QueueState()
        for pack, extent in self.splitter.shelf.extents(queue_id):
            if queue.state.log_start < extent.end_offset <= queue.segments_from:
                for batch in iter_batches(pack.data(extent)):
                    state.apply_batch(batch, 0)
        for entry in self.splitter.stored(queue):
            state.apply_batch(entry.payload, 0)
        data = txn_index_bytes(row for row in state.aborted if base <= row.last < end)
        self.disk.replace(file, data)
        # Not always what it was: of a transaction the replay sees what is left of it, and that is enough.
        queue.row_sums[base] = sum_with(NO_ROWS, data)
        queue.dirty = True
        self.splitter.open_log(queue, queue.state.end)  # it knows what the next checkpoint must sync

    # ----------------------------------------------------------------------------------------------------- packs

    def mend_pack(self, number: int) -> None:
        """It is replaced by a new one when the next checkpoint counts."""
        splitter = self.splitter
        if number not in splitter.checkpoints.image.packs or splitter.has_merge:
            raise Corrupt(f"{pack_name(number)} cannot be replaced now")
        pack = splitter.shelf.check(number)
        new = splitter.take_pack_number()
        copies = JournalCopies(splitter.journal_disk, splitter.positions, None)
        writer = PackWriter(self.disk, new)
        try:
            if pack is not None:
                self._copy_extents(pack, writer, copies)
            else:
                self._fill_gaps(number, writer, copies)
            writer.finish()
            writer.file.sync()
        except (Corrupt, OSError):
            writer.abandon()
            raise
        finally:
            copies.close()
        splitter.replaced([number], new)

    def _copy_extents(self, pack: PackReader, writer: PackWriter, copies: JournalCopies) -> None:
        for extent in pack:
            row = self.splitter.checkpoints.image.queues.get(extent.queue_id)
            if row is None or extent.end_offset <= row.log_start or not are_read(row):
                continue
            try:
                data = pack.data(extent)
            except (Corrupt, Unreadable):
                run = copies.run(extent.queue_id, extent.base_offset, extent.end_offset)
                data = b"".join(entry.payload for entry in run)
                if len(data) != extent.size or crc32c(data) != extent.crc:
                    raise
            writer.add_extent(extent, data)

    def _fill_gaps(self, number: int, writer: PackWriter, copies: JournalCopies) -> None:
        """Nobody knows what was in a pack without a table: it was what the others do not have."""
        if list(self.splitter.shelf.broken) != [number]:
            raise Corrupt(f"{pack_name(number)} is not the only pack that cannot be opened")
        rows = self.splitter.checkpoints.image.queues
        for queue_id in sorted(rows):
            held = [extent for _, extent in self.splitter.shelf.extents(queue_id)]
            for first, end in gaps(rows[queue_id], held):
                if first < rows[queue_id].compaction.rewritten_end:
                    raise Corrupt(f"{pack_name(number)} holds records of queue {queue_id} that were compacted")
                run = copies.run(queue_id, first, end)
                writer.add_batches(queue_id, run)


def _base_of(log: QueueLog, file: str) -> int:
    suffix = file[file.rindex(".") :]
    base = next((b for b in log.bases if segment_name(log.directory, b, suffix) == file), None)
    if base is None:
        raise Corrupt(f"{file} is gone")
    return base


def gaps(row: QueueRow, held: list[Extent]) -> Iterator[tuple[int, int]]:
    """Ranges of offsets that packs must hold by the row, and these extents (in offset order) do not."""
    expected, end = row.log_start, packed_end(row)
    for extent in held:
        if expected >= end:
            return
        if extent.base_offset > expected:
            yield expected, min(extent.base_offset, end)
        expected = max(expected, extent.end_offset)
    if expected < end:
        yield expected, end
