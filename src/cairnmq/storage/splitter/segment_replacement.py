"""Segments that take the place of others, or of what packs hold of a queue: given by a pass of compaction, counted by a
checkpoint, seen by readers, forgotten by a later checkpoint. Each is a record in `leaving`; a queue's row in the
checkpoint names it (a *swap*) from the moment at which it counts until its directory was synced. See
docs/compaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.segments.queue_log import QueueLog
from cairnmq.storage.splitter.leaving import IN_FRONT, Departures, Leaving, Stage, Step, Superseded
from cairnmq.storage.splitter.split_queue import SplitQueue


class SegmentReplacements:
    """One splitter's. `queues`: those it has met, by id."""

    def __init__(self, queues: Mapping[int, SplitQueue], departures: Departures) -> None:
        self._queues = queues
        self._departures = departures
        self._cleaned: list[tuple[SplitQueue, int]] = []  # clean ends that count with the next checkpoint

    @property
    def need_checkpoint(self) -> bool:
        return bool(self._cleaned) or self._departures.needs_checkpoint(Superseded)

    # ------------------------------------------------------------------------------------------ what compaction does

    def give(self, queue: SplitQueue, bases: Sequence[int], end: int) -> None:
        """Compacted files are whole and synced: they take the place of these segments, which end before offset `end`,
        with the next checkpoint."""
        self._departures.begin(Superseded(queue, tuple(bases), end))

    def prepend(self, queue: SplitQueue, bases: Sequence[int]) -> None:
        """Whole and synced files hold what packs have of a queue: each is a swap with nothing to supersede. Put into
        place by the next checkpoint, they are part of the log, and the packs are not, from the one after that on."""
        for base in bases:
            self._departures.begin(Superseded(queue, (base,), IN_FRONT))

    def cleaned_to(self, queue: SplitQueue, end: int) -> None:
        """A pass has given all of its swaps."""
        self._cleaned.append((queue, end))

    def repacked(self, queue: SplitQueue, clean_end: int, end: int) -> None:
        """A merge has compacted a queue's extents up to offset `end`; both count with the next checkpoint."""
        old = queue.compaction
        queue.compaction = replace(old, clean_end=clean_end, rewritten_end=max(old.rewritten_end, end))
        queue.dirty = True

    def busy(self, queue: SplitQueue) -> bool:
        """As long as a swap of it is in a row on disk, a start would take any compacted file for the swap's."""
        return bool(queue.compaction.swaps) or any(w.queue is queue for w in self._departures.any_of(Superseded))

    # --------------------------------------------------------------------------------------- what checkpoints do

    def opened(self, queue: SplitQueue, log: QueueLog) -> None:
        """A queue's log is about to be opened for the first time: what a predecessor left is finished."""
        swaps = queue.compaction.swaps
        log.remove_unfinished([swap[0] for swap in swaps])
        for swap in swaps:
            log.swap_in(swap)
            end = IN_FRONT if swap[0] < queue.segments_from else queue.compaction.rewritten_end
            self._departures.found(Superseded(queue, swap, end))

    def into_rows(self) -> list[str]:
        """Before a checkpoint's rows are made: the swaps are in them. Returns directories with new names."""
        given = self._departures.of(Superseded, Stage.REPLACED)
        for queue in self._compacted_into_rows([record for record in given if record.what.end != IN_FRONT]):
            queue.dirty = True
        self._move_fronts()
        self._fronts_into_rows([record for record in given if record.what.end == IN_FRONT])
        return [record.what.queue.spec.directory for record in self._departures.of(Superseded, Stage.REPLACED)]

    def _compacted_into_rows(self, given: Sequence[Leaving[Superseded]]) -> list[SplitQueue]:
        """Returns the queues whose rows change."""
        broken = set()
        for record in given:
            queue, bases, end = record.what.queue, record.what.bases, record.what.end
            log, queue_id = queue.log, queue.spec.queue_id
            if bases in queue.compaction.swaps:
                continue  # by a checkpoint that failed
            if (
                queue_id in broken  # what follows may have dropped the tombstones of what stays
                or self._queues.get(queue_id) is not queue
                or log is None
                or not set(bases) <= set(log.bases)
            ):
                broken.add(queue_id)  # the queue was deleted, demoted or repaired meanwhile
                self._withdraw(record)
                continue
            old = queue.compaction
            queue.compaction = replace(old, rewritten_end=max(old.rewritten_end, end), swaps=(*old.swaps, bases))
            log.sum_cleaned(bases)
        cleaned, self._cleaned = self._cleaned, []
        for queue, end in cleaned:
            if queue.spec.queue_id not in broken:
                queue.compaction = replace(queue.compaction, clean_end=end)
        return [record.what.queue for record in given] + [queue for queue, _ in cleaned]

    def _fronts_into_rows(self, given: Sequence[Leaving[Superseded]]) -> None:
        for record in given:
            queue = record.what.queue
            if self._queues.get(queue.spec.queue_id) is not queue or queue.log is None:
                self._withdraw(record)
                continue
            if record.what.bases in queue.compaction.swaps:
                continue  # by a checkpoint that failed
            # Whatever a pass over the others or a merge has cleaned since: these copies may hold keys twice.
            swaps = (*queue.compaction.swaps, record.what.bases)
            queue.compaction = replace(queue.compaction, clean_end=0, swaps=swaps)
            queue.dirty = True

    def _move_fronts(self) -> None:
        """Copies that are in place, as the broker has seen, become the first segments of their logs. What leaves then
        is what packs hold of these offsets: a second round of the same stages, under the same swaps."""
        in_place: dict[int, list[Leaving[Superseded]]] = {}
        for record in self._departures.of(Superseded, Stage.REMOVED):
            if record.what.bases[0] < record.what.queue.segments_from:
                in_place.setdefault(record.what.queue.spec.queue_id, []).append(record)
        for records in in_place.values():
            for record in records:
                self._departures.end(record)
            self._move_front(records[0].what.queue, [record.what.bases[0] for record in records])

    def _move_front(self, queue: SplitQueue, bases: Sequence[int]) -> None:
        log = queue.log
        if self._queues.get(queue.spec.queue_id) is not queue or log is None:
            return
        queue.dirty = True
        if not log.bases:  # all of it was deleted meanwhile: what comes next must not follow them
            log.discard(bases)
            left = tuple(swap for swap in queue.compaction.swaps if swap[0] not in bases)
            queue.compaction = replace(queue.compaction, swaps=left)
            return
        queue.state.forget_aborted(bases[0], queue.segments_from)  # the new segments have them
        queue.segments_from = bases[0]
        log.prepend(bases)
        log.remove_below(queue.checkpointed_start)
        # The rows keep the swaps until readers go by the new segments: so long packs must keep what they have.
        for base in bases:
            self._departures.begin(Superseded(queue, (base,), queue.compaction.rewritten_end))

    def _withdraw(self, record: Leaving[Superseded]) -> None:
        record.take(Step.WITHDRAW)
        self._departures.end(record)

    def published(self) -> None:
        """The rows count. The next checkpoint syncs the new names; until then the rows keep the swap."""
        for record in self._departures.of(Superseded, Stage.REMOVED):  # these rows do not name it any more
            self._departures.end(record)
        for record in self._departures.of(Superseded, Stage.REPLACED):
            reach("compaction-swap")
            if record.what.queue.log is not None:
                record.what.queue.log.swap_in(record.what.bases)
            record.take(Step.PUBLISH)

    def tell(self, serial: int) -> list[int]:
        """Queues whose segments lie elsewhere than the broker knows: the report of this checkpoint tells it."""
        untold = [record for record in self._departures.of(Superseded, Stage.CHECKPOINTED) if not record.serial]
        for record in untold:
            record.serial = serial
        return [record.what.queue.spec.queue_id for record in untold]

    def seen(self, serial: int) -> None:
        """Nobody reads the old segments any more. The checkpoint that forgets the swap syncs the directory first."""
        for record in self._departures.see(Superseded, serial):
            bases = record.what.bases
            queue = self._queues.get(record.what.queue.spec.queue_id)
            if queue is None or queue.log is None or bases not in queue.compaction.swaps:
                self._departures.end(record)  # its files went with the queue's directory
                continue
            reach("compaction-delete")
            record.take(Step.REMOVE)
            queue.log.remove_superseded(bases)
            if bases[0] < queue.segments_from:
                continue  # a copy in front, which supersedes nothing yet
            left = tuple(swap for swap in queue.compaction.swaps if swap != bases)
            queue.compaction = replace(queue.compaction, swaps=left)
            queue.dirty = True
