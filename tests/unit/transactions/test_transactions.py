"""Decisions about transactional ids, one rule each; any order of them is tests/property/test_transactions.py."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cairnmq.decision import Decision
from cairnmq.errors import ErrorCode
from cairnmq.transactions.messages import Add, End, Filter, Init, Limits, Producer, Response, TransactionDecision
from cairnmq.transactions.record import EPOCH_LAST_GIVEN, EPOCH_MAX, State, TransactionRecord, put
from cairnmq.transactions.transactions import Transactions

OK, BUSY, FENCED = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
WRONG_STATE, UNMAPPED = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
NOW_MS, TIMEOUT_MS = 1_000_000, 60_000
FRESH = 500


class Desk:
    """A core whose facts are stored when the test says so."""

    def __init__(self, **limits: Any) -> None:
        self.core = Transactions(Limits(**limits))

    def store(self, decision: TransactionDecision) -> TransactionDecision:
        for fact in decision.records:
            self.core.apply(fact)
        return decision

    def init(self, known: Producer | None = None, now_ms: int = NOW_MS) -> Response:
        return answer(self.store(self.core.init(Init("t", TIMEOUT_MS, known), None, now_ms, FRESH)))

    def add(self, producer: Producer, *queues: int) -> Response:
        return answer(self.store(self.core.add(Add("t", producer, queues), None, NOW_MS)))

    def end(self, producer: Producer, *, commit: bool = True, raises: bool = True) -> TransactionDecision:
        return self.store(self.core.end(End("t", producer, commit, raises), "end", NOW_MS, FRESH + 1))

    def finish(self, decision: TransactionDecision) -> TransactionDecision:
        (ending,) = decision.effects
        return self.store(self.core.written(ending, NOW_MS))

    @property
    def record(self) -> TransactionRecord:
        record = self.core.describe("t")
        assert record is not None
        return record

    def put(self, record: TransactionRecord) -> None:
        self.core.apply(put("t", record))
        self.core.reload("t")


def answer(decision: TransactionDecision) -> Response:
    ((_, told),) = decision.responses
    return told


def given(told: Response) -> Producer:
    assert told.error == OK
    return Producer(told.producer_id, told.epoch)


def test_only_what_is_stored_lets_batches_in() -> None:
    """A queue that is added, but not durably, could be left with records that no marker is ever led to."""
    desk = Desk()
    me = given(desk.init())
    desk.add(me, 1)
    under_way = desk.core.add(Add("t", me, (2,)), None, NOW_MS)
    assert desk.record.queues == {1, 2}
    assert desk.core.verify("t", me, queue=1) == OK
    assert desk.core.verify("t", me, queue=2) == WRONG_STATE
    desk.store(under_way)
    assert desk.core.verify("t", me, queue=2) == OK


def test_a_decided_end_keeps_batches_out_before_it_is_stored() -> None:
    """Otherwise one could be staged behind the marker."""
    desk = Desk()
    me = given(desk.init())
    desk.add(me, 1)
    desk.core.end(End("t", me, True, False), None, NOW_MS, -1)
    assert desk.core.verify("t", me, queue=1) == BUSY
    assert desk.add(me, 2).error == BUSY


def test_an_end_is_answered_when_its_markers_are_written() -> None:
    desk = Desk()
    me = given(desk.init())
    desk.add(me, 1, 2)
    decision = desk.end(me)
    assert decision.responses == [] and desk.record.state is State.PREPARE_COMMIT
    (ending,) = decision.effects
    assert (ending.queues, ending.commit, ending.raised) == ({1, 2}, True, True)
    assert ending.producer == Producer(me.producer_id, me.epoch + 1), "above that of the records"
    assert desk.finish(decision).responses == [("end", Response(OK, me.producer_id, me.epoch + 1))]
    assert desk.core.written(ending, NOW_MS).records == [], "a late report changes nothing"


def test_markers_of_version_1_have_the_epoch_of_the_records() -> None:
    desk = Desk()
    me = given(desk.init())
    desk.add(me, 1)
    (ending,) = desk.end(me, raises=False).effects
    assert (ending.producer, ending.raised) == (me, False)


def test_a_fence_is_above_every_epoch_that_was_given() -> None:
    for raises, raised_by in ((False, 1), (True, 2)):
        desk = Desk(raises_epochs=raises)
        me = given(desk.init())
        desk.add(me, 1)
        assert desk.init().error == BUSY
        assert (desk.record.state, desk.record.epoch) == (State.PREPARE_ABORT, me.epoch + raised_by)
        (ending,) = desk.core.resume()
        assert ending.raised and not ending.commit and ending.producer.epoch > me.epoch


def test_an_old_epoch_cannot_abort_a_later_transaction() -> None:
    desk = Desk()
    zombie = given(desk.init())
    heir = given(desk.init())
    desk.add(heir, 1)
    assert desk.init(zombie).error == FENCED
    assert desk.record.state is State.ONGOING


def test_only_the_time_of_an_open_transaction_ends_it() -> None:
    desk = Desk()
    me = given(desk.init())
    assert list(desk.core.advance(NOW_MS + 10 * TIMEOUT_MS, 0)) == []
    desk.add(me, 1)
    assert list(desk.core.advance(NOW_MS + TIMEOUT_MS, 0)) == []
    ((name, decision),) = desk.core.advance(NOW_MS + TIMEOUT_MS + 1, 0)
    assert name == "t" and decision.effects and desk.record.state is State.PREPARE_ABORT
    assert list(desk.core.advance(NOW_MS + 10 * TIMEOUT_MS, 0)) == []


def test_the_last_epoch_is_kept_for_fencing() -> None:
    desk = Desk()
    first = given(desk.init())
    desk.put(TransactionRecord(first.producer_id, EPOCH_LAST_GIVEN, State.EMPTY, TIMEOUT_MS, NOW_MS))
    me = Producer(first.producer_id, EPOCH_LAST_GIVEN)
    desk.add(me, 1)
    assert desk.init().error == BUSY
    assert (desk.record.producer_id, desk.record.epoch) == (first.producer_id, EPOCH_MAX)
    (ending,) = desk.core.resume()
    desk.store(desk.core.written(ending, NOW_MS))
    assert given(desk.init()) == Producer(FRESH, 0), "a new id begins where epochs have run out"


def test_who_ran_out_of_epochs_may_ask_again() -> None:
    desk = Desk()
    first = given(desk.init())
    desk.put(TransactionRecord(first.producer_id, EPOCH_LAST_GIVEN, State.EMPTY, TIMEOUT_MS, NOW_MS))
    me = Producer(first.producer_id, EPOCH_LAST_GIVEN)
    assert given(desk.init(me)) == Producer(FRESH, 0)
    assert given(desk.init(me)) == Producer(FRESH, 0), "the answer was lost"


def test_without_an_id_at_hand_the_client_asks_again() -> None:
    core = Transactions(Limits())
    command = Init("t", TIMEOUT_MS)
    assert core.init_needs_id(command)
    assert answer(core.init(command, None, NOW_MS, -1)).error == BUSY
    assert core.describe("t") is None


def test_a_write_that_failed_puts_back_what_is_stored() -> None:
    desk = Desk()
    me = given(desk.init())
    desk.add(me, 1)
    desk.core.end(End("t", me, True, True), "end", NOW_MS, -1)
    back = desk.core.reload("t")
    assert back.responses == [("end", Response(ErrorCode.NOT_COORDINATOR))] and back.effects == []
    assert (desk.record.state, desk.record.epoch) == (State.ONGOING, me.epoch)
    assert list(desk.core.advance(NOW_MS + TIMEOUT_MS + 1, 0)), "its time limit holds again"


def test_ids_that_nobody_uses_are_forgotten_unless_a_transaction_is_open() -> None:
    desk = Desk(expiration_ms=1_000)
    me = given(desk.init())
    assert list(desk.core.expire(NOW_MS + 999)) == []
    desk.add(me, 1)
    assert list(desk.core.expire(NOW_MS + 10_000)) == []
    desk.finish(desk.end(me))
    ((_, decision),) = desk.core.expire(NOW_MS + 10_000)
    desk.store(decision)
    assert desk.core.describe("t") is None
    assert desk.add(me, 1).error == UNMAPPED
    assert dict(desk.core.listed(Filter(), NOW_MS)) == {}


def newcomer(desk: Desk, name: str, now_ms: int = NOW_MS) -> tuple[ErrorCode, list[str]]:
    """What a new id is told, and which ids are forgotten for it."""
    told = answer(desk.store(desk.core.init(Init(name, TIMEOUT_MS), None, now_ms, FRESH))).error
    forgotten = [(one, desk.store(decision)) for one, decision in desk.core.surplus()]
    return told, [one for one, _ in forgotten]


def test_for_a_new_id_the_one_unused_longest_is_forgotten() -> None:
    desk = Desk(ids_max=3)
    assert [newcomer(desk, name) for name in "abc"] == [(OK, [])] * 3
    assert newcomer(desk, "a") == (OK, []), "it is used again, and is not new"
    assert newcomer(desk, "d") == (OK, ["b"])
    assert newcomer(desk, "b") == (OK, ["c"])
    assert set(dict(desk.core.listed(Filter(), NOW_MS))) == {"a", "d", "b"}


def test_an_id_whose_transaction_is_open_or_ends_is_not_forgotten() -> None:
    desk = Desk(ids_max=1)
    me = given(desk.init())
    desk.add(me, 1)
    assert newcomer(desk, "u") == (ErrorCode.POLICY_VIOLATION, [])
    ending = desk.end(me)
    assert newcomer(desk, "u") == (ErrorCode.POLICY_VIOLATION, []), "its markers are not written"
    desk.finish(ending)
    assert newcomer(desk, "u") == (OK, ["t"])
    assert desk.add(me, 1).error == UNMAPPED


def test_which_is_unused_longest_is_known_after_a_restart() -> None:
    stored = {
        put(name, TransactionRecord(pid, 0, State.EMPTY, TIMEOUT_MS, at))[1:]
        for pid, (name, at) in enumerate((("new", 30), ("old", 10), ("between", 20)))
    }
    desk = Desk()
    desk.core = Transactions.load([(key, value or b"") for key, value in stored], Limits(ids_max=3))
    assert [newcomer(desk, name) for name in "abc"] == [(OK, ["old"]), (OK, ["between"]), (OK, ["new"])]


def test_a_limit_that_was_lowered_is_reached_in_steps() -> None:
    desk = Desk(ids_max=9)
    for name in "abcdefghi":
        newcomer(desk, name)
    desk.core.limits = Limits(ids_max=6)
    assert [newcomer(desk, name)[1] for name in "vwxyz"] == [["a", "b"], ["c", "d"], ["e", "f"], ["g"], ["h"]]


def test_forgetting_costs_the_same_however_many_ids_there_are() -> None:
    """A plain dict would walk over the gaps that the ids before have left: minutes, with so many."""
    desk = Desk(ids_max=50_000)
    for number in range(150_000):
        desk.core.init(Init(str(number), TIMEOUT_MS), None, NOW_MS, FRESH)
        assert [one for one, _ in desk.core.surplus()] == ([str(number - 50_000)] if number >= 50_000 else [])


def test_no_more_groups_in_a_transaction_than_allowed() -> None:
    desk = Desk(groups_max=2)
    producer = given(desk.init())

    def add(*groups: str) -> ErrorCode:
        return answer(desk.store(desk.core.add(Add("t", producer, groups=groups), None, NOW_MS))).error

    assert [add("a", "b"), add("b"), add("c"), add("a")] == [OK, OK, ErrorCode.POLICY_VIOLATION, OK]
    assert desk.record.groups == {"a", "b"}


@pytest.mark.parametrize("up_ms", [NOW_MS - 3_600_000, NOW_MS + 3_600_000, 5])
def test_a_transaction_that_was_open_at_a_restart_has_no_more_than_its_time_from_then_on(up_ms: int) -> None:
    """At least: either clock, that of then or that of now, may be wrong, and no date is trusted here."""
    desk = Desk()
    me = given(desk.init())
    desk.add(me, 1)
    stored = put("t", desk.record)
    desk.core = Transactions.load([(stored[1], stored[2] or b"")], Limits())
    assert list(desk.core.advance(up_ms, 0)) == []
    assert list(desk.core.advance(up_ms + TIMEOUT_MS, 0)) == []
    ((name, decision),) = desk.core.advance(up_ms + TIMEOUT_MS + 1, 0)
    assert name == "t" and not decision.effects[0].commit


def test_of_a_transaction_that_was_open_at_a_restart_a_date_that_can_be_trusted_counts() -> None:
    desk = Desk()
    me = given(desk.init())
    desk.add(me, 1)
    assert list(desk.core.advance(NOW_MS, NOW_MS + TIMEOUT_MS + 1)) == [], "of one of this run it does not"
    stored = put("t", desk.record)
    desk.core = Transactions.load([(stored[1], stored[2] or b"")], Limits())
    assert list(desk.core.advance(5, NOW_MS + TIMEOUT_MS)) == []
    assert len(list(desk.core.advance(5, NOW_MS + TIMEOUT_MS + 1))) == 1


def test_dates_are_those_of_the_wall_clock() -> None:
    desk = Desk(expiration_ms=1_000)
    desk.core.wall_ahead_ms = 7_000_000
    me = given(desk.init())
    assert desk.record.update_ms == NOW_MS + 7_000_000
    desk.add(me, 1)
    assert (desk.record.start_ms, desk.record.update_ms) == (NOW_MS + 7_000_000,) * 2
    desk.core.wall_ahead_ms += 86_400_000
    assert list(desk.core.advance(NOW_MS + TIMEOUT_MS, 0)) == [], "its time limit does not care"
    desk.finish(desk.end(me))
    assert desk.record.update_ms == NOW_MS + 7_000_000 + 86_400_000
    assert list(desk.core.expire(desk.record.update_ms + 999)) == []
    assert len(list(desk.core.expire(desk.record.update_ms + 1_000))) == 1


# ------------------------------------------------------------------------------------------ after an accepted loss


def after_a_loss(record: TransactionRecord, *, lost_epoch: int = 7) -> Desk:
    """A start on facts of which later ones may be lost."""
    desk = Desk()
    fact = put("t", record)
    desk.core = Transactions.load([(fact[1], fact[2] or b"")], Limits(), epoch=9, lost_epoch=lost_epoch)
    return desk


IDLE_RECORD = TransactionRecord(40, 3, State.COMPLETE_COMMIT, TIMEOUT_MS, NOW_MS, last_epoch=2, since=5)


def test_after_a_loss_the_next_producer_has_an_id_that_nobody_had() -> None:
    desk = after_a_loss(IDLE_RECORD)
    assert desk.core.init_needs_id(Init("t", TIMEOUT_MS, None))
    assert given(desk.init()) == Producer(FRESH, 0)
    assert given(desk.init()) == Producer(FRESH, 1), "which is in no doubt"
    again = after_a_loss(desk.record)
    assert given(again.init()) == Producer(FRESH, 2), "nor after another start"


def test_an_id_that_was_given_out_after_the_loss_is_kept() -> None:
    desk = after_a_loss(IDLE_RECORD, lost_epoch=4)
    assert not desk.core.init_needs_id(Init("t", TIMEOUT_MS, None))
    assert given(desk.init()) == Producer(40, 4)


def test_after_a_loss_whoever_knows_an_epoch_is_fenced() -> None:
    """A later one may have fenced it; or more may be lost than the transaction's end."""
    desk = after_a_loss(IDLE_RECORD)
    assert desk.add(Producer(40, 3), 1).error == FENCED
    assert desk.core.verify("t", Producer(40, 3), queue=1) == FENCED
    assert desk.init(Producer(40, 2)).error == FENCED, "a repeated request would be told an epoch that another may have"
    assert given(desk.init(Producer(40, 3))) == Producer(FRESH, 0)


