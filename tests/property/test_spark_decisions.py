"""Exactly once in a model: drivers die and pause at any step, others take over, and rows are spread anew; each row
counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from threading import Semaphore, Thread

import pytest

from cairnmq.client.transactions import OpenTransaction, Transaction
from cairnmq.spark.decision import (
    Decision,
    Fenced,
    TimeLimit,
    give_up,
    go_on_at_once,
    settle,
    settle_at_once,
    transactional_id,
)
from cairnmq.spark.errors import SparkSourceError

QUERY = "q"
TIMEOUT_MS = 900_000
BATCHES = 4
ROWS = 3  # of each batch
MARGIN_MS = 240_000
AT_ONCE = TimeLimit(lambda: 0, MARGIN_MS)


class Died(Exception):
    pass


class Model:
    """Brokers, which know transactions and decisions, and Spark's checkpoint, which knows batches."""

    def __init__(self, *, loses_answers: bool = False) -> None:
        self.loses_answers = loses_answers
        self.rows: dict[Transaction, list[int]] = {}
        self.open_now: set[Transaction] = set()
        self.committed: set[Transaction] = set()
        self.decision: Decision | None = None
        self.epoch = 0
        self.runs = 0
        self.noted: set[int] = set()

    def write(self, batch: int, run: int, partition: int, rows: list[int]) -> Transaction:
        name = transactional_id(QUERY, batch, str(run), partition, len(self.rows))
        transaction = Transaction(name, len(self.rows), 0)
        self.rows[transaction] = rows
        self.open_now.add(transaction)
        return transaction

    def visible(self) -> Counter[int]:
        return Counter(row for transaction in self.committed for row in self.rows[transaction])


class View:
    """The model as one driver sees it, who may be held up before and after each effect."""

    def __init__(self, model: Model, pause: Callable[[], None] = lambda: None) -> None:
        self.model = model
        self.pause = pause
        self.epoch: int | None = None

    def take_over(self, query: str) -> None:
        self.pause()
        self.model.epoch += 1
        self.epoch = self.model.epoch
        self.pause()

    def last_decision(self, query: str) -> Decision | None:
        self.pause()
        found = self.model.decision
        self.pause()
        return found

    def store(self, decision: Decision) -> None:
        self.pause()
        if self.epoch != self.model.epoch:
            raise Fenced("another has taken over")
        self.model.decision = decision
        self.pause()
        if self.model.loses_answers and self.epoch != self.model.epoch:
            raise Fenced("another has taken over before the answer came")

    def commit(self, transaction: Transaction) -> bool:
        self.pause()
        if transaction in self.model.open_now:
            self.model.open_now.remove(transaction)
            self.model.committed.add(transaction)
        self.pause()
        return transaction in self.model.committed

    def abort(self, transaction: Transaction) -> None:
        self.pause()
        self.model.open_now.discard(transaction)
        self.pause()

    def open(self, query: str) -> Sequence[OpenTransaction]:
        self.pause()
        found = [OpenTransaction(each, 0, TIMEOUT_MS) for each in self.model.open_now]
        self.pause()
        return found


def rows_of(batch: int) -> list[int]:
    return [batch * 100 + row for row in range(ROWS)]


def spread(model: Model, batch: int, run: int, tasks: int) -> tuple[Transaction, ...]:
    rows = rows_of(batch)
    return tuple(model.write(batch, run, task, rows[task::tasks]) for task in range(tasks))


def drive(model: Model, pause: Callable[[], None], until: int) -> None:
    """What Spark does in one run, batch after batch: writes, settles, notes."""
    run = model.runs = model.runs + 1
    batch = len(model.noted)
    view = View(model, pause)
    while batch < until:
        pause()
        if (run + batch) % 2:  # an attempt that was killed while it wrote: nobody ends its transaction
            model.write(batch, run, 0, rows_of(batch)[:1])
        if (run + batch) % 3 == 0:  # Spark has another process commit
            view = View(model, pause)
        written = spread(model, batch, run, 1 + run % ROWS)
        pause()
        mine = Decision(QUERY, batch, str(run), written, "t", ROWS)
        assert settle(view, mine, AT_ONCE, in_charge=view.epoch is not None) is None
        pause()
        if (run + batch) % 5 == 0 and batch < BATCHES - 1:  # a second attempt of a slow task, which writes on
            model.write(batch, run, 0, rows_of(batch)[:1])
        if batch in model.noted:
            return  # as Spark: "multiple streaming jobs detected"
        model.noted.add(batch)
        batch += 1


