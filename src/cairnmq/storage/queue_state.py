"""What storage knows of one queue, as a fold over its journal entries: live, at recovery and in the splitter.

One fold in three places is the reason why a restart gives the state that was lost (invariant 10).
"""

from __future__ import annotations

from cairnmq.codec.batch import HEADER
from cairnmq.errors import Corrupt
from cairnmq.storage.format import Entry, ProducerRow, QueueRow
from cairnmq.storage.producers import Producers, after
from cairnmq.types import Buffer


class QueueState:
    """Log start, end offset, epoch starts, producers. `end` is the next offset to give."""

    __slots__ = ("log_start", "end", "epochs", "producers")

    def __init__(self, log_start: int = 0, end: int = 0) -> None:
        self.log_start = log_start
        self.end = end
        self.epochs: list[tuple[int, int]] = []
        self.producers: Producers = {}

    def apply_batch(self, batch: Buffer, now_ms: int) -> tuple[int, int]:
        """Folds a stored batch in; returns (base offset, maximum timestamp). `now_ms` dates the producer's state."""
        base, _, epoch, _, _, _, delta, _, max_timestamp, pid, producer_epoch, sequence, _ = HEADER.unpack_from(batch)
        self.apply(base, base + delta, epoch, pid, producer_epoch, sequence, now_ms)
        return base, max_timestamp

    def follow(self, entry: Entry, topic: str, partition: int, now_ms: int) -> None:
        """Folds a batch from a journal in; it must go on where the queue ends."""
        base = entry.base_offset
        if base != self.end:
            raise Corrupt(
                f"journal position {entry.position}: {topic}-{partition} (queue {entry.queue_id}) goes on at offset "
                f"{base} instead of {self.end}"
            )
        self.apply(
            base,
            entry.last_offset,
            entry.leader_epoch,
            entry.producer_id,
            entry.producer_epoch,
            entry.base_sequence,
            now_ms,
        )

    def apply(
        self, base: int, last: int, epoch: int, pid: int, producer_epoch: int, sequence: int, now_ms: int
    ) -> None:
        """`apply_batch` for those who have read the header already."""
        epochs = self.epochs
        if not epochs or epochs[-1][0] < epoch:
            if epochs and epochs[-1][1] == base:
                epochs.pop()  # it holds no record; so a start moved before or after this batch gives the same
            epochs.append((epoch, base))
        if pid >= 0 and sequence >= 0:
            known = self.producers.get(pid)
            # Not `count`: Kafka's compaction takes records out of a batch, and its sequences stay.
            self.producers[pid] = after(known, pid, producer_epoch, sequence, last - base + 1, base, now_ms)
        self.end = last + 1

    def move_start(self, offset: int) -> None:
        """Drops epoch starts nobody can ask for any more, but keeps the one the log start lies in."""
        if offset <= self.log_start:
            return
        self.log_start = offset
        self.end = max(self.end, offset)
        self._forget_epochs()

    def _forget_epochs(self) -> None:
        later = [pair for pair in self.epochs if pair[1] > self.log_start]
        within = [pair for pair in self.epochs if pair[1] <= self.log_start]
        self.epochs = ([(within[-1][0], self.log_start)] if within else []) + later

    def take_back(self, end: int, epochs: list[tuple[int, int]] | None) -> None:
        """Undoes a batch that began at `end`; `epochs` are those before it, if it began one."""
        self.end = end
        if epochs is not None:
            self.epochs = epochs
            self._forget_epochs()  # the log start may have moved since

    def epoch_end(self, epoch: int, current: int, end: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset), as OffsetForLeaderEpoch answers; (-1, -1) if none."""
        if epoch > current:
            return -1, -1
        if epoch == current:
            return epoch, end
        found = -1
        for known, start in self.epochs:
            if known > epoch:
                return (found, start) if found >= 0 else (epoch, start)
            found = known
        return (found, end) if found >= 0 else (-1, -1)

    def epoch_of(self, offset: int) -> tuple[int, int]:
        """The leader epoch of the record at `offset`, and up to where records have it; (-1, end) if it is not known."""
        until = self.end
        for epoch, start in reversed(self.epochs):
            if start <= offset:
                return epoch, until
            until = start
        return -1, until

    def to_row(self, queue_id: int, segments_from: int, packed_bytes: int) -> QueueRow:
        epochs, producers = tuple(self.epochs), tuple(self.producers.values())
        return QueueRow(queue_id, self.log_start, self.end, epochs, producers, segments_from, packed_bytes)

    @classmethod
    def from_row(cls, row: QueueRow) -> QueueState:
        state = cls(row.log_start, row.end)
        state.epochs = list(row.epochs)
        state.producers = {producer.producer_id: producer for producer in row.producers}
        return state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueState) and all(getattr(self, s) == getattr(other, s) for s in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


__all__ = ["ProducerRow", "QueueState"]
