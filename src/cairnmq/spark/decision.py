"""Exactly once: which transactions count, decided by the driver and written down before any of them ends. No I/O.

Tasks leave their transactions open. The driver stores one decision for a micro-batch, then commits what it names. A
run that died in between is followed by one that is given the same batch again: what was decided is then finished, and
what the tasks have written anew is aborted; what was not decided is aborted, and the new writing counts.

One driver at a time is in charge of a query: whoever takes over fences the one before, and looks what that has decided
before it decides itself. Aborting is not fenced, so it is only for what will never count, whoever finds it, and however
late: what else a run has written when it settles a batch; and what all runs had open before a decision, once that is
stored. Whoever stored it was in charge all the time, so nobody can have come to a later batch before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from cairnmq.client.transactions import OpenTransaction, Transaction
from cairnmq.spark.errors import SparkSourceError

LEAST_SECONDS_LEFT = 30


class Fenced(SparkSourceError):
    """Another driver, or another process of this one, has taken over since."""


class TooLate(SparkSourceError):
    """What was written for a batch is aborted, or will be before it can be committed."""


class Decision(Struct, frozen=True):
    """These transactions are all of a batch. A run is one start of a query."""

    query: str
    batch: int
    run: str
    transactions: tuple[Transaction, ...]


class Broker(Protocol):
    """What the driver asks; transaction_view.py asks a broker for it."""

    def take_over(self, query: str) -> None:
        """From now on nobody who did so before can store a decision."""

    def last_decision(self, query: str) -> Decision | None: ...

    def store(self, decision: Decision) -> None:
        """Fenced: it may be stored all the same, if an answer was lost."""

    def commit(self, transaction: Transaction) -> bool:
        """False: it was aborted before; committing twice is no matter."""

    def abort(self, transaction: Transaction) -> None:
        """Also if it is already."""

    def open(self, query: str) -> Sequence[OpenTransaction]:
        """Those of all runs."""


def prefix(query: str) -> str:
    """Of the transactional ids of all tasks of a query."""
    return f"cairnmq-spark-{query}-"


def run_prefix(query: str, run: str) -> str:
    """Of those of one run; task_names.py says what follows."""
    return f"{prefix(query)}{run}-"


def settle(broker: Broker, mine: Decision, now_ms: int, *, in_charge: bool) -> None:
    """Makes a batch count, once. Who is in charge need not look for what others have left."""
    if in_charge:
        try:
            _decide(broker, mine, now_ms)
            return
        except (Fenced, TooLate):
            pass  # whoever took over may have settled this very batch
    broker.take_over(mine.query)
    last = broker.last_decision(mine.query)
    if last is not None and _was_settled(broker, last, mine):
        give_up(broker, mine.query, mine.run)
    else:
        _decide(broker, mine, now_ms)


def settle_at_once(broker: Broker, mine: Decision, now_ms: int) -> None:
    """For a batch query, which nobody starts again: without a decision on record."""
    others = _check_open(broker, mine, now_ms)
    if not finish(broker, mine):
        raise SparkSourceError(_lost(mine, "before they could be committed; nothing was written"))
    _abort(broker, others)


def give_up(broker: Broker, query: str, run: str) -> None:
    """Of a run that has no decision to commit: nothing that its tasks have open counts."""
    _abort(broker, _of_run(broker.open(query), query, run))


def finish(broker: Broker, decision: Decision) -> bool:
    """Commits all of it; False: the broker had aborted all of it."""
    done = [broker.commit(transaction) for transaction in decision.transactions]
    if any(done) and not all(done):
        raise SparkSourceError(_lost(decision, "in part, so that some of its rows are missing"))
    return all(done)


def _was_settled(broker: Broker, last: Decision, mine: Decision) -> bool:
    """Says whether this very batch was decided, and ends that. Spark goes on to a later one only when that is done."""
    if last.batch > mine.batch:
        raise SparkSourceError(
            f"batch {mine.batch} of query {mine.query} was written before, and batch {last.batch} after it: the "
            "checkpoint is older than what was written; begin with a new checkpoint and the offsets to go on from"
        )
    return last.batch == mine.batch and finish(broker, last)


def _decide(broker: Broker, mine: Decision, now_ms: int) -> None:
    others = _check_open(broker, mine, now_ms)
    if mine.transactions:
        broker.store(mine)
        if not finish(broker, mine):
            raise SparkSourceError(_lost(mine, "before they could be committed; start the query again"))
        _abort(broker, others)
    else:
        _abort(broker, _of_run(others, mine.query, mine.run))  # nothing was stored: who else is in charge is not known


def _check_open(broker: Broker, mine: Decision, now_ms: int) -> list[OpenTransaction]:
    """Ours are open, and have time enough to be committed; gives the others."""
    found = {each.transaction: each for each in broker.open(mine.query)}
    for transaction in mine.transactions:
        own = found.pop(transaction, None)
        if own is None or own.start_ms + own.timeout_ms - now_ms < LEAST_SECONDS_LEFT * 1000:
            for each in mine.transactions:
                broker.abort(each)
            raise TooLate(
                f"writing took longer than the time limit of transactions, so that {transaction.transactional_id} "
                "was or will be aborted; raise kafka.transaction.timeout.ms (and the broker's "
                "transaction.max.timeout.ms), or take smaller batches"
            )
    return list(found.values())


def _of_run(found: Iterable[OpenTransaction], query: str, run: str) -> list[OpenTransaction]:
    return [each for each in found if each.transaction.transactional_id.startswith(run_prefix(query, run))]


def _abort(broker: Broker, found: Iterable[OpenTransaction]) -> None:
    for each in found:
        broker.abort(each.transaction)


def _lost(decision: Decision, how: str) -> str:
    return (
        f"transactions of batch {decision.batch} were aborted by their time limit {how} "
        f"(query {decision.query}, {len(decision.transactions)} transactions)"
    )
