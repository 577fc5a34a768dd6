"""What storage knows of one queue, as a fold over its journal entries: live, at recovery and in the splitter.

One fold in three places is the reason why a restart gives the state that was lost (invariant 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cairnmq.codec.batch import CONTROL_BIT, HEADER, TRANSACTIONAL_BIT
from cairnmq.errors import Corrupt
from cairnmq.storage.batches.markers import read_marker
from cairnmq.storage.files.format import (
    NOT_COMPACTED,
    Aborted,
    CompactionRow,
    Entry,
    ProducerRow,
    QueueRow,
    RowSum,
    homes_of,
)
from cairnmq.storage.queue.producers import NO_PRODUCERS, Producers, after, after_marker
from cairnmq.storage.queue.transactions import Transactions
from cairnmq.types import Buffer


class QueueState:
    """Log start, end offset, epoch starts, producers, transactions. `end` is the next offset to give.

    An open transaction is a field of its producer's row; `transactions` is None as long as there is nothing to know.
    """

    __slots__ = ("log_start", "end", "epochs", "producers", "transactions")

    def __init__(self, log_start: int = 0, end: int = 0) -> None:
        self.log_start = log_start
        self.end = end
        self.epochs: list[tuple[int, int]] = []
        self.producers: Producers = NO_PRODUCERS
        self.transactions: Transactions | None = None

    def apply_batch(self, batch: Buffer, now_ms: int) -> tuple[int, int]:
        """Folds a stored batch in; returns (base offset, maximum timestamp). `now_ms` dates the producer's state."""
        base, _, epoch, _, _, bits, delta, _, max_timestamp, pid, producer_epoch, sequence, _ = HEADER.unpack_from(
            batch
        )
        self.apply(base, base + delta, epoch, pid, producer_epoch, sequence, now_ms, bits, batch)
        return base, max_timestamp

    def follow(self, entry: Entry, topic: str, partition: int, now_ms: int) -> None:
        """Folds a batch from a journal in; it must go on where the queue ends."""
        base = entry.base_offset
        if base != self.end:
            raise Corrupt(
                f"journal position {entry.position}: {topic}-{partition} (queue {entry.queue_id}) continues at offset "
                f"{base} instead of {self.end}"
            )
        self.fold(entry, now_ms)

    def fold(self, entry: Entry, now_ms: int) -> None:
        """`apply` for a batch from a journal."""
        self.apply(
            entry.base_offset,
            entry.last_offset,
            entry.leader_epoch,
            entry.producer_id,
            entry.producer_epoch,
            entry.base_sequence,
            now_ms,
            entry.attributes,
            entry.payload,
        )

    def apply(
        self,
        base: int,
        last: int,
        epoch: int,
        pid: int,
        producer_epoch: int,
        sequence: int,
        now_ms: int,
        attributes: int = 0,
        batch: Buffer = b"",
    ) -> None:
        """`apply_batch` for those who have read the header already. Of a control batch all of it is needed."""
        epochs = self.epochs
        if not epochs or epochs[-1][0] < epoch:
            if epochs and epochs[-1][1] == base:
                epochs.pop()  # it holds no record; so a start moved before or after this batch gives the same
            epochs.append((epoch, base))
        if pid >= 0 and sequence >= 0 and not attributes & CONTROL_BIT:
            known = self.producers.get(pid)
            transactional = bool(attributes & TRANSACTIONAL_BIT)
            # Not `count`: Kafka's compaction takes records out of a batch, and its sequences stay.
            row = after(known, pid, producer_epoch, sequence, last - base + 1, base, now_ms, transactional)
            self._put(row)
            if row.txn_start == base:
                self._transactions().begin(pid, base)
        elif pid >= 0 and attributes & CONTROL_BIT:
            self._end_transaction(last, pid, producer_epoch, now_ms, batch)
        self.end = last + 1

    def _put(self, row: ProducerRow) -> None:
        if self.producers:
            self.producers[row.producer_id] = row
        else:
            self.producers = {row.producer_id: row}

    def _transactions(self) -> Transactions:
        if self.transactions is None:
            self.transactions = Transactions()
        return self.transactions

    def _end_transaction(self, offset: int, pid: int, producer_epoch: int, now_ms: int, batch: Buffer) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        commit, coordinator_epoch = marker
        known = self.producers.get(pid)
        self._put(after_marker(known, pid, producer_epoch, coordinator_epoch, now_ms))
        transactions = self.transactions
        if known is None or known.txn_start < 0 or transactions is None:
            return
        transactions.open.pop(pid, None)
        if not commit:
            stable = transactions.undecided(offset + 1)
            transactions.aborted.append(Aborted(pid, known.txn_start, offset, stable))
        self.rest()

    def rest(self) -> None:
        """A queue about whose transactions nothing is left to know keeps no memory of them."""
        if not self.transactions:
            self.transactions = None

    @property
    def open_transactions(self) -> dict[int, int]:
        """Producer id -> first offset."""
        return self.transactions.open if self.transactions is not None else {}

    @property
    def aborted(self) -> list[Aborted]:
        """Those that no `.txnindex` holds: their markers lie in the tail or in packs."""
        return self.transactions.aborted if self.transactions is not None else []

    def ends(self, first: int, marker: int) -> None:
        """The transaction that began at `first` counts as open until its marker is visible."""
        self._transactions().ending.append((first, marker))

    def stable(self, visible: int) -> int:
        if self.transactions is None:
            return visible
        return max(self.transactions.stable(visible), self.log_start)

    def forget_aborted(self, start: int, end: int) -> None:
        if self.transactions is not None:
            self.transactions.forget(start, end)
            self.rest()

    def take_aborted(self, start: int) -> list[Aborted]:
        """Those with a marker at `start` or behind: from now on a `.txnindex` holds them."""
        rows = [row for row in self.aborted if row.last >= start]
        self.forget_aborted(start, self.end)
        return rows

    def add_aborted(self, rows: Iterable[Aborted]) -> None:
        self._transactions().add_aborted(rows)
        self.rest()

    def restore(self, producer_id: int, before: ProducerRow | None) -> None:
        """Undoes what a batch did to its producer."""
        if before is not None:
            self._put(before)
        elif producer_id in self.producers:
            del self.producers[producer_id]
        if before is not None and before.txn_start >= 0:
            self._transactions().begin(producer_id, before.txn_start)
        elif self.transactions is not None:
            self.transactions.open.pop(producer_id, None)
            self.rest()

    def move_start(self, offset: int) -> None:
        """Drops epoch starts nobody can ask for any more, but keeps the one the log start lies in."""
        if offset <= self.log_start:
            return
        self.log_start = offset
        self.end = max(self.end, offset)
        self._forget_epochs()
        self.forget_aborted(0, offset)

    def _forget_epochs(self) -> None:
        later = [pair for pair in self.epochs if pair[1] > self.log_start]
        within = [pair for pair in self.epochs if pair[1] <= self.log_start]
        self.epochs = ([(within[-1][0], self.log_start)] if within else []) + later

    def take_back(self, end: int, epochs: list[tuple[int, int]] | None) -> None:
        """Undoes a batch that began at `end`; `epochs` are those before it, if it began one."""
        self.end = end
        if self.transactions is not None:
            self.transactions.take_back(end)
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

    def to_row(
        self,
        queue_id: int,
        segments_from: int,
        packed_bytes: int,
        compaction: CompactionRow = NOT_COMPACTED,
        row_sums: Mapping[int, RowSum] | None = None,
    ) -> QueueRow:
        return QueueRow(
            queue_id,
            self.log_start,
            self.end,
            tuple(self.epochs),
            tuple(self.producers.values()),
            homes_of(segments_from),
            packed_bytes,
            tuple(self.aborted),
            compaction,
            tuple(row_sums.items()) if row_sums else (),
        )

    @classmethod
    def from_row(cls, row: QueueRow) -> QueueState:
        state = cls(row.log_start, row.end)
        state.epochs = list(row.epochs)
        if row.producers:
            state.producers = {producer.producer_id: producer for producer in row.producers}
        for producer in sorted(row.producers, key=lambda producer: producer.txn_start):
            if producer.txn_start >= 0:
                state._transactions().begin(producer.producer_id, producer.txn_start)
        if row.aborted:
            state._transactions().aborted.extend(row.aborted)
        return state

    def __eq__(self, other: object) -> bool:
        compared = ("log_start", "end", "epochs", "producers", "open_transactions", "aborted")
        return isinstance(other, QueueState) and all(getattr(self, s) == getattr(other, s) for s in compared)

    __hash__ = None  # type: ignore[assignment]


__all__ = ["ProducerRow", "QueueState"]
