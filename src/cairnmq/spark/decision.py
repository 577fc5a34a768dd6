"""Exactly once: which transactions count, decided by the driver and written down before any of them ends. No I/O.

Tasks leave their transactions open. The driver stores one decision for a micro-batch, then commits what it names. A
run that died in between is followed by one that is given the same batch again: what was decided is then finished, and
what the tasks have written anew is aborted; what was not decided is aborted, and the new writing counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cairnmq.client.transactions import OpenTransaction, Transaction
from cairnmq.spark.errors import SparkSourceError

LEAST_SECONDS_LEFT = 30


class Decision(Struct, frozen=True):
    """These transactions are all of a batch. A run is one start of a query."""

    query: str
    batch: int
    run: str
    transactions: tuple[Transaction, ...]


class Broker(Protocol):
    """What the driver asks; transaction_view.py asks a broker for it."""

    def last_decision(self, query: str) -> Decision | None: ...

    def store(self, decision: Decision) -> None: ...

    def commit(self, transaction: Transaction) -> bool:
        """False: it was aborted before; committing twice is no matter."""

    def abort(self, transaction: Transaction) -> None:
        """Also if it is already."""

    def open(self, query: str) -> Sequence[OpenTransaction]:
        """Those of all runs."""


def settle(broker: Broker, mine: Decision, now_ms: int, *, first_of_run: bool) -> None:
    """Makes a batch count, once. Later batches of a run need not look for what an earlier run has left."""
    if first_of_run:
        last = broker.last_decision(mine.query)
        if last is not None and _was_settled(broker, last, mine):
            for transaction in mine.transactions:
                broker.abort(transaction)
            return
    _check_open(broker, mine, now_ms)
    if mine.transactions:
        broker.store(mine)
        if not finish(broker, mine):
            raise SparkSourceError(_lost(mine, "before they could be committed; start the query again"))


def settle_at_once(broker: Broker, mine: Decision, now_ms: int) -> None:
    """For a batch query, which nobody starts again: without a decision on record."""
    _check_open(broker, mine, now_ms)
    if not finish(broker, mine):
        raise SparkSourceError(_lost(mine, "before they could be committed; nothing was written"))


def finish(broker: Broker, decision: Decision) -> bool:
    """Commits all of it; False: the broker had aborted all of it."""
    done = [broker.commit(transaction) for transaction in decision.transactions]
    if any(done) and not all(done):
        raise SparkSourceError(_lost(decision, "in part, so that some of its rows are missing"))
    return all(done)


def _was_settled(broker: Broker, last: Decision, mine: Decision) -> bool:
    """Ends what an earlier run has decided; says whether that was this very batch."""
    if last.batch > mine.batch:
        raise SparkSourceError(
            f"batch {mine.batch} of query {mine.query} was written before, and batch {last.batch} after it: the "
            "checkpoint is older than what was written; begin with a new checkpoint and the offsets to go on from"
        )
    return finish(broker, last) and last.batch == mine.batch


def _check_open(broker: Broker, mine: Decision, now_ms: int) -> None:
    """Aborts what belongs to no decision; then all that is left is ours, and has time enough to be committed."""
    left = {each.transaction: each.start_ms + each.timeout_ms - now_ms for each in broker.open(mine.query)}
    for transaction in left.keys() - set(mine.transactions):
        broker.abort(transaction)
    for transaction in mine.transactions:
        if left.get(transaction, 0) < LEAST_SECONDS_LEFT * 1000:
            raise SparkSourceError(
                f"writing took longer than the time limit of transactions, so that {transaction.transactional_id} "
                "was or will be aborted; raise kafka.transaction.timeout.ms (and the broker's "
                "transaction.max.timeout.ms), or take smaller batches"
            )


def _lost(decision: Decision, how: str) -> str:
    return (
        f"transactions of batch {decision.batch} were aborted by their time limit {how} "
        f"(query {decision.query}, {len(decision.transactions)} transactions)"
    )
