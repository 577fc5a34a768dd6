"""Exactly once in a model: drivers die and pause at any step, others take over, rows are spread anew, tasks that Spark
has given up begin late, and transactional ids are used again; each row counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from threading import Semaphore, Thread
from typing import Protocol

import pytest

from cairnmq.client.transactions import OpenTransaction, Transaction
from cairnmq.spark.decision import (
    Decision,
    Fenced,
    TimeLimit,
    give_up,
    go_on_at_once,
    run_prefix,
    settle,
    settle_at_once,
)
from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.task_names import TaskNames

QUERY = "q"
TIMEOUT_MS = 900_000
BATCHES = 7
EMPTY = 2  # a batch without rows
ROWS = 3  # of each other batch
PROCESSES = 2
MARGIN_MS = 240_000
AT_ONCE = TimeLimit(lambda: 0, MARGIN_MS)
LATE = TimeLimit(lambda: TIMEOUT_MS - MARGIN_MS + 1, MARGIN_MS)


class Died(Exception):
    pass


class Names(Protocol):
    def next(self, query: str, run: str, batch: int) -> str: ...


class Id:
    """A transactional id, as a broker keeps it. Who begins with it aborts what is open, and then nobody is told how
    that ended which was there before."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.open: Transaction | None = None
        self.committed: Transaction | None = None

    def begin(self, name: str) -> Transaction:
        self.epoch += 1
        self.open, self.committed = Transaction(name, self.producer_id, self.epoch), None
        return self.open


class Model:
    """Brokers, which know transactions and decisions, Spark's checkpoint, which knows batches, and worker processes."""

    def __init__(self, seed: int = 0, names: Callable[[int], Names] | None = None) -> None:
        self.chance = Random(seed)
        self.limit = AT_ONCE
        self.now = 0
        self.undone = 0  # transactions that were decided on, and aborted by a driver
        self.loses_answers = seed % 4 < 2
        self.processes = [names(each) if names else names_of(each) for each in range(PROCESSES)]
        self.ids: dict[str, Id] = {}
        self.rows: dict[Transaction, list[int]] = {}
        self.started: dict[Transaction, int] = {}
        self.committed: set[Transaction] = set()
        self.decision: Decision | None = None
        self.epoch = 0
        self.runs = 0
        self.noted: set[int] = set()
        self.begun: list[tuple[int, int]] = []

    def write(self, batch: int, run: int, rows: list[int]) -> Transaction:
        name = self.chance.choice(self.processes).next(QUERY, str(run), batch)
        transaction = self.ids.setdefault(name, Id(len(self.ids))).begin(name)
        self.rows[transaction] = rows
        self.started[transaction] = self.now
        return transaction

    def write_late(self) -> None:
        """An attempt of some batch, which nobody waits for any more."""
        if self.begun:
            batch, run = self.chance.choice(self.begun)
            with suppress(SparkSourceError):
                self.write(batch, run, rows_of(batch)[:1])

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        for each in self.ids.values():
            if each.open is not None and self.started[each.open] + TIMEOUT_MS <= self.now:
                each.open = None

    @property
    def open_now(self) -> set[Transaction]:
        return {each.open for each in self.ids.values() if each.open is not None}

    def visible(self) -> Counter[int]:
        return Counter(row for transaction in self.committed for row in self.rows[transaction])


def names_of(process: int) -> TaskNames:
    return TaskNames(lambda: f"p{process}")


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
        own = self.model.ids[transaction.transactional_id]
        if own.open == transaction:
            own.open, own.committed = None, transaction
            self.model.committed.add(transaction)
        done = own.committed == transaction
        self.pause()
        return done

    def abort(self, transaction: Transaction) -> None:
        self.pause()
        own = self.model.ids[transaction.transactional_id]
        if own.open == transaction:
            own.open = None
            self.model.undone += self.model.decision is not None and transaction in self.model.decision.transactions
        self.pause()

    def open(self, query: str) -> Sequence[OpenTransaction]:
        self.pause()
        found = [OpenTransaction(each, self.model.started[each], TIMEOUT_MS) for each in self.model.open_now]
        self.pause()
        return found


def rows_of(batch: int) -> list[int]:
    return [batch * 100 + row for row in range(ROWS)] if batch != EMPTY else []


def spread(model: Model, batch: int, run: int, tasks: int) -> tuple[Transaction, ...]:
    shares = [rows_of(batch)[task::tasks] for task in range(tasks)]
    return tuple(model.write(batch, run, share) for share in shares if share)


