"""Exactly once in a model: runs die at any step of the driver, and rows are spread anew; each row counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.client.transactions import OpenTransaction, Transaction
from cairnmq.spark.decision import LEAST_SECONDS_LEFT, Decision, settle, settle_at_once
from cairnmq.spark.errors import SparkSourceError

QUERY = "q"
TIMEOUT_MS = 900_000


class Died(Exception):
    pass


class Model:
    """A broker that knows transactions and decisions; the driver dies at a given call, before or after its effect."""

    def __init__(self) -> None:
        self.rows: dict[Transaction, list[int]] = {}
        self.open_now: set[Transaction] = set()
        self.committed: set[Transaction] = set()
        self.decision: Decision | None = None
        self.die_at: tuple[int, bool] | None = None
        self.calls = 0

    def step(self, after: bool) -> None:
        if self.die_at == (self.calls, after):
            self.die_at = None
            raise Died
        self.calls += after

    def write(self, name: str, rows: list[int]) -> Transaction:
        transaction = Transaction(name, len(self.rows), 0)
        self.rows[transaction] = rows
        self.open_now.add(transaction)
        return transaction

    def last_decision(self, query: str) -> Decision | None:
        self.step(False)
        self.step(True)
        return self.decision

    def store(self, decision: Decision) -> None:
        self.step(False)
        self.decision = decision
        self.step(True)

    def commit(self, transaction: Transaction) -> bool:
        self.step(False)
        if transaction in self.open_now:
            self.open_now.remove(transaction)
            self.committed.add(transaction)
        self.step(True)
        return transaction in self.committed

    def abort(self, transaction: Transaction) -> None:
        self.step(False)
        self.open_now.discard(transaction)
        self.step(True)

    def open(self, query: str) -> Sequence[OpenTransaction]:
        self.step(False)
        self.step(True)
        return [OpenTransaction(each, 0, TIMEOUT_MS) for each in sorted(self.open_now, key=lambda t: t.producer_id)]

    def visible(self) -> Counter[int]:
        return Counter(row for transaction in self.committed for row in self.rows[transaction])


def spread(model: Model, rows: list[int], run: int, tasks: int) -> tuple[Transaction, ...]:
    return tuple(model.write(f"{run}-{task}", rows[task::tasks]) for task in range(tasks) if rows[task::tasks])


deaths = st.tuples(st.integers(0, 12), st.booleans())


@given(st.lists(st.tuples(st.lists(deaths, max_size=4), st.integers(0, 5)), min_size=1, max_size=5), st.data())
def test_every_row_counts_once(batches: list[tuple[list[tuple[int, bool]], int]], data: st.DataObject) -> None:
    """For each batch: how its runs die, and how many rows it has."""
    model, run, first_of_run = Model(), 0, True
    every: list[int] = []
    for batch, (ends, count) in enumerate(batches):
        rows = [batch * 100 + i for i in range(count)]
        every += rows
        for end in [*ends, None]:
            model.calls, model.die_at = 0, end
            if data.draw(st.booleans()):  # a task that was killed while it wrote: nobody ends its transaction
                model.write(f"{run}-killed", rows)
            written = spread(model, rows, run, data.draw(st.integers(1, 4)))
            try:
                settle(model, Decision(QUERY, batch, str(run), written), 0, first_of_run=first_of_run)
                if end is not None and model.die_at is None:
                    raise AssertionError("it died and went on")
            except Died:
                run, first_of_run = run + 1, True
                continue
            first_of_run = False
            if model.die_at is not None and data.draw(st.booleans()):
                # Spark dies before it notes that the batch is done, and gives it to the next run.
                run, first_of_run = run + 1, True
                continue
            break
        else:
            raise AssertionError("the last try does not die")
    assert model.visible() == Counter(every)


def test_all_of_a_decided_batch_that_the_broker_has_aborted_is_written_anew() -> None:
    model = Model()
    gone = Transaction("old", 99, 0)
    model.decision = Decision(QUERY, 3, "old", (gone,))
    settle(model, Decision(QUERY, 3, "new", spread(model, [1, 2], 1, 2)), 0, first_of_run=True)
    assert model.visible() == Counter([1, 2])


def test_a_part_of_it_is_an_error() -> None:
    model = Model()
    kept = model.write("old", [1])
    model.decision = Decision(QUERY, 3, "old", (kept, Transaction("gone", 99, 0)))
    with pytest.raises(SparkSourceError, match="in part"):
        settle(model, Decision(QUERY, 3, "new", spread(model, [1, 2], 1, 2)), 0, first_of_run=True)


def test_an_older_checkpoint_is_an_error() -> None:
    model = Model()
    model.decision = Decision(QUERY, 9, "old", ())
    with pytest.raises(SparkSourceError, match="the checkpoint is older"):
        settle(model, Decision(QUERY, 3, "new", ()), 0, first_of_run=True)


def test_too_little_time_left_is_an_error_before_anything_is_decided() -> None:
    model = Model()
    mine = Decision(QUERY, 0, "r", spread(model, [1], 0, 1))
    late = TIMEOUT_MS - LEAST_SECONDS_LEFT * 1000 + 1
    with pytest.raises(SparkSourceError, match="longer than the time limit"):
        settle(model, mine, late, first_of_run=True)
    assert model.decision is None
    model.open_now.clear()
    with pytest.raises(SparkSourceError, match=r"raise kafka\.transaction\.timeout\.ms"):
        settle_at_once(model, mine, 0)


def test_a_batch_query_leaves_no_decision() -> None:
    model = Model()
    settle_at_once(model, Decision("job", -1, "batch", spread(model, [1, 2], 0, 2)), 0)
    assert (model.visible(), model.decision) == (Counter([1, 2]), None)
