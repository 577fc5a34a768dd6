"""Compaction in the splitter: which queue is next, and its pass, a slice at a time. Why and how: docs/compaction.md."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from msgspec import Struct

from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.batches.batch_run import place_at
from cairnmq.storage.compaction.job import CompactionJob, Tally
from cairnmq.storage.compaction.pack_extraction import ExtractionJob, is_scattered
from cairnmq.storage.compaction.plan import Due, Stretch, due, next_look
from cairnmq.storage.compaction.queue_job import CannotCompact
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.disk import Unreadable
from cairnmq.storage.files.reserve import FULL
from cairnmq.storage.segments.segment import LOG, segment_name
from cairnmq.storage.splitter.retention import SegmentAge
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_records import SplitRecords

KEYS_MAX = 1_500_000  # so many fit into a table of 48 MiB, and 24 more while it grows to that
SLICE_BYTES = 4 << 20
REST_MS = 60_000  # of a queue whose pass could not be done, or came to nothing
FAILED_REST_MS = 3_600_000  # of a queue whose pass failed by what is in it: it will again
NO_LAG = NEVER = 1 << 62


class _Candidate(Struct):
    queue: SplitQueue
    segments: list[Stretch]
    due: Due


class Compactor:
    """One splitter's, over queues with segments of their own; packs are compacted by merges."""

    def __init__(self, records: SplitRecords, seed: bytes, keys_max: int = KEYS_MAX) -> None:
        self.records = records
        self.seed = seed
        self.keys_max = keys_max
        self.tally = Tally()
        self._candidates: dict[int, _Candidate] = {}
        self._rest_until: dict[int, int] = {}
        self._failed: dict[int, int] = {}  # queues that cannot be compacted, and until when they are left alone
        # Queues that time may make due. A queue's entry in the heap counts if its time is the one in the table.
        self._look_at: dict[int, int] = {}
        self._looks: list[tuple[int, int]] = []
        self._scattered: dict[int, SplitQueue] = {}  # those whose packs must become segments first
        self.ungatherable: set[int] = set()  # that could not be done, as of the last look
        self._job: CompactionJob | ExtractionJob | None = None

    def consider(self, queue: SplitQueue, ages: Sequence[SegmentAge], now_ms: int) -> None:
        """`ages`: of all its segments, in order."""
        queue_id, config = queue.spec.queue_id, queue.spec.config
        self._candidates.pop(queue_id, None)
        self._scattered.pop(queue_id, None)
        row = self.records.image.queues.get(queue_id)
        if not config.compact or row is None or self._is_resting(queue_id, now_ms) or self.is_busy_with(queue):
            return
        if is_scattered(queue) and config.model == "dedicated" and queue_id not in self.ungatherable:
            self._scattered[queue_id] = queue
            return
        if min(queue.state.open_transactions.values(), default=row.end) <= queue.compaction.clean_end:
            return  # nothing behind it is decided: a pass would only write again what is clean
        closed = [age for age in ages[:-1] if age.end <= row.end]
        segments = [Stretch(a.base, a.end, a.size, self._oldest(queue, a.base), a.max_timestamp) for a in closed]
        found = due(segments, queue.compaction.clean_end, config, now_ms)
        if found is not None:
            below = [segment for segment in segments if segment.end <= found.end]
            self._candidates[queue_id] = _Candidate(queue, below, found)
        elif (time := next_look(segments, queue.compaction.clean_end, config, now_ms)) is not None:
            self._look_again(queue_id, time)

    def _oldest(self, queue: SplitQueue, base: int) -> int:
        """The time of a segment's first batch; only looked up if it matters."""
        if queue.spec.config.compaction_lag_max_ms >= NO_LAG:
            return -1
        file = self.records.read_disk.open(segment_name(queue.spec.directory, base, LOG))
        place = place_at(file, 0)
        file.close()
        return place.max_timestamp if place is not None else -1

    def _is_resting(self, queue_id: int, now_ms: int) -> bool:
        until = self._rest_until.get(queue_id, 0)
        if now_ms < until:
            self._look_again(queue_id, until)
        return now_ms < until

    def _rest(self, queue_id: int, now_ms: int, rest_ms: int = REST_MS) -> None:
        self._rest_until[queue_id] = now_ms + rest_ms
        self._look_again(queue_id, now_ms + rest_ms)

    def give_up(self, queue_id: int, now_ms: int, error: Exception) -> CannotCompact:
        """Whatever one queue holds must not end the splitter: all others wait for it. The fault is to be reported."""
        self._rest(queue_id, now_ms, FAILED_REST_MS)
        self._failed[queue_id] = now_ms + FAILED_REST_MS
        queue = self.records.queues.get(queue_id)
        name = f"queue {queue_id}" if queue is None else queue.spec.directory
        what = str(error) if isinstance(error, CannotCompact) else repr(error)
        return CannotCompact(f"{name} cannot be compacted, and is retried in an hour: {what}")

    def has_failed(self, queue_id: int, now_ms: int) -> bool:
        """So that merges copy what they have of it as it is."""
        return now_ms < self._failed.get(queue_id, 0)

    # ---------------------------------------------------------------------------------------------------------- time

    def _look_again(self, queue_id: int, time_ms: int) -> None:
        if time_ms < self._look_at.get(queue_id, NEVER):
            self._look_at[queue_id] = time_ms
            heappush(self._looks, (time_ms, queue_id))

    @property
    def next_look_ms(self) -> int:
        """When `take_looks` has something to give."""
        return self._looks[0][0] if self._looks else NEVER

    def take_looks(self, now_ms: int) -> list[int]:
        """Queues that are to be considered because it is time, whatever else has changed."""
        found = []
        while self.next_look_ms <= now_ms:
            time, queue_id = heappop(self._looks)
            if self._look_at.get(queue_id) == time:
                del self._look_at[queue_id]
                if self._rest_until.get(queue_id, NEVER) <= now_ms:
                    del self._rest_until[queue_id]
                found.append(queue_id)
        return found

    # -------------------------------------------------------------------------------------------------------- passes

    @property
    def dirty_ratio(self) -> float:
        """Of the dirtiest queue that waits; 0 if none does."""
        return max((candidate.due.ratio for candidate in self._candidates.values()), default=0.0)

    def step(self, now_ms: int, max_bytes: int = SLICE_BYTES) -> bool:
        """A slice of the pass at hand, or of the next one; True if there is more to do."""
        if self._job is None:
            self._job = self._next_job(now_ms)
            if self._job is None:
                return False
        job, queue_id = self._job, self._job.queue.spec.queue_id
        if isinstance(job, ExtractionJob):
            self.ungatherable.add(queue_id)  # unless it comes to its end
        try:
            if not job.step(max_bytes):
                return True
            if not job.came_further:
                self._rest(queue_id, now_ms)
            elif isinstance(job, ExtractionJob):
                self.ungatherable.discard(queue_id)
        except (Damage, Unreadable) as error:
            self._rest(queue_id, now_ms)
            self.records.note_damage(job.queue.spec, error)
        except Corrupt:
            self._rest(queue_id, now_ms)
            raise
        except OSError as error:
            self._rest(queue_id, now_ms)
            if error.errno not in FULL:
                raise
        except Exception as error:
            if isinstance(error, Fault) and not isinstance(error, CannotCompact):
                raise
            raise self.give_up(queue_id, now_ms, error) from error
        finally:
            if job.is_over:
                self._job = None
        return bool(self._candidates or self._scattered)

    @property
    def is_gathering(self) -> bool:
        return isinstance(self._job, ExtractionJob)

    def _next_job(self, now_ms: int) -> CompactionJob | ExtractionJob | None:
        if self._scattered:
            return ExtractionJob(self.records, self._scattered.popitem()[1])
        if not self._candidates:
            return None
        best = max(self._candidates, key=lambda q: (self._candidates[q].due.is_overdue, self._candidates[q].due.ratio))
        chosen = self._candidates.pop(best)
        return CompactionJob(
            self.records,
            chosen.queue,
            chosen.segments,
            chosen.due.end,
            keys_max=self.keys_max,
            seed=self.seed,
            now_ms=now_ms,
            tally=self.tally,
        )

    def is_busy_with(self, queue: SplitQueue) -> bool:
        """Until the checkpoint that forgets its swaps: no pass over it may begin."""
        return self._job is not None and self._job.queue is queue or self.records.replacements.busy(queue)