def drive(model: Model, pause: Callable[[], None], until: int) -> None:
    """What Spark does in one run, batch after batch: writes, settles, notes."""
    run = model.runs = model.runs + 1
    batch = len(model.noted)
    view = View(model, pause)
    while batch < until:
        pause()
        if rows_of(batch):
            model.begun.append((batch, run))
            if (run + batch) % 2:  # an attempt that was killed while it wrote: nobody ends its transaction
                model.write(batch, run, rows_of(batch)[:1])
        if (run + batch) % 3 == 0:  # Spark has another process commit
            view = View(model, pause)
        written = spread(model, batch, run, 1 + run % ROWS)
        pause()
        mine = Decision(QUERY, batch, str(run), written, "t", len(rows_of(batch)))
        assert settle(view, mine, model.limit, in_charge=view.epoch is not None) is None
        pause()
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


def play(seed: int, names: Callable[[int], Names] | None = None, late: float = 0.0) -> Model:
    """Two or three drivers go on in turns, each some steps further; some die there, and are started again. In the end
    one does the rest. `late`: how often one of them finds that a time limit is near."""
    rng, model = Random(seed), Model(seed, names)
    clocks = Random(seed)
    model.limit = TimeLimit(lambda: TIMEOUT_MS - 1 if clocks.random() < late else 0, MARGIN_MS)
    drivers: dict[int, Driver] = {}
    for _ in range(rng.randrange(4, 24)):
        who = rng.randrange(2 + seed % 2)
        if who not in drivers or drivers[who].ended:
            drivers[who] = Driver(model, BATCHES - 1)
        drivers[who].step(1 + int(rng.expovariate(1 / rng.choice((3, 12, 40)))))
        if rng.random() < 0.1:
            drivers[who].die()
        if rng.random() < 0.3:
            model.write_late()
    for driver in drivers.values():
        driver.die()
    model.limit = AT_ONCE
    drive(model, lambda: None, BATCHES)
    return model


EVERY = Counter(row for batch in range(BATCHES) for row in rows_of(batch))


def test_every_row_counts_once() -> None:
    again = 0
    for seed in range(1000):
        model = play(seed)
        assert model.visible() == EVERY, f"seed {seed}"
        assert not model.open_now, f"seed {seed}: whoever is left ends what the others left"
        again += sum(each.epoch > 0 for each in model.ids.values())
    assert again > 1000, "ids were used again"


def test_every_row_counts_once_also_where_decisions_are_undone() -> None:
    undone = 0
    for seed in range(300):
        model = play(seed, late=0.15)
        assert (model.visible(), model.open_now) == (EVERY, set()), f"seed {seed}"
        undone += model.undone
    assert undone > 30


class ByPlace:
    """A wrong way to name tasks: by their place in the job, whatever the process. An attempt that was given up before
    it began, and begins long after, has the id of a task of today."""

    def __init__(self) -> None:
        self.runs: dict[str, tuple[int, int]] = {}

    def next(self, query: str, run: str, batch: int) -> str:
        known, count = self.runs.get(run, (batch, 0))
        place = count + 1 if batch == known else 1
        if batch >= known:
            self.runs[run] = batch, place
        return f"{run_prefix(query, run)}{batch % 2}-{place}"


class InEveryBatch:
    """Another one: each process has ids of its own, and uses all of them in every batch."""

    def __init__(self, process: int) -> None:
        self.right = names_of(process)

    def next(self, query: str, run: str, batch: int) -> str:
        owner, _, count = self.right.next(query, run, batch).rsplit("-", 2)
        return f"{owner}-{count}"


def by_place() -> Callable[[int], Names]:
    shared = ByPlace()
    return lambda process: shared


@pytest.mark.parametrize(
    ("wrong", "first"), [(by_place, 40), (lambda: InEveryBatch, 600)], ids=["by place", "in every batch"]
)
def test_the_model_finds_ids_that_are_used_again_too_early(
    wrong: Callable[[], Callable[[int], Names]], first: int
) -> None:
    """Rows are lost, or double. `first`: close to the first seed that shows it, to save time."""

    def goes_wrong(seed: int) -> bool:
        with suppress(SparkSourceError):
            return play(seed, wrong()).visible() != EVERY
        return False

    assert any(goes_wrong(seed) for seed in range(first, 3000))


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
    model = Model(seed=0)
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
    _, other = (model.write(3, run, [1]) for run in (1, 2))
    give_up(View(model), QUERY, "1")
    assert model.open_now == {other} and not model.committed


