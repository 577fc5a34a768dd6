"""Compacted segments on their way to the old ones' place: given by a pass, counted by a checkpoint, seen by readers.

The splitter calls this in the middle of its checkpoints. The order is the whole argument: docs/compaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from cairnmq.storage.files.fault_point import reach

if TYPE_CHECKING:
    from cairnmq.storage.segments.queue_log import QueueLog
    from cairnmq.storage.splitter.split_queue import SplitQueue

Bases: TypeAlias = tuple[int, ...]  # segments that become one, under the first's name
Seen: TypeAlias = tuple[int, Bases]  # queue id, segments
# by a checkpoint: its serial; packs, demoted queues and swapped segments that may still be read
LeftBehind: TypeAlias = tuple[int, list[int], list[int], list[Seen]]


class Swaps:
    """One splitter's."""

    def __init__(self, queues: Mapping[int, SplitQueue]) -> None:
        self._queues = queues
        self._given: list[tuple[SplitQueue, Bases, int]] = []  # since the last checkpoint
        self._cleaned: list[tuple[SplitQueue, int]] = []
        self._prepended: list[tuple[SplitQueue, list[int]]] = []  # likewise
        self._landed: dict[int, list[int]] = {}  # queue -> new first segments, in place and not yet part of its log
        self._counted: list[tuple[SplitQueue, Bases]] = []  # in the rows that are being published
        self.untold: list[Seen] = []  # readers must hear of them, and say so
        self._done: set[int] = set()  # queues whose rows on disk still hold a swap that is over

    def __bool__(self) -> bool:
        return bool(self._given or self._cleaned or self._prepended or self._landed or self.untold or self._done)

    def give(self, queue: SplitQueue, bases: Sequence[int], end: int) -> None:
        """Compacted files are whole and synced: they take the place of these segments, which end before offset `end`,
        with the next checkpoint."""
        self._given.append((queue, tuple(bases), end))

    def prepend(self, queue: SplitQueue, bases: Sequence[int]) -> None:
        """Whole and synced files hold what packs have of a queue: each is a swap with nothing to supersede. Put into
        place by the next checkpoint, they are part of the log, and the packs are not, from the one after that on."""
        self._prepended.append((queue, list(bases)))

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
        is_given = any(other is queue for other, *_ in (*self._given, *self._prepended))
        return bool(queue.compaction.swaps) or is_given or queue.spec.queue_id in self._done

    # ------------------------------------------------------------------------------------- in the splitter's hands

    def opened(self, queue: SplitQueue, log: QueueLog) -> None:
        """A queue's log is about to be opened for the first time: what a predecessor left is finished."""
        swaps = queue.compaction.swaps
        log.remove_unfinished([swap[0] for swap in swaps])
        for swap in swaps:
            log.swap_in(swap)
            self.untold.append((queue.spec.queue_id, swap))

    def into_rows(self) -> list[str]:
        """Before a checkpoint's rows are made: the swaps are in them. Returns directories with new names."""
        broken = set()
        for queue, bases, end in self._given:
            log, queue_id = queue.log, queue.spec.queue_id
            if (
                queue_id in broken  # what follows may have dropped the tombstones of what stays
                or self._queues.get(queue_id) is not queue
                or log is None
                or not set(bases) <= set(log.bases)
            ):
                broken.add(queue_id)  # the queue was deleted, demoted or mended meanwhile
                continue
            old = queue.compaction
            queue.compaction = replace(old, rewritten_end=max(old.rewritten_end, end), swaps=(*old.swaps, bases))
            log.sum_cleaned(bases)
            self._counted.append((queue, bases))
        for queue, end in self._cleaned:
            if queue.spec.queue_id not in broken:
                queue.compaction = replace(queue.compaction, clean_end=end)
        self._front_into_rows()
        for queue in [queue for queue, _, _ in self._given] + [queue for queue, _ in self._cleaned]:
            queue.dirty = True
        self._given, self._cleaned = [], []
        return [queue.spec.directory for queue, _ in self._counted]

    def _front_into_rows(self) -> None:
        for queue_id, bases in self._landed.items():
            queue = self._queues.get(queue_id)
            if queue is None or queue.log is None:
                continue
            queue.dirty = True
            if not queue.log.bases:  # all of it was deleted meanwhile: what comes next must not go on behind them
                queue.log.discard(bases)
                left = tuple(swap for swap in queue.compaction.swaps if swap[0] not in bases)
                queue.compaction = replace(queue.compaction, swaps=left)
                continue
            queue.state.forget_aborted(bases[0], queue.segments_from)  # the new segments have them
            queue.segments_from = bases[0]
            queue.log.prepend(bases)
            queue.log.remove_below(queue.checkpointed_start)
            # The rows keep the swaps until readers go by the new segments: so long packs must keep what they have.
            self._counted.extend((queue, (base,)) for base in bases)
        for queue, bases in self._prepended:
            if self._queues.get(queue.spec.queue_id) is queue and queue.log is not None:
                swaps = (*queue.compaction.swaps, *((base,) for base in bases))
                # Whatever a pass over the others or a merge has cleaned since: these copies may hold keys twice.
                queue.compaction = replace(queue.compaction, clean_end=0, swaps=swaps)
                queue.dirty = True
                self._counted.extend((queue, (base,)) for base in bases)
        self._landed, self._prepended = {}, []

    def published(self) -> None:
        """The rows count. The next checkpoint syncs the new names; until then the rows keep the swap."""
        self._done.clear()
        counted, self._counted = self._counted, []
        for queue, bases in counted:
            reach("compaction-swap")
            if queue.log is not None:
                queue.log.swap_in(bases)
            self.untold.append((queue.spec.queue_id, bases))

    def tell(self) -> list[Seen]:
        untold, self.untold = self.untold, []
        return untold

    def seen(self, told: Sequence[Seen]) -> None:
        """Nobody reads the old segments any more. The checkpoint that forgets the swap syncs the directory first."""
        for queue_id, bases in told:
            queue = self._queues.get(queue_id)
            if queue is None or queue.log is None or bases not in queue.compaction.swaps:
                continue
            reach("compaction-delete")
            queue.log.remove_superseded(bases)
            if bases[0] < queue.segments_from:
                self._landed.setdefault(queue_id, []).append(bases[0])
                continue
            left = tuple(swap for swap in queue.compaction.swaps if swap != bases)
            queue.compaction = replace(queue.compaction, swaps=left)
            queue.dirty = True
            self._done.add(queue_id)
