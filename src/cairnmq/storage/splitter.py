"""The splitter: journal bytes, sorted by queue, into queue logs; then the checkpoint that makes it count.

Order is the whole argument: nothing is split before it is synced in the journal; nothing is checkpointed before it is
synced on the read disk; nothing is deleted before a checkpoint says that it may be. So after a crash everything behind
the checkpoint can be thrown away and split again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.checkpoint import CheckpointImage, CheckpointLog
from cairnmq.storage.disk import Disk, File
from cairnmq.storage.doubt import doubt_name, noting_doubt
from cairnmq.storage.fault_point import reach
from cairnmq.storage.format import (
    BATCH,
    FACT,
    QUEUES,
    CheckpointRows,
    Entry,
    JournalMark,
    Keyed,
    StartMoved,
    decode_fact,
)
from cairnmq.storage.journal import JournalReader
from cairnmq.storage.producers import live
from cairnmq.storage.queue_log import QueueLog, QueueSpec, read_identity, retire_directory
from cairnmq.storage.queue_segment import LOG, TIME_INDEX, segment_name, time_hint, walk
from cairnmq.storage.queue_state import QueueState
from cairnmq.storage.retention import SegmentAge, new_start

ROUND_BYTES = 16 << 20
READ_SLACK = 1 << 20  # a round ends with a whole entry inside the one chunk that was read
OPEN_LOGS_MAX = 4000
SPOILED = "a sync of the read disk failed; restart the broker once the disk works"

Resolve = Callable[[list[int]], list[QueueSpec]]  # specs of those ids that exist; the others are deleted queues


class QueueSplit(Struct, frozen=True, gc=False, array_like=True):
    """What a round did to one queue: offsets below `end` are in its queue log."""

    queue_id: int
    end: int
    last_segment: int


class Round(Struct, frozen=True, array_like=True):
    """The result of one round over one journal."""

    journal: int
    position: int
    batches: int
    queues: list[QueueSplit]


class StartProposal(Struct, frozen=True, gc=False, array_like=True):
    """Retention wants the log start here; the broker decides, by writing the fact."""

    queue_id: int
    offset: int


class _Queue:
    """A queue the splitter has met since it started."""

    __slots__ = ("spec", "state", "log", "dirty", "checkpointed_start")

    def __init__(self, spec: QueueSpec, state: QueueState) -> None:
        self.spec = spec
        self.state = state
        self.log: QueueLog | None = None
        self.dirty = False
        self.checkpointed_start = state.log_start


class Splitter:
    """Synchronous; one owner. A successor of a splitter that died alone calls `replay` first."""

    def __init__(
        self,
        journal_disk: Disk,
        read_disk: Disk,
        image: CheckpointImage,
        resolve: Resolve,
        *,
        journals: Iterable[int],
        round_bytes: int = ROUND_BYTES,
        producer_expiration_ms: int = 86_400_000,
    ) -> None:
        self.journal_disk = journal_disk
        self.read_disk = read_disk
        self.checkpoints = CheckpointLog(read_disk, image)
        self.resolve = resolve
        self.round_bytes = round_bytes
        self.producer_expiration_ms = producer_expiration_ms
        self.positions = {number: mark.split for number, mark in image.marks.items()}
        for number in journals:
            self.positions.setdefault(number, 0)
        self.checkpointed = dict(self.positions)
        self.readers: dict[int, JournalReader] = {}
        self._queues: dict[int, _Queue] = {}
        self._gone: set[int] = set()  # deleted queues; their entries are skipped
        self._forgotten: list[int] = []  # deleted since the last checkpoint
        self._keyed: dict[tuple[str, bytes], bytes | None] = {}
        self._watermarks: dict[int, int] = {}
        self._epochs = {number: mark.epoch for number, mark in image.marks.items()}
        self._open_logs: dict[int, QueueLog] = {}
        self._retired: list[str] = []
        # why nothing may be split or checkpointed before the broker starts again
        self.spoiled = SPOILED if read_disk.exists(doubt_name("")) else None

    # -------------------------------------------------------------------------------------------------- rounds

    def replay(self, journal: int, position: int, now_ms: int) -> None:
        """Folds entries up to `position` without writing: a predecessor put them into the queue logs and said so.

        The death of a process loses nothing that it wrote; only what it had not reported is cut and made again.
        """
        reader = self._reader(journal)
        for entry in reader.entries(self.positions[journal], position):
            self._meet([entry])
            self._fold(journal, entry, now_ms)
            self.positions[journal] = entry.end
        if self.positions[journal] != position:
            raise Corrupt(f"journal {journal} cannot be read up to {position}, which was split before")
        for queue in self._queues.values():
            if queue.dirty and queue.log is None:
                self._open_log(queue, queue.state.end)  # so that the next checkpoint syncs what the predecessor wrote

    def split(self, journal: int, limit: int, now_ms: int) -> Round | None:
        """One round towards `limit` = min(high watermark, synced end). None when there is nothing to do."""
        self._refuse_if_spoiled()
        start = self.positions[journal]
        if start >= limit:
            return None
        reader = self._reader(journal)
        entries: list[Entry] = []
        position = start
        for entry in reader.entries(start, limit, chunk_bytes=self.round_bytes + READ_SLACK):
            entries.append(entry)
            position = entry.end
            if position - start >= self.round_bytes:
                break
        if not entries:
            raise Corrupt(
                f"journal {journal} is damaged at position {start}: bytes below the synced end {limit} do not read back"
            )
        self._meet(entries)
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
        self._epochs[journal] = entries[-1].epoch
        done = [self._append(queue_id, batches) for queue_id, batches in touched.items()]
        reach("split-round")
        self.positions[journal] = position
        self._watermarks[journal] = max(limit, position)
        self._limit_open_logs()
        return Round(journal, position, batches, done)

    def _reader(self, journal: int) -> JournalReader:
        reader = self.readers.get(journal)
        if reader is None:
            reader = self.readers[journal] = JournalReader(self.journal_disk, journal)
        position = self.positions[journal]
        if not reader.bases or position >= reader.end():
            reader.refresh()
        return reader

    def _meet(self, entries: Iterable[Entry]) -> None:
        """Asks for the specs of queues not met before; an id nobody knows is a deleted queue."""
        unknown = {e.queue_id for e in entries if e.queue_id and e.queue_id not in self._queues} - self._gone
        if unknown:
            self._learn(sorted(unknown))

    def _learn(self, queue_ids: list[int]) -> None:
        found = {spec.queue_id: spec for spec in self.resolve(queue_ids)}
        for queue_id in queue_ids:
            spec = found.get(queue_id)
            if spec is None:
                self._gone.add(queue_id)
                if queue_id in self.checkpoints.image.queues:
                    self._forgotten.append(queue_id)
                continue
            row = self.checkpoints.image.queues.get(queue_id)
            self._queues[queue_id] = _Queue(spec, QueueState.from_row(row) if row is not None else QueueState())

    def _fold(self, journal: int, entry: Entry, now_ms: int) -> None:
        self._epochs[journal] = entry.epoch
        if entry.kind == BATCH:
            self._fold_batch(entry, now_ms)
        elif entry.kind == FACT:
            fact = decode_fact(entry.payload)
            if isinstance(fact, Keyed):
                self._keyed[fact.space, fact.key] = fact.value
            elif isinstance(fact, StartMoved):
                queue = self._queues.get(entry.queue_id)
                if queue is not None:
                    queue.state.move_start(fact.offset)
                    queue.dirty = True

    def _fold_batch(self, entry: Entry, now_ms: int) -> bool:
        """False: the queue is deleted."""
        queue = self._queues.get(entry.queue_id)
        if queue is None:
            return False
        state, base = queue.state, entry.base_offset
        if base != state.end:
            raise Corrupt(
                f"journal position {entry.position}: queue {entry.queue_id} "
                f"({queue.spec.topic}-{queue.spec.partition}) goes on at offset {base} instead of {state.end}"
            )
        state.apply(
            base,
            entry.last_offset,
            entry.leader_epoch,
            entry.producer_id,
            entry.producer_epoch,
            entry.base_sequence,
            entry.count,
            now_ms,
        )
        queue.dirty = True
        return True

    def _open_log(self, queue: _Queue, offset: int) -> QueueLog:
        """Cuts what lies at `offset` and behind, and removes what a crash left below the checkpointed log start."""
        self.checkpoints.settle()
        row = self.checkpoints.image.queues.get(queue.spec.queue_id)
        log = QueueLog(self.read_disk, queue.spec)
        log.open_at(offset, (row.log_start, row.end) if row is not None else (0, 0))
        queue.log = log
        if row is not None:
            log.remove_below(row.log_start)
            if log.bases and row.log_start >= max(row.end, offset):
                log.remove_last()
        return log

    def _append(self, queue_id: int, batches: list[Entry]) -> QueueSplit:
        queue = self._queues[queue_id]
        log = queue.log or self._open_log(queue, batches[0].base_offset)
        log.append(batches)
        self._open_logs.pop(queue_id, None)
        self._open_logs[queue_id] = log
        return QueueSplit(queue_id, queue.state.end, log.bases[-1])

    def _refuse_if_spoiled(self) -> None:
        if self.spoiled is not None:
            raise Fault(self.spoiled)

    def _limit_open_logs(self) -> None:
        while len(self._open_logs) > OPEN_LOGS_MAX:
            queue_id = next(iter(self._open_logs))
            self._open_logs.pop(queue_id).close_file()

    # ---------------------------------------------------------------------------------------------- checkpoints

    def checkpoint(self, now_ms: int, *, clean: bool = False) -> dict[int, int]:
        """Syncs the read disk, then publishes; returns the checkpointed position of each journal."""
        dirty = [queue for queue in self._queues.values() if queue.dirty]
        files: list[File] = []
        directories: dict[str, None] = {}
        for queue in dirty:
            if queue.log is not None:
                more, names = queue.log.sync_parts()
                files.extend(more)
                directories.update(dict.fromkeys(names))
        self._refuse_if_spoiled()
        reach("checkpoint-sync")
        try:
            with noting_doubt(self.read_disk, ""):
                self.read_disk.sync_files(files, list(directories))
        except OSError as error:
            # What was split since the last checkpoint may be gone although it reads well. A later sync would not tell;
            # the next start cuts it and splits it again.
            self.spoiled = f"{SPOILED} ({error})"
            raise
        for queue in dirty:
            queue.state.producers = live(queue.state.producers, now_ms, self.producer_expiration_ms)
        rows = CheckpointRows(
            queues=[queue.state.to_row(queue.spec.queue_id) for queue in dirty],
            gone=self._forgotten,
            keyed=[Keyed(space, key, value) for (space, key), value in self._keyed.items()],
            marks=[self._mark(number) for number in self.positions],
            time_ms=now_ms,
            clean=clean,
        )
        reach("checkpoint-publish")
        self.checkpoints.publish(rows)
        for queue in dirty:
            queue.dirty = False
            if queue.log is not None:
                queue.log.synced()
        self._keyed.clear()
        self._forgotten = []
        self.checkpointed = dict(self.positions)
        self._delete_below_start(dirty)
        for directory in self._retired:
            self.read_disk.remove_tree(directory)
        self._retired.clear()
        return self.checkpointed

    def _mark(self, journal: int) -> JournalMark:
        reader = self.readers.get(journal)
        old = self.checkpoints.image.marks.get(journal)
        seed = reader.find_seed() if reader is not None else old.seed if old is not None else 0
        position = self.positions[journal]
        watermark = max(self._watermarks.get(journal, 0), position)
        return JournalMark(journal, position, watermark, self._epochs.get(journal, 0), seed)

    @property
    def uncheckpointed(self) -> bool:
        return self.positions != self.checkpointed or bool(self._forgotten)

    # ------------------------------------------------------------------------------------ retention and deletion

    def _delete_below_start(self, queues: Iterable[_Queue]) -> None:
        """Files go only now: the checkpoint that was just published holds the moved log starts."""
        for queue in queues:
            if queue.state.log_start <= queue.checkpointed_start:
                continue
            queue.checkpointed_start = queue.state.log_start
            log = queue.log or self._open_log(queue, queue.state.end)
            reach("retention-delete")
            log.remove_below(queue.state.log_start)
            if log.bases and queue.state.log_start >= queue.state.end:
                log.remove_last()

    def propose_starts(self, now_ms: int) -> list[StartProposal]:
        """Looks at every queue directory and says which log starts retention would move."""
        proposals = []
        for name in self.read_disk.list(QUEUES):
            directory = f"{QUEUES}/{name}"
            if name.endswith("-deleted"):
                self.read_disk.remove_tree(directory)
                continue
            try:
                identity = read_identity(self.read_disk, directory)
            except Corrupt:
                continue  # torn by a crash before its first checkpoint: whoever claims the directory retires it
            if identity is None:
                continue
            if identity.queue_id not in self._queues and identity.queue_id not in self._gone:
                self._learn([identity.queue_id])
            queue = self._queues.get(identity.queue_id)
            if queue is None:
                self.drop([(identity.queue_id, directory)])
                continue
            proposal = self._propose(queue, now_ms)
            if proposal is not None:
                proposals.append(proposal)
        return proposals

    def _propose(self, queue: _Queue, now_ms: int) -> StartProposal | None:
        config = queue.spec.config
        if config.retention_ms < 0 and config.retention_bytes < 0:
            return None
        log = queue.log or self._open_log(queue, queue.state.end)
        log.flush_indexes()
        segments = [self._age(log, index, queue.state.end) for index in range(len(log.bases))]
        start = min(new_start(segments, config.retention_ms, config.retention_bytes, now_ms), queue.state.end)
        return StartProposal(queue.spec.queue_id, start) if start > queue.state.log_start else None

    def _age(self, log: QueueLog, index: int, end: int) -> SegmentAge:
        base = log.bases[index]
        last = index + 1 == len(log.bases)
        file = self.read_disk.open(segment_name(log.directory, base, LOG))
        size = file.size()
        _, newest = time_hint(self.read_disk, log.directory, base, 0)
        if last or not self.read_disk.exists(segment_name(log.directory, base, TIME_INDEX)):
            newest = max(newest, log.max_timestamp if last else -1)
        if newest < 0:
            newest = max((place.max_timestamp for place in walk(file, 0)), default=-1)
        file.close()
        return SegmentAge(base, end if last else log.bases[index + 1], size, newest)

    def drop(self, queues: Iterable[tuple[int, str]]) -> None:
        """Topic deletion, (queue id, directory) each: directories are renamed now, removed after a checkpoint."""
        for queue_id, directory in queues:
            self._gone.add(queue_id)
            queue = self._queues.pop(queue_id, None)
            if queue_id in self.checkpoints.image.queues:
                self._forgotten.append(queue_id)
            if queue is not None and queue.log is not None:
                queue.log.close_file()
            self._open_logs.pop(queue_id, None)
            try:
                identity = read_identity(self.read_disk, directory)
            except Corrupt:
                continue  # whoever claims the directory next retires it
            if identity is not None and identity.queue_id == queue_id:
                self._retired.append(retire_directory(self.read_disk, directory, queue_id))

    def configure(self, spec: QueueSpec) -> None:
        queue = self._queues.get(spec.queue_id)
        if queue is not None:
            queue.spec = spec
            if queue.log is not None:
                queue.log.spec = spec

    def close(self) -> None:
        for queue in self._queues.values():
            if queue.log is not None:
                queue.log.close_file()
        for reader in self.readers.values():
            reader.close()
        self.checkpoints.close()
