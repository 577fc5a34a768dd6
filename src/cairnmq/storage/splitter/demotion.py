"""Queues that have become small and quiet: what their segments hold goes into a pack."""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.storage.files.format import NO_SEGMENTS
from cairnmq.storage.splitter.reclaim import Reclaim
from cairnmq.storage.splitter.split_packs import SplitPacks
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_queues import SplitQueues


def demote(chosen: Iterable[SplitQueue], queues: SplitQueues, packs: SplitPacks, reclaim: Reclaim) -> None:
    """It counts from the next checkpoint on, which must follow before the next round."""
    whole = [queue for queue in chosen if queues.is_whole(queue) and not _is_in_packs_too(queue, packs)]
    if not whole:
        return
    in_order = sorted(whole, key=lambda queue: queue.spec.queue_id)
    runs = ((queue.spec.queue_id, list(queues.stored(queue))) for queue in in_order)
    packs.write((queue_id, run) for queue_id, run in runs if run)
    for queue in whole:
        queue.state.add_aborted(queues.stored_aborted(queue))
        queue.log = None
        queues.open_logs.forget(queue.spec.queue_id)
        queue.segments_from, queue.row_sums = NO_SEGMENTS, {}
        queue.packed_bytes = 0
        queue.dirty = True
        queues.segmented -= 1
        reclaim.leave(queue)


def _is_in_packs_too(queue: SplitQueue, packs: SplitPacks) -> bool:
    """Packs hold records that segments hold as well, copied in front, until a merge leaves them out."""
    start = max(queue.state.log_start, queue.segments_from)
    return any(extent.end_offset > start for _, extent in packs.pack_set.extents(queue.spec.queue_id))
