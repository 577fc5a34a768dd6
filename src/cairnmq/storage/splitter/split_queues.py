"""The queues that the splitter has met since it started: who they are, and their segments, opened and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import CheckpointLog
from cairnmq.storage.files.damage import Damage, Place, place_of
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import NO_SEGMENTS, Aborted, Entry
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.open_logs import OpenLogs
from cairnmq.storage.segments.queue_log import QueueLog
from cairnmq.storage.segments.segment import LOG, find_offset, segment_name, sound_walk
from cairnmq.storage.segments.txn_index import read_rows
from cairnmq.storage.splitter.leaving import DeletedRow, Departures
from cairnmq.storage.splitter.progress import Progress
from cairnmq.storage.splitter.segment_replacement import SegmentReplacements
from cairnmq.storage.splitter.split_queue import SplitQueue, claim

LEARNED_AT_ONCE = 1000  # queues in one question and its answer

Resolve = Callable[[list[int]], list[QueueSpec]]  # specs of those ids that exist; the others are deleted queues


class SplitQueues:
    """Asks the broker (`resolve`) for each queue once. Ids never come back: a deleted queue stays deleted."""

    def __init__(
        self,
        disk: Disk,
        checkpoints: CheckpointLog,
        resolve: Resolve,
        progress: Progress,
        departures: Departures,
        open_files_max: int,
    ) -> None:
        self.disk = disk
        self.checkpoints = checkpoints
        self.resolve = resolve
        self.progress = progress
        self.departures = departures
        self.open_logs = OpenLogs(open_files_max)
        self.by_id: dict[int, SplitQueue] = {}
        self.deleted: set[int] = set()  # their batches in journals are skipped
        self.replacements = SegmentReplacements(self.by_id, departures)
        # queues with segments of their own
        self.segmented = sum(row.segments_from != NO_SEGMENTS for row in checkpoints.image.queues.values())
        self.damages: list[tuple[int, Place]] = []  # found in queue logs; the splitter's driver takes them
        self.written: set[int] = set()  # compacted queues that compaction should consider

    # ---------------------------------------------------------------------------------------------- who they are

    def meet(self, entries: Iterable[Entry]) -> None:
        """Asks for the specs of queues not met before; an id that does not exist is a deleted queue, or a slot of
        coordinators, which has keyed facts and no records."""
        known, deleted = self.by_id, self.deleted
        unknown = sorted({e.queue_id for e in entries if e.queue_id and e.queue_id not in known} - deleted)
        for first in range(0, len(unknown), LEARNED_AT_ONCE):
            self._learn(unknown[first : first + LEARNED_AT_ONCE])

    def learn(self, queue_id: int) -> SplitQueue | None:
        """None: the queue is deleted."""
        if queue_id not in self.by_id and queue_id not in self.deleted:
            self._learn([queue_id])
        return self.by_id.get(queue_id)

    def _learn(self, queue_ids: list[int]) -> None:
        found = {spec.queue_id: spec for spec in self.resolve(queue_ids)}
        for queue_id in queue_ids:
            spec = found.get(queue_id)
            if spec is None:
                self.forget(queue_id)
            else:
                self.by_id[queue_id] = SplitQueue(spec, self.checkpoints.image.queues.get(queue_id))

    def forget(self, queue_id: int) -> None:
        """It is deleted; the next checkpoint forgets its row."""
        if queue_id in self.deleted:
            return
        self.deleted.add(queue_id)
        queue, row = self.by_id.pop(queue_id, None), self.checkpoints.image.queues.get(queue_id)
        if row is not None:
            self.departures.begin(DeletedRow(queue_id))
        known = queue or row
        if known is not None and known.segments_from != NO_SEGMENTS:
            self.segmented -= 1
        self.open_logs.forget(queue_id)

    def configure(self, spec: QueueSpec) -> None:
        queue = self.by_id.get(spec.queue_id)
        if queue is not None:
            queue.spec = spec
            self.written.add(spec.queue_id)
            if queue.log is not None:
                queue.log.spec = spec

    # ------------------------------------------------------------------------------------------- their segments

    def open_log(self, queue: SplitQueue, offset: int | None = None) -> QueueLog:
        """Cuts what lies at `offset` (the queue's end, if it is not given) and behind, and removes what a crash left
        below the checkpointed log start."""
        self.checkpoints.settle()
        queue_id = queue.spec.queue_id
        offset = queue.state.end if offset is None else offset
        row = self.checkpoints.image.queues.get(queue_id)
        log = QueueLog(self.disk, queue.spec)
        if queue.log is None:
            self.replacements.opened(queue, log)
        # what is to come before the first segment is not part of the log yet
        ahead = {swap[0] for swap in queue.compaction.swaps if swap[0] < queue.segments_from}
        log.open_at(
            offset,
            claim(row, queue.segments_from),
            queue.compaction.superseded | ahead,
            split=queue_id in self.progress.resume.segments_from,
            epoch=self.progress.epoch,
        )
        log.check_aborted(queue.row_sums)
        queue.log, queue.row_sums = log, log.row_sums
        self.damages.extend((queue_id, place) for place in log.damages)
        if row is not None:
            log.remove_below(row.log_start)
            if log.bases and row.log_start >= max(row.end, offset):
                log.remove_last()
        self.open_logs.hold(queue_id, log)
        return log

    def stored(self, queue: SplitQueue, end: int | None = None) -> Iterator[Entry]:
        """The batches of a queue's segments from its log start on, or of those before the segment that begins at `end`,
        as journal entries of them."""
        log = queue.log or self.open_log(queue)
        expected, end = max(queue.state.log_start, queue.segments_from), queue.state.end if end is None else end
        for index, base in enumerate(base for base in log.bases if base < end):
            file = self.disk.open(segment_name(log.directory, base, LOG))
            first = find_offset(self.disk, log.directory, base, file, max(base, expected))
            limit = log.bases[index + 1] if index + 1 < len(log.bases) else queue.state.end
            places = sound_walk(self.disk, log.directory, base, file, first, limit) if first is not None else ()
            for place in places:
                expected = place.last_offset + 1
                data = memoryview(file.read(place.position, place.size))
                offsets = place.base_offset, place.last_offset
                yield Entry.of_stored(queue.spec.queue_id, data, offsets, place.max_timestamp)
            file.close()
        if expected < end:
            raise Damage(Place(log.directory, -1, queue.spec.directory, expected, end))

    def stored_aborted(self, queue: SplitQueue) -> list[Aborted]:
        """As the `.txnindex` files of its segments say; damage is raised."""
        log = queue.log or self.open_log(queue)
        rows = (row for base in log.bases for row in read_rows(self.disk, log.directory, base, log.row_sums))
        return [row for row in rows if row.last >= queue.state.log_start]

    def is_whole(self, queue: SplitQueue) -> bool:
        """Nothing of its segments is damaged or missing."""
        try:
            self.stored_aborted(queue)
            return sum(1 for _ in self.stored(queue)) >= 0
        except (Damage, Unreadable) as error:
            self.note_damage(queue.spec, error)
            return False

    def note_damage(self, spec: QueueSpec, error: Corrupt | Unreadable) -> None:
        name = f"{spec.topic}-{spec.partition}"
        place = Place(spec.directory, -1, name)
        if isinstance(error, Damage | Unreadable):
            place = place_of(error, name)
        self.damages.append((spec.queue_id, place))

    def close(self) -> None:
        for queue in self.by_id.values():
            if queue.log is not None:
                queue.log.close_file()
