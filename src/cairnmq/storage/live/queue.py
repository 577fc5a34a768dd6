"""One queue as the broker holds it in memory: what was given out, replicated, visible, split."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.split_report import QueuePlace
from cairnmq.storage.files.format import NO_SEGMENTS, Aborted, RowSum
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.queue.tail import Tail
from cairnmq.storage.segments.queue_reader import QueueReader


class Pending:
    """A run of a queue's records that must be durable to be seen. Later records that need not ride along with it."""

    __slots__ = ("position", "queue", "visible_to")

    def __init__(self, position: int, queue: Queue, visible_to: int) -> None:
        self.position = position
        self.queue = queue
        self.visible_to = visible_to


Waiting = deque[Pending]  # one journal's, in the order of their positions


def show_durable(waiting: Waiting, position: int) -> list[Queue]:
    """Everything before `position` is durable. Returns queues that have more to show."""
    advanced: list[Queue] = []
    while waiting and waiting[0].position <= position:
        pending = waiting.popleft()
        queue = pending.queue
        queue.high_watermark = max(queue.high_watermark, pending.visible_to)
        if queue.pending is pending:
            queue.pending = None
        advanced.append(queue)
    return advanced


class Queue:
    """`state.end` is the next offset to give; `end` what is replicated; `visible` what readers may see.

    split_end <= visible <= end <= state.end. An idle queue holds no tail, reader or waiter.
    """

    __slots__ = (
        "spec",
        "state",
        "journal",
        "end",
        "high_watermark",
        "split_end",
        "tail",
        "pending",
        "reader",
        "waiters",
        "unsynced_messages",
        "segments_from",
        "row_sums",
        "cut_short",
    )

    def __init__(self, spec: QueueSpec, state: QueueState, *, segments_from: int = NO_SEGMENTS) -> None:
        self.spec = spec
        self.state = state
        self.journal = spec.journal
        self.end = self.high_watermark = self.split_end = state.end
        self.tail: Tail | None = None
        self.pending: Pending | None = None
        self.reader: QueueReader | None = None
        self.waiters: set[Callable[[], None]] | None = None
        self.unsynced_messages = 0
        self.segments_from = segments_from
        self.cut_short = False  # its journal is damaged: records behind `end` may be stored that cannot be read
        self.row_sums: dict[int, RowSum] | None = None  # what is known of its `.txnindex` files; read by its reader

    def learn_sums(self, sums: Iterable[tuple[int, RowSum]]) -> None:
        """Not of a compacted queue: its files take the old ones' place before this process hears of it."""
        if sums and not self.config.compact:
            self.row_sums = {**(self.row_sums or {}), **dict(sums)}

    def lies_at(self, place: QueuePlace) -> None:
        """A checkpoint says where its records are; what this process has open and remembers is of other files."""
        self.segments_from, self.reader, self.row_sums = place.segments_from, None, None
        self.learn_sums(place.row_sums)
        self.state.forget_aborted(0, place.end)  # of those a `.txnindex` has all that the checkpoint does not name
        self.recall_aborted(place.aborted)

    def recall_aborted(self, rows: Iterable[Aborted]) -> None:
        """Aborted transactions that are no longer to be read from the queue's segments."""
        self.state.add_aborted(rows)
        self.state.forget_aborted(0, self.log_start)

    @property
    def packed_end(self) -> int:
        """Split records below lie in packs, the others in segments of the queue's own."""
        return self.split_end if self.segments_from == NO_SEGMENTS else self.segments_from

    @property
    def queue_id(self) -> int:
        return self.spec.queue_id

    @property
    def topic(self) -> str:
        return self.spec.topic

    @property
    def partition(self) -> int:
        return self.spec.partition

    @property
    def config(self) -> LogConfig:
        return self.spec.config

    @property
    def log_start(self) -> int:
        return self.state.log_start

    @property
    def last_stable(self) -> int:
        """Below this offset every transaction is decided; the visible end while none is open."""
        return self.high_watermark if self.state.transactions is None else self.state.stable(self.high_watermark)

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """Producer id -> first offset."""
        return self.state.open_transactions

    def move_start(self, offset: int) -> None:
        """Behind the end it opens an empty queue there: that offset is the first it will give."""
        self.state.move_start(offset)
        if offset > self.end:
            self.end = self.high_watermark = self.split_end = offset

    def add(
        self, offset: int, end: int, position: int, size: int, timestamp: int, durable: bool, waiting: Waiting
    ) -> bool:
        """A batch is replicated; True if readers may see more. A durable one waits, and what comes after it in this
        queue waits with it (R2)."""
        if self.tail is None:
            self.tail = Tail()
        self.tail.add(offset, position, size, timestamp)
        self.end = end
        if durable:
            self.pending = Pending(position + size, self, end)
            waiting.append(self.pending)
        elif self.pending is not None:
            self.pending.visible_to = end
        else:
            self.high_watermark = end
            return True
        return False

    def split_to(self, end: int) -> None:
        # Rounds come in order, and only records that count are split.
        assert self.split_end <= end <= self.high_watermark
        self.split_end = end
        if self.tail is not None:
            self.tail.drop_below(end)
            if not self.tail:
                self.tail = None
        if self.state.transactions is not None:
            if self.segments_from != NO_SEGMENTS:
                self.state.forget_aborted(self.segments_from, end)  # a `.txnindex` has them
            self.state.stable(self.high_watermark)
            self.state.rest()
