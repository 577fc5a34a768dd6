"""How many bytes a queue holds: its segments, its part of packs, and what the splitter has not written there yet.

Disks are looked at on a thread, and only for queues that may have changed: asking for 100,000 idle queues again and
again looks at none of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cairnmq.errors import Corrupt

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.store import Store
    from cairnmq.storage.api.serving import Queue

_LOG_SUFFIX = ".log"


class _Known(Struct, gc=False):
    """A measured log. It changes when the split end or the log start do; after the latter, files go only with a
    checkpoint that covers the move, so until then the size is not `settled`."""

    split_end: int
    log_start: int
    seen_at: int  # the journal's end when this pair was first seen
    size: int = 0
    settled: bool = False


class LogSizes:
    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._turn = asyncio.Lock()

    async def measure(self, store: Store, queues: Sequence[Queue]) -> list[int]:
        """Bytes of each. Records are counted twice while the splitter is about to report them: at most one round."""
        async with self._turn:  # who asks at the same time finds what the first has measured
            self._forget_deleted(store)
            outdated = [(queue, known) for queue in queues if (known := self._suspects(store, queue)) is not None]
            if outdated:
                covered = dict(store.engine.checkpointed)
                sizes = await asyncio.to_thread(_sizes, store, [queue for queue, _ in outdated])
                for (queue, known), size in zip(outdated, sizes, strict=True):
                    known.size = size
                    # compaction changes the size whenever it likes
                    known.settled = covered[queue.journal] >= known.seen_at and not queue.config.compact
            return [self._size(queue) for queue in queues]

    def _suspects(self, store: Store, queue: Queue) -> _Known | None:
        """What is known of a log that must be looked at; None if it need not be."""
        if not queue.split_end:
            return None  # nothing was ever split: there is no log
        known = self._known.get(queue.queue_id)
        if known is None or (known.split_end, known.log_start) != (queue.split_end, queue.log_start):
            end = store.engine.path_of(queue).journal.staged_end
            known = self._known[queue.queue_id] = _Known(queue.split_end, queue.log_start, end)
        return None if known.settled else known

    def _size(self, queue: Queue) -> int:
        known = self._known.get(queue.queue_id)
        return (known.size if known is not None else 0) + (sum(queue.tail.sizes) if queue.tail is not None else 0)

    def _forget_deleted(self, store: Store) -> None:
        if len(self._known) > 2 * len(store.queues) + 1000:
            self._known = {queue_id: known for queue_id, known in self._known.items() if queue_id in store.queues}


def _sizes(store: Store, queues: list[Queue]) -> list[int]:
    return [_size(os.path.join(store.data_dir, queue.spec.directory)) + _packed(store, queue) for queue in queues]


def _packed(store: Store, queue: Queue) -> int:
    if queue.log_start >= queue.packed_end:
        return 0
    try:
        return store.engine.pack_set.bytes_of(queue.queue_id, queue.log_start)
    except Corrupt:
        return 0  # those who read the records are told, and so is who looks at the damages


def _size(directory: str) -> int:
    """Files may go while we look: retention and deletion do not wait for us."""
    total = 0
    try:
        with os.scandir(directory) as files:
            for file in files:
                if file.name.endswith(_LOG_SUFFIX):
                    try:
                        total += file.stat().st_size
                    except FileNotFoundError:
                        continue
    except FileNotFoundError:
        return 0
    return total
