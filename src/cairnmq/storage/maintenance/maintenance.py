"""What the splitter does to records that are split and checkpointed: retention's proposals, merges, demotions.

Nothing here is urgent, and nothing here counts before a checkpoint says so. It looks at every queue that has records,
but keeps none of them in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from msgspec.structs import replace

from cairnmq.errors import Corrupt, Fault
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.split_report import StartProposal
from cairnmq.storage.compaction.compactor import Compactor
from cairnmq.storage.compaction.pack_compaction import DirtyQueue, ExtentCleaning, dirty_queue, packs_to_compact
from cairnmq.storage.files.disk import Unreadable
from cairnmq.storage.files.format import (
    DELETED_SUFFIX,
    EXTENT,
    IDENTITY_FILE,
    NO_SEGMENTS,
    QUEUES,
    Aborted,
    Extent,
    QueueIdentity,
    QueueRow,
)
from cairnmq.storage.maintenance.pack_merge import MERGED_BYTES_MAX, MergeJob, PackSize, plan
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.packs.pack_set import merged
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.index_rebuild import indexes_lie, rebuild_indexes
from cairnmq.storage.segments.newest_time import NewestTime, claimed, proven
from cairnmq.storage.segments.queue_log import QueueLog, describe, read_identity
from cairnmq.storage.segments.segment import LOG, SegmentRun, segment_name
from cairnmq.storage.splitter.retention import SegmentAge, new_start
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_records import MaintainedRecords

STEP_BYTES = 8 << 20
LOOK_BYTES = 8 << 20  # of segments whose age must be proven, in one look; the rest is done step by step
INLINE_BYTES = 1 << 20  # and of each
LOOK_CHECKS = 100  # of a segment's indexes, in one look
NOT_KNOWN = 1 << 62  # instead of a time: nobody may take it for old
RESOLVE_QUEUES = 1000
DEMOTE_QUEUES = 256  # at a time, so that the checkpoint that must follow stays short


class Maintenance:
    """One splitter's. `look` now and then, `step` while it says there is more to do."""

    def __init__(self, records: MaintainedRecords, fanout: int | None = None, seed: bytes = bytes(16)) -> None:
        """`seed`: 16 random bytes for the hashes of keys."""
        self.records = records
        self.disk = records.read_disk
        self.fanout = fanout
        self.merged_bytes = 0
        self._job: MergeJob | None = None
        self._dead: dict[int, int] = {}  # pack -> bytes that nobody can ask for any more, as of the last look
        self._damaged: set[int] = set()  # packs that cannot be merged
        self._demotable: list[SplitQueue] = []
        self._indexed: set[str] = set()  # closed segments whose indexes were looked at
        # (queue, segment): what must be proven of it before retention or compaction may go by its age
        self._unproven: dict[tuple[int, int], None] = {}
        self.look_due = False  # something was proven, by which a look may delete
        self._bytes_left, self._checks_left = LOOK_BYTES, LOOK_CHECKS
        self.compactor = Compactor(records, seed)
        self._packed: dict[int, LogConfig] = {}  # compacted queues in packs, as of the last look
        self._dirty: list[DirtyQueue] = []  # those of them that are due
        self._looked_at_ms = 0
        self._places: dict[str, int] | None = None  # of queues with segments, if this look needed to know
        self._foreign: set[str] = set()

    # ------------------------------------------------------------------------------------------------ retention

    def look(self, now_ms: int) -> list[StartProposal]:
        """Looks at every queue that has records: which log starts would retention move, what could be demoted?"""
        self.compactor.ungatherable.clear()
        self._places = None
        self.look_due, self._bytes_left, self._checks_left = False, LOOK_BYTES, LOOK_CHECKS
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
            if identity is None or identity.directory != directory:
                if not self._claim(directory) and identity is not None:
                    self._report_foreign(directory, identity)
                continue
            queue = self.records.learn(identity.queue_id)
            if queue is None:
                # Of a topic that was deleted; the one that was made again under its name may have its records here.
                if not self._claim(directory):
                    self.records.drop([(identity.queue_id, directory)])
            elif queue.segments_from == NO_SEGMENTS:
                self.records.leave(queue)
            else:
                try:
                    yield self._look_at_segments(queue, now_ms)
                except Unreadable as error:  # nothing of it is deleted then; the others have their look
                    self.records.note_damage(queue.spec, error)

    def _claim(self, directory: str) -> bool:
        """A directory that does not say whose it is, or names another queue than its place does. If the checkpoint
        knows of records there, it is damaged, and opening the log deals with it. Else (False) a crash tore it before
        its first checkpoint, and whoever claims the directory retires it; or it is none of ours."""
        if self._places is None:
            self._places = self._find_places()
        owner = self._places.get(directory)
        queue = self.records.learn(owner) if owner is not None else None
        if queue is None:
            return False
        if queue.log is not None:
            queue.log.flush_indexes()
            queue.log.close_file()
        self.records.open_log(queue)
        return True

    def _find_places(self) -> dict[str, int]:
        """Where the checkpoint says that queues have segments."""
        rows = self.records.image.queues.values()
        owners = (row.queue_id for row in rows if row.needs_segments)
        places: dict[str, int] = {}
        while some := list(islice(owners, RESOLVE_QUEUES)):
            places.update((spec.directory, spec.queue_id) for spec in self.records.specs(some))
        return places

    def _report_foreign(self, directory: str, identity: QueueIdentity) -> None:
        """It is passed over, and told of once: somebody may miss it elsewhere."""
        if directory not in self._foreign:
            self._foreign.add(directory)
            why = f"its {IDENTITY_FILE} is that of {describe(identity)}, and no queue has records there"
            self.records.note_foreign(directory, identity.queue_id, why)

    def _look_at_segments(self, queue: SplitQueue, now_ms: int) -> StartProposal | None:
        log = queue.log or self.records.open_log(queue)
        log.flush_indexes()
        self._check_indexes(log)
        segments = [self._age(queue, log, index, now_ms) for index in range(len(log.bases))]
        is_idle, queue.idle_end = queue.idle_end == queue.state.end, queue.state.end
        size = sum(segment.size for segment in segments)
        if (
            is_idle
            and not queue.dirty
            and not self.compactor.is_busy_with(queue)
            and self.records.wants_packs(queue, size)
        ):
            self._demotable.append(queue)
        self.compactor.consider(queue, segments, now_ms)
        if queue.state.log_start < queue.segments_from:
            segments = [*(_extent_age(*each) for each in self.records.pack_set.extents(queue.spec.queue_id)), *segments]
        return _propose(queue.spec, segments, queue.state.log_start, queue.state.end, now_ms)

    def _check_indexes(self, log: QueueLog) -> None:
        """Of each closed segment once, the first time that it is seen; of not too many in one look."""
        interval = log.spec.config.index_interval_bytes
        for base in log.bases[:-1]:
            name = segment_name(log.directory, base, LOG)
            if name not in self._indexed and self._checks_left:
                self._checks_left -= 1
                self._indexed.add(name)
                if indexes_lie(self.disk, log.directory, base, interval, closed=True):
                    self._rebuild(log, base)

    def _rebuild(self, log: QueueLog, base: int) -> None:
        with suppress(Corrupt):  # the log's own damage is its readers' business
            rebuild_indexes(self.disk, log.directory, base, log.spec.config.index_interval_bytes)

    # ----------------------------------------------------------------------------------------- the age of segments

    def _age(self, queue: SplitQueue, log: QueueLog, index: int, now_ms: int) -> SegmentAge:
        """How new its newest record is, as far as anybody may delete by it: what is not proven is proven a little at a
        time (`step`), and counts as young until then."""
        base, is_last = log.bases[index], index + 1 == len(log.bases)
        end = queue.state.end if is_last else log.bases[index + 1]
        known = log.newest.get(base)
        if known is None or is_last or known.offset < end:
            known = self._look_at(queue, log, base, end, now_ms)
        newest = max(known.time, log.max_timestamp) if is_last else known.time
        if known.offset < end and _matters(queue.spec.config, newest, now_ms):
            self._unproven[queue.spec.queue_id, base] = None
            newest = NOT_KNOWN
        elif newest < 0:  # none of its records has a time: as in Kafka, the time of its file counts then
            file = self.disk.open(segment_name(log.directory, base, LOG))
            newest = file.modified_ms()
            file.close()
        return SegmentAge(base, end, known.size, newest)

    def _look_at(self, queue: SplitQueue, log: QueueLog, base: int, end: int, now_ms: int) -> NewestTime:
        """No more than what is claimed, unless somebody might delete by that; then a little of the proof."""
        file = self.disk.open(segment_name(log.directory, base, LOG))
        try:
            run = SegmentRun(self.disk, log.directory, base, file)
            known = log.newest.get(base)
            if known is None:
                try:
                    known = claimed(run, end)
                except Corrupt:
                    known = NewestTime(run.end, 0, base)
            if self._bytes_left > 0 and _matters(queue.spec.config, known.time, now_ms):
                before = known.position
                known = proven(run, known, end, min(self._bytes_left, INLINE_BYTES), empty=True, around=True)
                self._bytes_left -= known.position - before
            known = replace(known, size=run.end)
        finally:
            file.close()
        log.newest[base] = known
        return known

    def _prove(self) -> None:
        """A step of it, for the segment that waits longest."""
        queue_id, base = next(iter(self._unproven))
        queue = self.records.queues.get(queue_id)
        log = queue.log if queue is not None else None
        if queue is None or log is None or base not in log.newest:
            del self._unproven[queue_id, base]  # it is gone, or another file has its name: the next look begins again
            return
        end = min((other for other in log.bases if other > base), default=queue.state.end)
        try:
            file = self.disk.open(segment_name(log.directory, base, LOG))
            try:
                run = SegmentRun(self.disk, log.directory, base, file)
                known = log.newest[base] = proven(run, log.newest[base], end, STEP_BYTES, empty=True, around=True)
            finally:
                file.close()
        except Unreadable as error:  # nothing of it is deleted then
            del self._unproven[queue_id, base]
            self.records.note_damage(queue.spec, error)
            return
        if known.offset >= end:
            del self._unproven[queue_id, base]
            self.look_due = True
            queue.considered = None
            self.records.written.add(queue_id)

    def _look_at_packs(self, now_ms: int) -> Iterator[StartProposal | None]:
        """Also counts what is dead in each pack. A queue with segments of its own has had its look."""
        image = self.records.image
        packs = [pack for pack in self.records.pack_set.packs if pack.number in image.packs]
        places = {pack.number: image.packs.index(pack.number) for pack in packs}
        self._packed, self._dirty, self._looked_at_ms = {}, [], now_ms
        dead = dict.fromkeys((pack.number for pack in packs), 0)
        rows = merged(packs)
        while some := list(islice(rows, RESOLVE_QUEUES)):
            specs = {spec.queue_id: spec for spec in self.records.specs([queue_id for queue_id, _ in some])}
            for queue_id, extents in some:
                spec, row = specs.get(queue_id), image.queues.get(queue_id)
                if spec is None and row is not None:
                    self.records.drop([(queue_id, "")])
                start = row.log_start if row is not None and spec is not None and row.needs_packs else None
                for pack, extent in extents:
                    if start is None or extent.end_offset <= start:
                        dead[pack.number] += extent.size + EXTENT.size  # its row in the table goes too
                if spec is not None and row is not None and row.segments_from == NO_SEGMENTS:
                    ages = [_extent_age(*each) for each in extents if each[1].end_offset > row.log_start]
                    yield _propose(spec, ages, row.log_start, row.end, now_ms)
                if spec is not None and row is not None and spec.config.compact and row.log_start < row.packed_end:
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
            if queue_id in self.records.queues:
                self.records.queues[queue_id].considered = None
                self.records.written.add(queue_id)
        for queue_id in self.records.written:
            queue = self.records.queues.get(queue_id)
            row = self.records.image.queues.get(queue_id)
            if queue is not None and row is not None and queue.spec.config.compact:
                try:
                    self._consider(queue, row, now_ms)
                except Unreadable as error:
                    self.records.note_damage(queue.spec, error)
        self.records.written.clear()
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
            ages = [self._age(queue, log, index, now_ms) for index in range(len(log.bases))]
            self.compactor.consider(queue, ages, now_ms)

    # ------------------------------------------------------------------------------------------------- merging

    @property
    def is_merging(self) -> bool:
        """A merge is under way: its packs must stay what they are until it is done."""
        return self._job is not None

    def step(self) -> bool:
        """A little of what there is to do; True if there is more."""
        if self._unproven:
            self._prove()
        return self._merge() or bool(self._unproven)

    def _merge(self) -> bool:
        """A step of it; True if there is more. Merged packs count after the next checkpoint."""
        if self._job is None:
            packs = self._next_merge()
            if not packs:
                return False
            label = self.records.take_label()
            self._job = MergeJob(self.disk, packs, label, self._log_start, self._cleaning)
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
        self.records.replace_packs(job.inputs, job.output)
        self._note_cleaned(job)
        return False

    def _next_merge(self) -> list[PackReader]:
        """Only packs that a checkpoint names, and one merge for each checkpoint."""
        if self.records.has_merge or self.compactor.is_gathering:
            return []
        pack_set = {pack.number: pack for pack in self.records.pack_set.packs}
        for run in self._sound_runs(pack_set):
            chosen = plan(run, self.fanout) if self.fanout else plan(run)
            if chosen:
                return [pack_set[number] for number in chosen]
        return self._packs_to_compact(pack_set)

    def _packs_to_compact(self, pack_set: dict[int, PackReader]) -> list[PackReader]:
        """For compaction's sake; what the last look found is used once, because places in the pack set change."""
        dirty, self._dirty = self._dirty, []
        numbers = self.records.image.packs
        sizes = [pack_set[number].size if number in pack_set else 0 for number in numbers]
        run = packs_to_compact(dirty, sizes, MERGED_BYTES_MAX)
        chosen = numbers[run[0] : run[1] + 1] if run is not None else []
        if any(number not in pack_set or number in self._damaged for number in chosen):
            return []
        return [pack_set[number] for number in chosen]

    def _cleaning(self, queue_id: int) -> ExtentCleaning | None:
        config, row = self._packed.get(queue_id), self.records.image.queues.get(queue_id)
        if config is None or row is None or self.compactor.has_failed(queue_id, self._looked_at_ms):
            return None
        aborted: list[Aborted] = []
        if row.segments_from != NO_SEGMENTS:  # a transaction may begin in packs and end there
            queue = self.records.learn(queue_id)
            if queue is None:
                return None
            try:
                aborted = self.records.stored_aborted(queue)
            except (Corrupt, Unreadable) as error:
                self.records.note_damage(queue.spec, error)
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
            queue = self.records.learn(done.row.queue_id)
            if queue is not None:
                self.compactor.tally.passes += 1
                is_all = done.covers_all and not self.compactor.is_busy_with(queue)  # else it is not what will be read
                clean_end = done.end if is_all else queue.compaction.clean_end
                self.records.replacements.repacked(queue, max(clean_end, queue.compaction.clean_end), done.end)

    def _sound_runs(self, pack_set: dict[int, PackReader]) -> Iterator[list[PackSize]]:
        """Neighbours without a damaged pack between them."""
        run: list[PackSize] = []
        for number in self.records.image.packs:
            if number in pack_set and number not in self._damaged:
                run.append(PackSize(number, pack_set[number].size, self._dead.get(number, 0)))
            else:
                yield run
                run = []
        yield run

    def _log_start(self, queue_id: int) -> int | None:
        row = self.records.image.queues.get(queue_id)
        return row.log_start if row is not None and row.needs_packs else None

    # ------------------------------------------------------------------------------------------------- demotion

    def demote(self) -> bool:
        """Puts segments of small idle queues into a pack; True if it did, and then a checkpoint must follow at once."""
        idle = [q for q in self._demotable if q.state.end == q.idle_end and q.segments_from != NO_SEGMENTS]
        chosen = [queue for queue in idle if not self.compactor.is_busy_with(queue)]
        self._demotable = chosen[DEMOTE_QUEUES:]
        if chosen:
            self.records.demote(chosen[:DEMOTE_QUEUES])
        return bool(chosen)


def _extent_age(pack: PackReader, extent: Extent) -> SegmentAge:
    newest = extent.max_timestamp if extent.max_timestamp >= 0 else pack.file.modified_ms()
    return SegmentAge(extent.base_offset, extent.end_offset, extent.size, newest)


def _matters(config: LogConfig, newest: int, now_ms: int) -> bool:
    """Would retention or compaction do something because a segment is as old as this?"""
    is_expired = 0 <= config.retention_ms < now_ms - newest
    return is_expired or (config.compact and 0 < config.compaction_lag_min_ms <= now_ms - newest)


def _propose(
    spec: QueueSpec, segments: list[SegmentAge], log_start: int, end: int, now_ms: int
) -> StartProposal | None:
    config = spec.config
    start = min(new_start(segments, config.retention_ms, config.retention_bytes, now_ms), end)
    return StartProposal(spec.queue_id, start) if start > log_start else None
