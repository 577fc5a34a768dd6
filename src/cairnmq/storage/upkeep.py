"""What the splitter does to records that are split and checkpointed: retention's proposals, merges, demotions.

Nothing here is urgent, and nothing here counts before a checkpoint says so. It looks at every queue that has records,
but keeps none of them in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from cairnmq.errors import Corrupt, Fault
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.compaction import Compactor
from cairnmq.storage.disk import Unreadable
from cairnmq.storage.format import DELETED_SUFFIX, EXTENT, NO_SEGMENTS, QUEUES, Aborted, QueueRow
from cairnmq.storage.model import wants_packs
from cairnmq.storage.pack import PackReader
from cairnmq.storage.pack_check import are_read, packed_end
from cairnmq.storage.pack_compaction import DirtyQueue, ExtentCleaning, dirty_queue, packs_to_compact
from cairnmq.storage.pack_merge import MERGED_BYTES_MAX, MergeJob, PackSize, plan
from cairnmq.storage.pack_shelf import merged
from cairnmq.storage.queue_log import QueueLog, QueueSpec, read_identity
from cairnmq.storage.queue_segment import LOG, newest_time, segment_name, time_hint, walk
from cairnmq.storage.repair import indexes_lie, rebuild_indexes
from cairnmq.storage.retention import SegmentAge, new_start
from cairnmq.storage.split_queue import SplitQueue
from cairnmq.storage.splitter import Splitter

STEP_BYTES = 8 << 20
RESOLVE_QUEUES = 1000
DEMOTE_QUEUES = 256  # at a time, so that the checkpoint that must follow stays short


class StartProposal(Struct, frozen=True, gc=False, array_like=True):
    """Retention wants the log start here; the broker decides, by writing the fact."""

    queue_id: int
    offset: int


class Upkeep:
    """One splitter's. `look` now and then, `step` while it says there is more to do."""

    def __init__(self, splitter: Splitter, fanout: int | None = None, seed: bytes = bytes(16)) -> None:
        """`seed`: 16 random bytes for the hashes of keys."""
        self.splitter = splitter
        self.disk = splitter.read_disk
        self.fanout = fanout
        self.merged_bytes = 0
        self._job: MergeJob | None = None
        self._dead: dict[int, int] = {}  # pack -> bytes that nobody can ask for any more, as of the last look
        self._damaged: set[int] = set()  # packs that cannot be merged
        self._demotable: list[SplitQueue] = []
        self._indexed: set[str] = set()  # closed segments whose indexes were looked at
        self.compactor = Compactor(splitter, seed)
        self._packed: dict[int, LogConfig] = {}  # compacted queues in packs, as of the last look
        self._dirty: list[DirtyQueue] = []  # those of them that are due
        self._looked_at_ms = 0

    # ------------------------------------------------------------------------------------------------ retention

    def look(self, now_ms: int) -> list[StartProposal]:
        """Looks at every queue that has records: which log starts would retention move, what could be demoted?"""
        self.compactor.ungatherable.clear()
        proposals = [*self._look_at_directories(now_ms), *self._look_at_packs(now_ms)]
        return [proposal for proposal in proposals if proposal is not None]

    def _look_at_directories(self, now_ms: int) -> Iterator[StartProposal | None]:
        self._demotable = []
        for name in self.disk.list(QUEUES):
            directory = f"{QUEUES}/{name}"
            if name.endswith(DELETED_SUFFIX):
                self.disk.remove_tree(directory)
                continue
            identity = read_identity(self.disk, directory)
            if identity is None:
                self._claim(directory)
                continue
            queue = self.splitter.learn(identity.queue_id)
            if queue is None:
                self.splitter.drop([(identity.queue_id, directory)])
            elif queue.segments_from == NO_SEGMENTS:
                self.splitter.leave(queue)
            else:
                try:
                    yield self._look_at_segments(queue, now_ms)
                except Unreadable as error:  # nothing of it is deleted then; the others have their look
                    self.splitter.note_damage(queue.spec, error)

    def _claim(self, directory: str) -> None:
        """A directory that does not say whose it is. If the checkpoint knows, it is damaged, and opening the log writes
        it again; else a crash tore it before its first checkpoint, and whoever claims the directory retires it."""
        rows = self.splitter.checkpoints.image.queues.values()
        owners = (row.queue_id for row in rows if max(row.log_start, packed_end(row)) < row.end)
        while some := list(islice(owners, RESOLVE_QUEUES)):
            for spec in self.splitter.resolve(some):
                queue = self.splitter.learn(spec.queue_id) if spec.directory == directory else None
                if queue is not None:
                    if queue.log is not None:
                        queue.log.flush_indexes()
                        queue.log.close_file()
                    self.splitter.open_log(queue, queue.state.end)

    def _look_at_segments(self, queue: SplitQueue, now_ms: int) -> StartProposal | None:
        log = queue.log or self.splitter.open_log(queue, queue.state.end)
        log.flush_indexes()
        self._mend_indexes(log)
        segments = [self._age(log, index, queue.state.end) for index in range(len(log.bases))]
        is_idle, queue.idle_end = queue.idle_end == queue.state.end, queue.state.end
        size = sum(segment.size for segment in segments)
        if (
            is_idle
            and not queue.dirty
            and not self.compactor.is_busy_with(queue)
            and wants_packs(queue.spec.config.model, size, self.splitter.segmented, self.splitter.thresholds)
        ):
            self._demotable.append(queue)
        self.compactor.consider(queue, segments, now_ms)
        if queue.state.log_start < queue.segments_from:
            packed = (extent for _, extent in self.splitter.shelf.extents(queue.spec.queue_id))
            older = [SegmentAge(e.base_offset, e.end_offset, e.size, e.max_timestamp) for e in packed]
            segments = [*older, *segments]
        return _propose(queue.spec, segments, queue.state.log_start, queue.state.end, now_ms)

    def _mend_indexes(self, log: QueueLog) -> None:
        """Of each closed segment once, the first time that it is seen."""
        interval = log.spec.config.index_interval_bytes
        for base in log.bases[:-1]:
            name = segment_name(log.directory, base, LOG)
            if name not in self._indexed:
                self._indexed.add(name)
                if indexes_lie(self.disk, log.directory, base, interval, closed=True):
                    with suppress(Corrupt):  # the log's own damage is its readers' business
                        rebuild_indexes(self.disk, log.directory, base, interval)

    def _age(self, log: QueueLog, index: int, end: int) -> SegmentAge:
        base = log.bases[index]
        last = index + 1 == len(log.bases)
        file = self.disk.open(segment_name(log.directory, base, LOG))
        size = file.size()
        segment_end = end if last else log.bases[index + 1]
        try:
            # no index is believed here: a flipped bit in one must not delete records
            newest = newest_time(self.disk, log.directory, base, file, segment_end)
        except Corrupt:
            # the later of what both say: rather kept too long than deleted too early
            newest = max((place.max_timestamp for place in walk(file, 0)), default=-1)
            newest = max(newest, time_hint(self.disk, log.directory, base, 0)[1])
        finally:
            file.close()
        return SegmentAge(base, segment_end, size, newest)

    def _look_at_packs(self, now_ms: int) -> Iterator[StartProposal | None]:
        """Also counts what is dead in each pack. A queue with segments of its own has had its look."""
        image = self.splitter.checkpoints.image
        packs = [pack for pack in self.splitter.shelf.packs if pack.number in image.packs]
        places = {pack.number: image.packs.index(pack.number) for pack in packs}
        self._packed, self._dirty, self._looked_at_ms = {}, [], now_ms
        dead = dict.fromkeys((pack.number for pack in packs), 0)
        rows = merged(packs)
        while some := list(islice(rows, RESOLVE_QUEUES)):
            specs = {spec.queue_id: spec for spec in self.splitter.resolve([queue_id for queue_id, _ in some])}
            for queue_id, extents in some:
                spec, row = specs.get(queue_id), image.queues.get(queue_id)
                if spec is None and row is not None:
                    self.splitter.drop([(queue_id, "")])
                start = row.log_start if row is not None and spec is not None and are_read(row) else None
                for pack, extent in extents:
                    if start is None or extent.end_offset <= start:
                        dead[pack.number] += extent.size + EXTENT.size  # its row in the table goes too
                if spec is not None and row is not None and row.segments_from == NO_SEGMENTS:
                    ages = [
                        SegmentAge(extent.base_offset, extent.end_offset, extent.size, extent.max_timestamp)
                        for _, extent in extents
                        if extent.end_offset > row.log_start
                    ]
                    yield _propose(spec, ages, row.log_start, row.end, now_ms)
                if spec is not None and row is not None and spec.config.compact and row.log_start < packed_end(row):
                    self._packed[queue_id] = spec.config
                    alive = [(places[pack.number], e) for pack, e in extents if e.end_offset > row.log_start]
                    found = dirty_queue(row, spec.config, alive, now_ms)
                    if found is not None and not self.compactor.has_failed(queue_id, now_ms):
                        self._dirty.append(found)
        self._dead = dead

    # ----------------------------------------------------------------------------------------------- compaction

    def compact(self, now_ms: int) -> bool:
        """A slice of compaction; True if there is more to do. What is done counts after the next checkpoint."""
        for queue_id in self.compactor.take_looks(now_ms):
            if queue_id in self.splitter.queues:
                self.splitter.queues[queue_id].considered = None
                self.splitter.written.add(queue_id)
        for queue_id in self.splitter.written:
            queue = self.splitter.queues.get(queue_id)
            row = self.splitter.checkpoints.image.queues.get(queue_id)
            if queue is not None and row is not None and queue.spec.config.compact:
                try:
                    self._consider(queue, row, now_ms)
                except Unreadable as error:
                    self.splitter.note_damage(queue.spec, error)
        self.splitter.written.clear()
        return self.compactor.step(now_ms)

    def _consider(self, queue: SplitQueue, row: QueueRow, now_ms: int) -> None:
        """That means a look at every segment, so only if something has changed that a decision rests on."""
        log = queue.log
        if log is None or not log.bases:
            return
        if self.compactor.is_busy_with(queue):
            queue.considered = None  # the checkpoint that ends this comes by here
            return
        counted = log.bases[: bisect_right(log.bases, row.end)][-1:]  # only what a checkpoint counts is compacted
        decided = min([row.end, *counted, *queue.state.open_transactions.values()])
        found = log.bases[0], counted, decided, queue.compaction.clean_end, queue.spec.config
        if found != queue.considered:
            queue.considered = found
            ages = [self._age(log, index, queue.state.end) for index in range(len(log.bases))]
            self.compactor.consider(queue, ages, now_ms)

    # ------------------------------------------------------------------------------------------------- merging

    @property
    def is_merging(self) -> bool:
        """A merge is under way: its packs must stay what they are until it is done."""
        return self._job is not None

    def step(self) -> bool:
        """A little of what there is to do; True if there is more. Merged packs count after the next checkpoint."""
        if self._job is None:
            packs = self._next_merge()
            if not packs:
                return False
            number = self.splitter.take_pack_number()
            self._job = MergeJob(self.disk, packs, number, self._log_start, self._cleaning)
        job = self._job
        try:
            if not job.step(STEP_BYTES):
                return True
        except Exception as error:
            self._job = None
            if isinstance(error, Corrupt | Unreadable):
                self._damaged.update(job.inputs)
            job.abandon()
            if job.cleaning is None or isinstance(error, Fault | OSError):
                raise
            raise self.compactor.give_up(job.cleaning.row.queue_id, self._looked_at_ms, error) from error
        self._job = None
        self.merged_bytes += job.read_bytes
        self.splitter.replaced(job.inputs, job.output)
        self._note_cleaned(job)
        return False

    def _next_merge(self) -> list[PackReader]:
        """Only packs that a checkpoint names, and one merge for each checkpoint."""
        if self.splitter.has_merge or self.compactor.is_gathering:
            return []
        shelf = {pack.number: pack for pack in self.splitter.shelf.packs}
        for run in self._sound_runs(shelf):
            chosen = plan(run, self.fanout) if self.fanout else plan(run)
            if chosen:
                return [shelf[number] for number in chosen]
        return self._packs_to_compact(shelf)

    def _packs_to_compact(self, shelf: dict[int, PackReader]) -> list[PackReader]:
        """For compaction's sake; what the last look found is used once, because places on the shelf change."""
        dirty, self._dirty = self._dirty, []
        numbers = self.splitter.checkpoints.image.packs
        sizes = [shelf[number].size if number in shelf else 0 for number in numbers]
        run = packs_to_compact(dirty, sizes, MERGED_BYTES_MAX)
        chosen = numbers[run[0] : run[1] + 1] if run is not None else []
        if any(number not in shelf or number in self._damaged for number in chosen):
            return []
        return [shelf[number] for number in chosen]

    def _cleaning(self, queue_id: int) -> ExtentCleaning | None:
        config, row = self._packed.get(queue_id), self.splitter.checkpoints.image.queues.get(queue_id)
        if config is None or row is None or self.compactor.has_failed(queue_id, self._looked_at_ms):
            return None
        aborted: list[Aborted] = []
        if row.segments_from != NO_SEGMENTS:  # a transaction may begin in packs and end there
            queue = self.splitter.learn(queue_id)
            if queue is None:
                return None
            try:
                aborted = self.splitter.stored_aborted(queue)
            except (Corrupt, Unreadable) as error:
                self.splitter.note_damage(queue.spec, error)
                return None  # an aborted record might count as the newest
        compactor = self.compactor
        return ExtentCleaning(
            row,
            config,
            seed=compactor.seed,
            keys_max=compactor.keys_max,
            now_ms=self._looked_at_ms,
            tally=compactor.tally,
            aborted=aborted,
        )

    def _note_cleaned(self, job: MergeJob) -> None:
        """In the same checkpoint as the merge."""
        for done in job.cleaned:
            queue = self.splitter.learn(done.row.queue_id)
            if queue is not None:
                self.compactor.tally.passes += 1
                is_all = done.covers_all and not self.compactor.is_busy_with(queue)  # else it is not what will be read
                clean_end = done.end if is_all else queue.compaction.clean_end
                self.splitter.swaps.repacked(queue, max(clean_end, queue.compaction.clean_end), done.end)

    def _sound_runs(self, shelf: dict[int, PackReader]) -> Iterator[list[PackSize]]:
        """Neighbours without a damaged pack between them."""
        run: list[PackSize] = []
        for number in self.splitter.checkpoints.image.packs:
            if number in shelf and number not in self._damaged:
                run.append(PackSize(number, shelf[number].size, self._dead.get(number, 0)))
            else:
                yield run
                run = []
        yield run

    def _log_start(self, queue_id: int) -> int | None:
        row = self.splitter.checkpoints.image.queues.get(queue_id)
        return row.log_start if row is not None and are_read(row) else None

    # ------------------------------------------------------------------------------------------------- demotion

    def demote(self) -> bool:
        """Puts segments of small idle queues into a pack; True if it did, and then a checkpoint must follow at once."""
        idle = [q for q in self._demotable if q.state.end == q.idle_end and q.segments_from != NO_SEGMENTS]
        chosen = [queue for queue in idle if not self.compactor.is_busy_with(queue)]
        self._demotable = chosen[DEMOTE_QUEUES:]
        if chosen:
            self.splitter.demote(chosen[:DEMOTE_QUEUES])
        return bool(chosen)


def _propose(
    spec: QueueSpec, segments: list[SegmentAge], log_start: int, end: int, now_ms: int
) -> StartProposal | None:
    config = spec.config
    start = min(new_start(segments, config.retention_ms, config.retention_bytes, now_ms), end)
    return StartProposal(spec.queue_id, start) if start > log_start else None