def test_what_was_open_at_a_loss_is_aborted_with_an_epoch_above_all() -> None:
    ongoing = TransactionRecord(
        40, 3, State.ONGOING, TIMEOUT_MS, NOW_MS, start_ms=NOW_MS, queues=frozenset({1}), since=5
    )
    desk = after_a_loss(ongoing)
    assert answer(desk.end(Producer(40, 3))).error == FENCED, "some of its records may be lost"
    ((_, decision),) = desk.core.advance(NOW_MS, 0)
    (ending,) = desk.store(decision).effects
    assert (ending.producer, ending.commit) == (Producer(40, EPOCH_MAX), False)
    desk.store(desk.core.written(ending, NOW_MS))
    assert given(desk.init()) == Producer(FRESH, 0)


def test_an_id_that_was_to_follow_is_in_doubt_with_the_one_before() -> None:
    """It may have been taken and used, and that be lost."""
    prepared = TransactionRecord(
        40, EPOCH_MAX, State.PREPARE_COMMIT, TIMEOUT_MS, NOW_MS, next_id=41, queues=frozenset({1}), raised=True, since=5
    )
    desk = after_a_loss(prepared)
    (ending,) = desk.core.resume()
    assert ending.commit, "what was decided is carried out"
    desk.store(desk.core.written(ending, NOW_MS))
    assert desk.record.producer_id == 41
    assert given(desk.init()) == Producer(FRESH, 0)


def test_a_change_of_state_that_is_not_in_the_table_is_an_error() -> None:
    desk = Desk()
    desk.init()
    with pytest.raises(AssertionError, match="from Empty to PrepareCommit"):
        desk.core._change("t", replace(desk.record, state=State.PREPARE_COMMIT), Decision())
    assert desk.record.state is State.EMPTY, "nothing has changed"