def aborted(model: Model) -> Transaction:
    """By its time limit."""
    gone = model.write(3, 99, [1])
    View(model).abort(gone)
    return gone


def test_all_of_a_decided_batch_that_the_broker_has_aborted_is_written_anew() -> None:
    model = Model()
    model.decision = Decision(QUERY, 3, "old", (aborted(model),))
    settle(View(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 2)), AT_ONCE, in_charge=False)
    assert model.visible() == Counter(rows_of(3))


def test_a_part_of_it_is_an_error() -> None:
    model = Model()
    kept = model.write(3, 0, [1])
    View(model).commit(kept)
    model.decision = Decision(QUERY, 3, "old", (kept, aborted(model)))
    with pytest.raises(SparkSourceError, match="after some were committed"):
        settle(View(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 2)), AT_ONCE, in_charge=False)


def test_an_older_checkpoint_is_an_error() -> None:
    model = Model()
    model.decision = Decision(QUERY, 9, "old", ())
    with pytest.raises(SparkSourceError, match="the checkpoint is older"):
        settle(View(model), Decision(QUERY, 3, "new", ()), AT_ONCE, in_charge=False)


def test_too_little_time_left_is_an_error_before_anything_is_decided() -> None:
    model = Model()
    mine = Decision(QUERY, 0, "r", spread(model, 0, 0, 1))
    with pytest.raises(SparkSourceError, match="too little time left"):
        settle(View(model), mine, LATE, in_charge=False)
    assert model.decision is None and not model.open_now
    with pytest.raises(SparkSourceError, match=r"was aborted; raise kafka\.transaction\.timeout\.ms"):
        settle_at_once(View(model), mine, AT_ONCE)


