"""The entries of one journal, folded into queues, tails and keyed facts: at a start and by a follower, one function.

What is folded counts: it is replicated. Nothing else is ever folded but by a leader, which can undo it.
"""

from __future__ import annotations

from collections.abc import Mapping

from cairnmq.codec.batch import CONTROL_BIT
from cairnmq.errors import Corrupt
from cairnmq.storage.files.format import BATCH, DURABLE_FLAG, ENTRY_SIZE, FACT, Entry, Keyed, StartMoved, decode_fact
from cairnmq.storage.live.queue import Queue, Waiting
from cairnmq.storage.live.unreplicated import Keyeds, put_keyed

EVERYTHING = 1 << 63


class JournalFold:
    """`position`: everything before it is folded. `limit`: nothing behind it may be, the replicated end. `durable_end`:
    durable entries behind it are not visible yet. `next_queue`: the metadata's; of an id from there on they know
    nothing yet, so it is not deleted, and what is behind it waits (R7)."""

    __slots__ = (
        "number",
        "queues",
        "keyed",
        "position",
        "limit",
        "durable_end",
        "next_queue",
        "waiting",
        "batches",
        "gaps",
    )

    def __init__(
        self,
        number: int,
        queues: Mapping[int, Queue],
        keyed: Keyeds,
        position: int,
        waiting: Waiting | None = None,
        *,
        limit: int = EVERYTHING,
        durable_end: int = EVERYTHING,
        next_queue: int = EVERYTHING,
    ) -> None:
        self.number = number
        self.queues = queues
        self.keyed = keyed
        self.position = position
        self.limit = limit
        self.durable_end = durable_end
        self.next_queue = next_queue
        self.waiting = Waiting() if waiting is None else waiting
        self.batches = 0
        self.gaps: dict[int, Corrupt] = {}  # queues whose records do not go on where they end

    def takes(self, entry: Entry) -> bool:
        """Whether it may be folded; if not, nothing behind it may."""
        return entry.end <= self.limit and entry.queue_id < self.next_queue

    def add(self, entry: Entry, now_ms: int) -> Queue | None:
        """Folds the next entry in; returns the queue if readers may see more of it."""
        assert entry.position == self.position
        self.position = entry.end
        queue = self.queues.get(entry.queue_id)
        if queue is not None:
            queue.journal = (
                self.number
            )  # where it has entries behind the checkpoint it stays, whatever the settings say
        if entry.kind == BATCH:
            self.batches += 1
            if queue is not None and entry.queue_id not in self.gaps:
                return self._add_batch(queue, entry, now_ms)
        elif entry.kind == FACT:
            fact = decode_fact(entry.payload)
            if isinstance(fact, Keyed):
                put_keyed(self.keyed, fact)
            elif isinstance(fact, StartMoved) and queue is not None:
                queue.move_start(fact.offset)
        return None

    def _add_batch(self, queue: Queue, entry: Entry, now_ms: int) -> Queue | None:
        state = queue.state
        known = state.producers.get(entry.producer_id)
        try:
            state.follow(entry, queue.topic, queue.partition, now_ms)
        except Corrupt as gap:  # kept: that the metadata are older would be the better reason
            self.gaps[entry.queue_id] = gap.with_traceback(None)
            return None
        hidden = entry.end > self.durable_end and bool(entry.flags & DURABLE_FLAG)
        if hidden and known is not None and known.txn_start >= 0 and entry.attributes & CONTROL_BIT:
            state.ends(known.txn_start, entry.last_offset)
        position, size = entry.position + ENTRY_SIZE, len(entry.payload)
        shown = queue.add(
            entry.base_offset, entry.last_offset + 1, position, size, entry.max_timestamp, hidden, self.waiting
        )
        return queue if shown else None
