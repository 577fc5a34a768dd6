"""Exactly once: which transactions count, decided by the driver and written down before any of them ends. No I/O.

Tasks leave their transactions open. The driver stores one decision for a micro-batch, then commits what it names. A
run that died in between is followed by one that is given the same batch again: what was decided is then finished, and
what the tasks have written anew is aborted; what was not decided is aborted, and the new writing counts.

One driver at a time is in charge of a query: whoever takes over fences the one before, and looks what that has decided
before it decides itself. Aborting is not fenced, so it is only for what will never count, whoever finds it, and however
late: what else a run has written when it settles a batch; and what all runs had open before a decision, once that is
stored. Whoever stored it was in charge all the time, so nobody can have come to a later batch before.

Of the transactions of a batch the first is committed first, and what becomes of it is what all must become: whoever
finds it committed commits the rest, whoever finds it aborted aborts the rest.

So a decision can be undone until the first is committed, and is, where too little time is left to commit all: whoever
sees that aborts the first, and then asks to commit it as ever, because another may have been faster. The decision stays
on record until its batch is decided anew, and needs no note that it was undone: nobody believes a decision before the
broker has said that its first transaction is committed. If it has forgotten that one, the query stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from cairnmq.client.transactions import OpenTransaction, Transaction
from cairnmq.spark.errors import SparkSourceError


class Fenced(SparkSourceError):
    """Another driver, or another process of this one, has taken over since."""


class TooLate(SparkSourceError):
    """What was written for a batch is aborted, or will be before it can be committed."""


class Decision(Struct, frozen=True):
    """These transactions are all of a batch. A run is one start of a query. What was written, by which another batch of
    the same number is told apart: None where rows name their topics, or where nobody noted it."""

    query: str
    batch: int
    run: str
    transactions: tuple[Transaction, ...]
    topic: str | None = None
    rows: int | None = None


class TimeLimit(Struct, frozen=True):
    """How much of the time limit of transactions must be left when they are decided on: what deciding and committing
    may take if the broker is away meanwhile. At most half of the limit, so that there is time to write. To commit what
    was decided, half of that must be left."""

    clock: Callable[[], int]
    margin_ms: int

    def too_late_to_decide(self, found: OpenTransaction) -> bool:
        return self._left_ms(found) < self._needed_ms(found)

    def too_late_to_commit(self, found: OpenTransaction) -> bool:
        return self._left_ms(found) < self._needed_ms(found) // 2

    def _left_ms(self, found: OpenTransaction) -> int:
        return found.start_ms + found.timeout_ms - self.clock()

    def _needed_ms(self, found: OpenTransaction) -> int:
        return min(found.timeout_ms // 2, self.margin_ms)


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


def settle(broker: Broker, mine: Decision, limit: TimeLimit, *, in_charge: bool) -> str | None:
    """Makes a batch count, once. Who is in charge need not look for what others have left. Gives a sentence if what
    counts is not what was written now, as far as that can be seen."""
    late: TooLate | None = None
    if in_charge:
        try:
            _decide(broker, mine, limit)
            return None
        except Fenced:
            pass
        except TooLate as told:
            late = told
        # Whoever took over may have settled this very batch.
    broker.take_over(mine.query)
    last = broker.last_decision(mine.query)
    if last is None or not _was_settled(broker, last, mine, limit):
        if late is not None:
            raise late
        _decide(broker, mine, limit)
        return None
    give_up(broker, mine.query, mine.run)
    return _difference(last, mine)


def settle_at_once(broker: Broker, mine: Decision, limit: TimeLimit) -> None:
    """For a batch query, which nobody starts again: without a decision on record."""
    own, others = _check_open(broker, mine, limit)
    if not _finish(broker, mine, limit, own):
        raise SparkSourceError(_lost(mine, "before they could be committed; nothing was written"))
    _abort(broker, others)


def go_on_at_once(broker: Broker, mine: Decision, limit: TimeLimit) -> None:
    """When settle_at_once() has failed, perhaps with some of them committed: then all must be."""
    _finish_later(broker, mine, limit)
    give_up(broker, mine.query, mine.run)


def give_up(broker: Broker, query: str, run: str) -> None:
    """Of a run that has no decision to commit: nothing that its tasks have open counts."""
    _abort(broker, _of_run(broker.open(query), query, run))


def _finish(broker: Broker, decision: Decision, limit: TimeLimit, still: Mapping[Transaction, OpenTransaction]) -> bool:
    """Commits all of it; False: the first was aborted, and so all of it is. `still`: what was open a moment ago. If not
    all are, or not for long enough, and nobody has begun to commit, none may be committed; whether somebody has is what
    committing the first one tells."""
    if not decision.transactions:
        return True
    first, *others = decision.transactions
    in_time = all(each in still and not limit.too_late_to_commit(still[each]) for each in decision.transactions)
    if first in still and not in_time:
        broker.abort(first)
    if not broker.commit(first):
        for each in others:
            broker.abort(each)
        return False
    done = [broker.commit(each) for each in others]
    if not all(done):
        raise SparkSourceError(_lost(decision, "after some were committed, so rows of it are missing"))
    return True


def _finish_later(broker: Broker, decision: Decision, limit: TimeLimit) -> bool:
    """The same, when time has passed since they were looked at."""
    return _finish(broker, decision, limit, {each.transaction: each for each in broker.open(decision.query)})


def _was_settled(broker: Broker, last: Decision, mine: Decision, limit: TimeLimit) -> bool:
    """Says whether this very batch was decided, and ends that. Spark goes on to a later one only when that is done."""
    if last.batch > mine.batch:
        raise SparkSourceError(
            f"batch {mine.batch} of query {mine.query} was written before, and batch {last.batch} after it: the "
            "checkpoint is older than the written data; start with a new checkpoint and explicit starting offsets"
        )
    return last.batch == mine.batch and _finish_later(broker, last, limit)


def _difference(last: Decision, mine: Decision) -> str | None:
    """What counts was written by an earlier run: is it what this one would have written?"""
    what = f"batch {mine.batch} of query {mine.query} was written before"
    if last.rows is None:
        return None
    if last.topic != mine.topic:
        raise SparkSourceError(
            f"{what}, to {_target(last)}, and now goes to {_target(mine)}: run the query with its former target until "
            "this batch is done, or start with a new checkpoint and explicit starting offsets"
        )
    if last.rows != mine.rows:
        return f"{what} with {last.rows} rows, which are kept; the {mine.rows} rows of this run are dropped"
    return None


def _target(decision: Decision) -> str:
    return "the topics of its rows" if decision.topic is None else f"topic {decision.topic}"


def _decide(broker: Broker, mine: Decision, limit: TimeLimit) -> None:
    own, others = _check_open(broker, mine, limit)
    if mine.transactions:
        broker.store(mine)
        if not _finish(broker, mine, limit, own):
            raise SparkSourceError(_lost(mine, "before they could be committed; start the query again"))
        _abort(broker, others)
    else:
        _abort(broker, _of_run(others, mine.query, mine.run))  # nothing was stored: who else is in charge is not known


def _check_open(
    broker: Broker, mine: Decision, limit: TimeLimit
) -> tuple[dict[Transaction, OpenTransaction], list[OpenTransaction]]:
    """Ours are open, and have time enough to be committed; gives them, and the others."""
    own: dict[Transaction, OpenTransaction] = {}
    others = {each.transaction: each for each in broker.open(mine.query)}
    for transaction in mine.transactions:
        found = others.pop(transaction, None)
        if found is None or limit.too_late_to_decide(found):
            for each in mine.transactions:
                broker.abort(each)
            how = "was aborted" if found is None else "has too little time left to commit"
            raise TooLate(
                f"writing took longer than the transaction timeout: {transaction.transactional_id} {how}; "
                "raise kafka.transaction.timeout.ms (and the broker's transaction.max.timeout.ms), or take smaller "
                "batches"
            )
        own[transaction] = found
    return own, list(others.values())


def _of_run(found: Iterable[OpenTransaction], query: str, run: str) -> list[OpenTransaction]:
    return [each for each in found if each.transaction.transactional_id.startswith(run_prefix(query, run))]


def _abort(broker: Broker, found: Iterable[OpenTransaction]) -> None:
    for each in found:
        broker.abort(each.transaction)


def _lost(decision: Decision, how: str) -> str:
    return (
        f"transactions of batch {decision.batch} were aborted at their timeout {how} "
        f"(query {decision.query}, {len(decision.transactions)} transactions)"
    )
