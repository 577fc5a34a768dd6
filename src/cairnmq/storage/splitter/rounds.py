"""Rounds: journal bytes up to a limit, sorted by queue, into segments and one pack. Nothing here is synced."""

from __future__ import annotations

from collections.abc import Sequence

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.split_report import QueueSplit, Round
from cairnmq.storage.files.buffers import SplitBuffer
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import (
    BATCH,
    FACT,
    NO_SEGMENTS,
    Entry,
    JournalMark,
    Keyed,
    KeyedRow,
    StartMoved,
    decode_fact,
)
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.splitter.leaving import OldDirectory
from cairnmq.storage.splitter.placement import Thresholds, wants_segments
from cairnmq.storage.splitter.progress import Progress
from cairnmq.storage.splitter.split_packs import SplitPacks
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_queues import SplitQueues

READ_SLACK = 1 << 20  # a round ends with a whole entry inside the one chunk that was read
ABORTED_BYTES = 40 << 10  # what an aborted transaction in packs weighs: each is a row of every checkpoint, and memory


class Rounds:
    """One splitter's. `keyed`: facts since the last checkpoint."""

    def __init__(
        self,
        disk: Disk,
        queues: SplitQueues,
        packs: SplitPacks,
        progress: Progress,
        *,
        round_bytes: int,
        thresholds: Thresholds,
    ) -> None:
        self.disk = disk
        self.queues = queues
        self.packs = packs
        self.progress = progress
        self.round_bytes = round_bytes
        self.thresholds = thresholds
        self.split_buffer = SplitBuffer(round_bytes + READ_SLACK)
        self.keyed: dict[tuple[str, bytes], KeyedRow] = {}
        self._readers: dict[int, JournalReader] = {}

    def split(self, journal: int, limit: int, now_ms: int) -> Round | None:
        """One round towards `limit`; None when there is nothing to do."""
        start = self.progress.positions[journal]
        if start >= limit:
            return None
        entries = self._read(journal, start, limit)
        self.queues.meet(entries)
        touched: dict[int, list[Entry]] = {}
        batches = 0
        for entry in entries:
            if entry.kind != BATCH:
                self._fold(journal, entry, now_ms)
                continue
            batches += 1
            if self._fold_batch(entry, now_ms):
                run = touched.get(entry.queue_id)
                if run is None:
                    touched[entry.queue_id] = [entry]
                else:
                    run.append(entry)
        self.progress.epochs[journal] = entries[-1].epoch
        stored, pack = self._store(touched)
        reach("split-round")
        done = Round(journal, entries[-1].end, batches, stored, pack)
        self.progress.finished(done, limit)
        return done

    def _read(self, journal: int, start: int, limit: int) -> list[Entry]:
        entries: list[Entry] = []
        for entry in self._reader(journal).entries(start, limit, self.round_bytes + READ_SLACK, self.split_buffer):
            entries.append(entry)
            if entry.end - start >= self.round_bytes:
                break
        if not entries:
            raise Corrupt(
                f"journal {journal} is damaged at position {start}: bytes below the synced end {limit} do not read back"
            )
        return entries

    def replay(self, now_ms: int) -> None:
        """Folds entries up to where a predecessor had split and said so, without writing.

        The death of a process loses nothing that it wrote; only what it had not reported is cut and made again.
        """
        positions, resume = self.progress.positions, self.progress.resume
        for journal, position in resume.positions.items():
            reader = self._reader(journal)
            # all of them first: for a question about each, as it comes, the broker would be asked very often
            self.queues.meet(reader.entries(positions[journal], position))
            for entry in reader.entries(positions[journal], position):
                self._fold(journal, entry, now_ms)
                positions[journal] = entry.end
            if positions[journal] != position:
                raise Corrupt(f"journal {journal} cannot be read up to {position}, which was split before")
        for queue_id, segments_from in resume.segments_from.items():
            queue = self.queues.by_id.get(queue_id)
            if queue is not None:
                queue.segments_from = segments_from
        for queue in self.queues.by_id.values():
            if queue.segments_from != NO_SEGMENTS:  # the predecessor has written them to its segments
                queue.state.forget_aborted(queue.segments_from, queue.state.end)

    def _store(self, touched: dict[int, list[Entry]]) -> tuple[list[QueueSplit], int]:
        """Each queue's batches into its segments, those of all others into one new pack."""
        done: list[QueueSplit] = []
        packed: list[int] = []
        queues = self.queues
        # a queue whose old directory may still be read gets no new segments there
        leaving = {what.queue_id for what in queues.departures.any_of(OldDirectory)}
        for queue_id, batches in touched.items():
            queue = queues.by_id[queue_id]
            if queue.segments_from == NO_SEGMENTS:
                size = sum(len(batch.payload) for batch in batches)
                weight = queue.packed_bytes + ABORTED_BYTES * len(queue.state.aborted)
                if queue_id in leaving or not wants_segments(
                    queue.spec.config.model, size, weight, queues.segmented, self.thresholds
                ):
                    queue.packed_bytes += size
                    packed.append(queue_id)
                    continue
                queue.segments_from = batches[0].base_offset
                queue.packed_bytes = 0
                queues.segmented += 1
            done.append(self._append(queue, batches))
        if not packed:
            return done, 0
        pack = self.packs.write((queue_id, touched[queue_id]) for queue_id in sorted(packed))
        done.extend(QueueSplit(queue_id, queues.by_id[queue_id].state.end, NO_SEGMENTS, -1) for queue_id in packed)
        return done, pack

    def _append(self, queue: SplitQueue, batches: Sequence[Entry]) -> QueueSplit:
        queue_id = queue.spec.queue_id
        log = queue.log or self.queues.open_log(queue, batches[0].base_offset)
        aborted = queue.state.take_aborted(batches[0].base_offset)
        log.append(batches, aborted)
        self.queues.open_logs.hold(queue_id, log)
        sums = log.sums_from(aborted[0].last) if aborted else ()
        return QueueSplit(queue_id, queue.state.end, queue.segments_from, log.bases[-1], sums)

    def _reader(self, journal: int) -> JournalReader:
        """Looks at the names for every round: a write that failed may have left a file that is longer than its part,
        and then only the next one's name tells where that part ends."""
        reader = self._readers.get(journal)
        if reader is None:
            reader = self._readers[journal] = JournalReader(self.disk, journal)
        else:
            reader.refresh()
        return reader

    def _fold(self, journal: int, entry: Entry, now_ms: int) -> None:
        self.progress.epochs[journal] = entry.epoch
        if entry.kind == BATCH:
            self._fold_batch(entry, now_ms)
        elif entry.kind == FACT:
            fact = decode_fact(entry.payload)
            if isinstance(fact, Keyed):
                row = KeyedRow(entry.queue_id, fact.space, fact.key, fact.value)
                self.keyed[fact.space, fact.key] = row
            elif isinstance(fact, StartMoved):
                queue = self.queues.by_id.get(entry.queue_id)
                if queue is not None:
                    queue.state.move_start(fact.offset)
                    queue.dirty = True

    def _fold_batch(self, entry: Entry, now_ms: int) -> bool:
        """False: the queue is deleted."""
        queue = self.queues.by_id.get(entry.queue_id)
        if queue is None:
            return False
        queue.state.follow(entry, queue.spec.topic, queue.spec.partition, now_ms)
        queue.dirty = True
        return True

    def marks(self, old: dict[int, JournalMark]) -> list[JournalMark]:
        """What a checkpoint says of the journals; `old`: what the last one said."""
        marks = []
        for journal in self.progress.positions:
            reader, before = self._readers.get(journal), old.get(journal)
            seed = reader.find_seed() if reader is not None else before.seed if before is not None else 0
            marks.append(self.progress.mark(journal, before, seed))
        return marks

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