def test_who_is_in_charge_is_told_the_same() -> None:
    """Though all was aborted when it looked again."""
    model = Model()
    view = View(model)
    view.take_over(QUERY)
    with pytest.raises(SparkSourceError, match="too little time left"):
        settle(view, Decision(QUERY, 0, "r", spread(model, 0, 0, 2)), LATE, in_charge=True)
    assert model.decision is None and not model.open_now


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
        left_ms = timeout_ms - spent_ms
        for judge, least_ms in ((limit.too_late_to_decide, left_ms), (limit.too_late_to_commit, left_ms // 2)):
            starts = (1000 - timeout_ms + least_ms, 1000 - timeout_ms + least_ms - 1)
            found = [OpenTransaction(Transaction("t", 1, 0), start_ms, timeout_ms) for start_ms in starts]
            assert [judge(each) for each in found] == [False, True]


def test_a_decided_batch_of_which_a_part_is_aborted_is_written_anew_if_nobody_began_to_commit() -> None:
    """Whichever its time limit ended first."""
    for lost in range(3):
        model = Model()
        model.decision = decided = Decision(QUERY, 3, "old", spread(model, 3, 0, 3))
        View(model).abort(decided.transactions[lost])
        settle(View(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 2)), AT_ONCE, in_charge=False)
        assert (model.visible(), model.open_now) == (Counter(rows_of(3)), set())


class Ticking(View):
    """Committing takes its time, and what is over its limit is aborted."""

    def commit(self, transaction: Transaction) -> bool:
        done = super().commit(transaction)
        self.model.pass_time(MARGIN_MS // 10)
        return done


def clock_of(model: Model) -> TimeLimit:
    return TimeLimit(lambda: model.now, MARGIN_MS)


def test_a_decided_batch_whose_time_limit_is_near_is_written_anew_if_nobody_began_to_commit() -> None:
    """However late the next run comes, and whichever of them was begun first."""
    anew = 0
    for away_ms in range(0, TIMEOUT_MS + 20_000, 10_000):
        for oldest in range(3):
            model = Model()
            shares = [[row] for row in rows_of(3)]
            transactions: dict[int, Transaction] = {}
            for task in sorted(range(3), key=lambda each: each != oldest):
                transactions[task] = model.write(3, 0, shares[task])
                model.pass_time(5_000)
            model.decision = old = Decision(QUERY, 3, "0", tuple(transactions[task] for task in range(3)))
            model.pass_time(away_ms)
            mine = Decision(QUERY, 3, "1", spread(model, 3, 1, 2))
            settle(Ticking(model), mine, clock_of(model), in_charge=False)
            assert (model.visible(), model.open_now) == (Counter(rows_of(3)), set()), f"away for {away_ms} ms"
            assert len(model.committed) == (3 if model.decision == old else 2)
            anew += model.decision != old
    assert 0 < anew < 3 * 92


@pytest.mark.parametrize("seed", [0, 2])  # an answer is lost, or none
def test_who_undoes_a_decision_may_find_it_committed(seed: int) -> None:
    """Whoever has decided was only paused, and wakes up at each step of the one that finds too little time left."""
    ends = set()
    for step in range(60):
        model, steps = Model(seed), iter(range(1000))
        first = Driver(model, 1)
        while model.decision is None:
            first.step(1)
        decided = model.decision
        model.pass_time(TIMEOUT_MS - 10_000)

        def pause(steps: Iterator[int] = steps, step: int = step, first: Driver = first) -> None:
            if next(steps) == step:
                first.step(1000)

        mine = Decision(QUERY, 0, "2", spread(model, 0, 2, 2), "t", ROWS)
        with suppress(SparkSourceError):
            settle(View(model, pause), mine, clock_of(model), in_charge=False)
        first.step(1000)
        ends.add(model.committed.issuperset(decided.transactions))
        drive(model, lambda: None, 2)
        assert model.visible() == Counter([*rows_of(0), *rows_of(1)]), f"woken up at step {step}"
    assert ends == {True, False}


def test_so_is_one_whose_decision_took_too_long_to_store() -> None:
    class Slow(Ticking):
        def store(self, decision: Decision) -> None:
            super().store(decision)
            self.model.pass_time(TIMEOUT_MS - 10_000)

    model = Model()
    with pytest.raises(SparkSourceError, match="before they could be committed; start the query again"):
        mine = Decision(QUERY, 3, "1", spread(model, 3, 1, 3))
        settle(Slow(model), mine, clock_of(model), in_charge=False)
    assert not model.visible() and not model.open_now
    settle(Ticking(model), Decision(QUERY, 3, "2", spread(model, 3, 2, 2)), clock_of(model), in_charge=False)
    assert (model.visible(), model.open_now) == (Counter(rows_of(3)), set())


def test_a_batch_that_somebody_began_to_commit_is_finished_however_late() -> None:
    model = Model()
    model.decision = old = Decision(QUERY, 3, "0", spread(model, 3, 0, 3))
    View(model).commit(old.transactions[0])
    model.pass_time(TIMEOUT_MS - 1)
    settle(View(model), Decision(QUERY, 3, "1", spread(model, 3, 1, 2)), clock_of(model), in_charge=False)
    assert (model.committed, model.open_now) == (set(old.transactions), set())


def test_a_batch_query_that_goes_on_too_late_shows_nothing() -> None:
    for away_ms, seen in ((0, rows_of(0)), (TIMEOUT_MS - 10_000, []), (TIMEOUT_MS, [])):
        model = Model()
        mine = Decision(QUERY, 0, "0", spread(model, 0, 0, 3))
        model.pass_time(away_ms)
        go_on_at_once(Ticking(model), mine, clock_of(model))
        assert (model.visible(), model.open_now) == (Counter(seen), set())


def test_who_finds_the_first_aborted_commits_none() -> None:
    """Its time limit is over while the decision is stored."""

    class Slow(View):
        def store(self, decision: Decision) -> None:
            super().store(decision)
            View(self.model).abort(decision.transactions[0])

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
    assert told is not None and "with 3 rows, which are kept; the 7 rows of this run are dropped" in told
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
    model.write(0, 0, [1])  # an attempt that was killed
    settle_at_once(View(model), Decision(QUERY, 0, "0", spread(model, 0, 0, 2)), AT_ONCE)
    assert (model.visible(), model.decision, model.open_now) == (Counter(rows_of(0)), None, set())


def test_a_batch_query_whose_commit_failed_goes_on_or_shows_nothing() -> None:
    """The commit dies at each of its steps in turn, and Spark has another process abort: all rows or none."""
    seen = set()
    for timed_out in (None, 0, 1, 2):
        for steps in range(40):
            model, left = Model(), [steps]
            mine = Decision(QUERY, 0, "0", spread(model, 0, 0, 3))
            model.write(0, 0, [1])
            if timed_out is not None:
                View(model).abort(mine.transactions[timed_out])

            def pause(left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Died

            with suppress(Died, SparkSourceError):
                settle_at_once(View(model, pause), mine, AT_ONCE)
            go_on_at_once(View(model), mine, AT_ONCE)
            expected = rows_of(0) if timed_out is None else []
            assert model.visible() == Counter(expected), f"{timed_out} lost, died after {steps} steps"
            assert not model.open_now
            seen.add(left[0] < 0)
    assert seen == {True, False}