class Driver:
    """A run that goes on, by steps, when it is told to."""

    def __init__(self, model: Model, until: int) -> None:
        self._go, self._there = Semaphore(0), Semaphore(0)
        self._dying = False
        self._failure: BaseException | None = None
        self.ended = False
        self.refused: SparkSourceError | None = None
        self._thread = Thread(target=self._run, args=(model, until), daemon=True)
        self._thread.start()
        self._there.acquire()

    def step(self, count: int) -> None:
        while count and not self.ended:
            self._go.release()
            self._there.acquire()
            count -= 1
        if self._failure is not None:
            raise self._failure

    def die(self) -> None:
        self._dying = True
        self.step(1)
        self._thread.join()

    def _run(self, model: Model, until: int) -> None:
        try:
            self._pause()
            drive(model, self._pause, until)
        except Died:
            pass
        except SparkSourceError as error:
            self.refused = error
        except BaseException as error:  # noqa: BLE001 - raised where it is seen
            self._failure = error
        finally:
            self.ended = True
            self._there.release()

    def _pause(self) -> None:
        self._there.release()
        self._go.acquire()
        if self._dying:
            raise Died


def test_every_row_counts_once() -> None:
    """Two or three drivers go on in turns, each some steps further; some die there, and are started again."""
    for seed in range(1000):
        rng, model = Random(seed), Model(loses_answers=seed % 4 < 2)
        drivers: dict[int, Driver] = {}
        for _ in range(rng.randrange(4, 24)):
            who = rng.randrange(2 + seed % 2)
            if who not in drivers or drivers[who].ended:
                drivers[who] = Driver(model, BATCHES - 1)
            drivers[who].step(1 + int(rng.expovariate(1 / rng.choice((3, 12)))))
            if rng.random() < 0.1:
                drivers[who].die()
        for driver in drivers.values():
            driver.die()
        drive(model, lambda: None, BATCHES)
        every = Counter(row for batch in range(BATCHES) for row in rows_of(batch))
        assert model.visible() == every, f"seed {seed}"
        assert not model.open_now, f"seed {seed}: whoever is left ends what the others left"


def test_who_wakes_up_late_decides_nothing() -> None:
    """The first one is held up at every one of its steps in turn, while a second one does all there is to do."""
    for steps in range(1, 60):
        model = Model()
        late = Driver(model, 1)
        late.step(steps)
        if late.ended:
            break
        drive(model, lambda: None, 2)
        decided = model.decision
        late.step(1000)
        assert late.ended and model.decision == decided
        assert model.visible() == Counter([*rows_of(0), *rows_of(1)]), f"after {steps} steps"
    else:
        raise AssertionError("it never ended by itself")


def test_a_decision_whose_answer_was_lost_counts() -> None:
    """It is stored, and another takes over before that is heard: whoever stored it finds itself fenced."""
    model = Model(loses_answers=True)
    first = Driver(model, 2)
    while model.decision is None or model.decision.batch == 0:
        first.step(1)
    decided = model.decision
    View(model).take_over(QUERY)
    first.step(1000)
    assert first.ended and first.refused is None
    assert model.decision == decided and model.committed.issuperset(decided.transactions)
    assert model.visible() == Counter([*rows_of(0), *rows_of(1)])


def test_a_run_that_gives_up_ends_its_own() -> None:
    model = Model()
    mine, later, other = (model.write(batch, run, 0, [1]) for batch, run in ((3, 1), (4, 1), (3, 2)))
    give_up(View(model), QUERY, 3, "1")
    assert model.open_now == {later, other} and mine not in model.committed


def test_all_of_a_decided_batch_that_the_broker_has_aborted_is_written_anew() -> None:
    model = Model()
    model.decision = Decision(QUERY, 3, "old", (Transaction("gone", 99, 0),))
    settle(View(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 2)), AT_ONCE, in_charge=False)
    assert model.visible() == Counter(rows_of(3))


def test_a_part_of_it_is_an_error() -> None:
    model = Model()
    kept = model.write(3, 0, 0, [1])
    View(model).commit(kept)
    model.decision = Decision(QUERY, 3, "old", (kept, Transaction("gone", 99, 0)))
    with pytest.raises(SparkSourceError, match="in part"):
        settle(View(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 2)), AT_ONCE, in_charge=False)


def test_an_older_checkpoint_is_an_error() -> None:
    model = Model()
    model.decision = Decision(QUERY, 9, "old", ())
    with pytest.raises(SparkSourceError, match="the checkpoint is older"):
        settle(View(model), Decision(QUERY, 3, "new", ()), AT_ONCE, in_charge=False)


def test_too_little_time_left_is_an_error_before_anything_is_decided() -> None:
    model = Model()
    mine = Decision(QUERY, 0, "r", spread(model, 0, 0, 1))
    late = TimeLimit(lambda: TIMEOUT_MS - MARGIN_MS + 1, MARGIN_MS)
    with pytest.raises(SparkSourceError, match="too little time left"):
        settle(View(model), mine, late, in_charge=False)
    assert model.decision is None and not model.open_now
    with pytest.raises(SparkSourceError, match=r"was aborted; raise kafka\.transaction\.timeout\.ms"):
        settle_at_once(View(model), mine, AT_ONCE)


