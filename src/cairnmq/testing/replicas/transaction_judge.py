"""What transactions promise, held against what became durable and what clients were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cairnmq.storage.batches.markers import Marker
from cairnmq.testing.replicas.judge import Broken, Judge
from cairnmq.testing.replicas.machine import ModelJournal
from cairnmq.testing.replicas.transaction_model import Batch, Content


class TransactionJudge(Judge):
    """Folds the durable part of each journal, which never changes, and knows nothing of coordinators."""

    def __init__(self, contents: Mapping[int, Content]) -> None:
        super().__init__()
        self._contents = contents
        self._folded: dict[int, int] = {}
        self._seen: set[tuple[int, int, int, int]] = set()
        self._epochs: dict[tuple[int, int], int] = {}  # of a producer in a queue
        self._given: dict[int, list[tuple[int, int]]] = {}  # producer id -> (epoch, when a new instance was given it)
        self.open: dict[tuple[int, int], list[Batch]] = {}  # by queue and producer
        self.outcome: dict[int, bool] = {}  # of transactions, by the first marker
        self.ended: dict[int, bool] = {}  # as producers were told
        self.acknowledged_batches: list[Batch] = []
        self.offsets: dict[int, str] = {}  # transaction -> the group in which its number was committed, as was told
        self.counts: Counter[str] = Counter()

    def saw_ends(self, journal: int, replica: ModelJournal, replicated: int, durable: int) -> None:
        """What became durable is folded."""
        super().saw_ends(journal, replica, replicated, durable)
        held = self._durable[journal]
        for entry in held[self._folded.get(journal, 0) :]:
            content = self._contents.get(entry.payload)
            if isinstance(content, Batch):
                self._batch(content)
            elif isinstance(content, Marker):
                self._marker(content)
        self._folded[journal] = len(held)

    def _batch(self, batch: Batch) -> None:
        name = batch.queue, batch.producer_id, batch.epoch, batch.sequence
        if name in self._seen:
            raise Broken(f"{batch} is there twice")
        self._seen.add(name)
        for epoch, given_ms in self._given.get(batch.producer_id, ()):
            if batch.epoch < epoch and batch.staged_ms > given_ms:
                raise Broken(f"{batch} was staged after epoch {epoch} was given at {given_ms}")
        if batch.transaction in self.ended:
            raise Broken(f"{batch} became durable after its transaction had ended")
        self.open.setdefault((batch.queue, batch.producer_id), []).append(batch)

    def _marker(self, marker: Marker) -> None:
        self.counts["markers"] += 1
        for batch in self.open.pop((marker.queue_id, marker.producer_id), ()):
            self._ends(batch.transaction, marker.commit, f"queue {marker.queue_id}")

    def _ends(self, transaction: int, commit: bool, where: str) -> None:
        known = self.outcome.setdefault(transaction, commit)
        if known is not commit:
            raise Broken(f"transaction {transaction} ends as {commit} in {where}, elsewhere as {known}")
        told = self.ended.get(transaction)
        if told is not None and told is not commit:
            raise Broken(f"transaction {transaction} was told to be {told}, and ends as {commit} in {where}")

    def given(self, producer_id: int, epoch: int, now_ms: int) -> None:
        """A new instance of a producer begins."""
        self._given.setdefault(producer_id, []).append((epoch, now_ms))

    def told_end(self, transaction: int, commit: bool) -> None:
        """Its producer was told so: nothing of it may be open any more."""
        self.counts["commits" if commit else "aborts"] += 1
        self.ended[transaction] = commit
        known = self.outcome.setdefault(transaction, commit)
        if known is not commit:
            raise Broken(f"transaction {transaction} was told to be {commit}, and has ended as {known}")
        for batches in self.open.values():
            if any(batch.transaction == transaction for batch in batches):
                raise Broken(f"transaction {transaction} was told to have ended, and is open: {batches}")

    def saw_offset(self, group: str, transaction: int) -> None:
        """A group's committed offset, which is the number of a transaction."""
        if self.ended.get(transaction, True) is False or self.outcome.get(transaction, True) is False:
            raise Broken(f"group {group} is at {transaction}, which was aborted")

    def check_offsets(self, offsets: Mapping[str, int]) -> None:
        """At rest: what was committed in groups is there."""
        for transaction, group in self.offsets.items():
            if self.ended.get(transaction) and offsets.get(group, -1) < transaction:
                raise Broken(f"group {group} is at {offsets.get(group)}, and transaction {transaction} was committed")

    def check_batches(self) -> None:
        """At rest: what was acknowledged in a committed transaction is there, and nothing is open."""
        if self.open:
            raise Broken(f"transactions hang: {list(self.open)}")
        for batch in self.acknowledged_batches:
            name = batch.queue, batch.producer_id, batch.epoch, batch.sequence
            if self.ended.get(batch.transaction) and name not in self._seen:
                raise Broken(f"{batch} of a committed transaction is lost")