def test_time_is_looked_at_when_it_counts() -> None:
    """Taking over, and looking what was decided, may take as long as a broker is away."""
    model, now = Model(), [0]

    class Slow(View):
        def last_decision(self, query: str) -> Decision | None:
            now[0] += TIMEOUT_MS
            return super().last_decision(query)

    mine = Decision(QUERY, 0, "r", spread(model, 0, 0, 1))
    with pytest.raises(SparkSourceError, match="too little time left"):
        settle(Slow(model), mine, TimeLimit(lambda: now[0], MARGIN_MS), in_charge=False)
    assert model.decision is None


def test_at_least_half_of_the_time_limit_is_for_writing() -> None:
    limit = TimeLimit(lambda: 1000, MARGIN_MS)
    for timeout_ms, spent_ms in ((60_000, 30_000), (900_000, 660_000)):
        opened = [OpenTransaction(Transaction("t", 1, 0), 1000 - each, timeout_ms) for each in (spent_ms, spent_ms + 1)]
        assert [limit.is_near(each) for each in opened] == [False, True]


def test_a_decided_batch_of_which_a_part_is_aborted_is_written_anew_if_nobody_began_to_commit() -> None:
    """Whichever its time limit ended first."""
    for lost in range(3):
        model = Model()
        model.decision = decided = Decision(QUERY, 3, "old", spread(model, 3, 0, 3))
        model.open_now.discard(decided.transactions[lost])
        settle(View(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 2)), AT_ONCE, in_charge=False)
        assert (model.visible(), model.open_now) == (Counter(rows_of(3)), set())


def test_who_finds_the_first_aborted_commits_none() -> None:
    """Its time limit is over while the decision is stored."""

    class Slow(View):
        def store(self, decision: Decision) -> None:
            super().store(decision)
            self.model.open_now.discard(decision.transactions[0])

    model = Model()
    with pytest.raises(SparkSourceError, match="before they could be committed; start the query again"):
        settle(Slow(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 3)), AT_ONCE, in_charge=False)
    assert not model.visible() and not model.open_now
    settle(View(model), Decision(QUERY, 3, "2", spread(model, 3, 2, 2)), AT_ONCE, in_charge=False)
    assert (model.visible(), model.open_now) == (Counter(rows_of(3)), set())


def test_the_same_batch_with_other_rows_is_told() -> None:
    model = Model()
    old = Decision(QUERY, 3, "old", spread(model, 3, 0, 2), "t", ROWS)
    settle(View(model), old, AT_ONCE, in_charge=False)
    told = settle(View(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 1), "t", 7), AT_ONCE, in_charge=False)
    assert told is not None and "with 3 rows, which count; the 7 rows of this run do not" in told
    for other, name in (("u", "topic u"), (None, "the topics of its rows")):
        with pytest.raises(SparkSourceError, match=f"to topic t, and now goes to {name}"):
            mine = Decision(QUERY, 3, "1", spread(model, 3, 1, 1), other, ROWS)
            settle(View(model), mine, AT_ONCE, in_charge=False)
    assert (model.visible(), model.open_now) == (Counter(rows_of(3)), set())


def test_a_decision_that_does_not_say_what_was_written_fits() -> None:
    model = Model()
    model.decision = Decision(QUERY, 3, "old", spread(model, 3, 0, 2))
    mine = Decision(QUERY, 3, "1", spread(model, 3, 1, 2), "t", ROWS)
    assert settle(View(model), mine, AT_ONCE, in_charge=False) is None


def test_a_batch_query_leaves_no_decision() -> None:
    model = Model()
    model.write(0, 0, 0, [1])  # an attempt that was killed
    settle_at_once(View(model), Decision(QUERY, 0, "0", spread(model, 0, 0, 2)), AT_ONCE)
    assert (model.visible(), model.decision, model.open_now) == (Counter(rows_of(0)), None, set())


def test_a_batch_query_whose_commit_failed_goes_on_or_shows_nothing() -> None:
    """The commit dies at each of its steps in turn, and Spark has another process abort: all rows or none."""
    seen = set()
    for timed_out in (None, 0, 1, 2):
        for steps in range(40):
            model, left = Model(), [steps]
            mine = Decision(QUERY, 0, "0", spread(model, 0, 0, 3))
            model.write(0, 0, 0, [1])
            if timed_out is not None:
                model.open_now.discard(mine.transactions[timed_out])

            def pause(left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Died

            with suppress(Died, SparkSourceError):
                settle_at_once(View(model, pause), mine, AT_ONCE)
            go_on_at_once(View(model), mine)
            expected = rows_of(0) if timed_out is None else []
            assert model.visible() == Counter(expected), f"{timed_out} lost, died after {steps} steps"
            assert not model.open_now
            seen.add(left[0] < 0)
    assert seen == {True, False}
