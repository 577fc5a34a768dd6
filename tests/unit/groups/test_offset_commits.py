"""Commits of offsets: records, and one error for each position."""

from __future__ import annotations

from cairnmq.errors import ErrorCode
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import Limits
from cairnmq.groups.offset_messages import CommittedPlace, OffsetCommit, OffsetDecision, Position
from cairnmq.groups.offsets import Committed, Offsets

ORDERS = b"orders".ljust(16)
NOW_MS, DATE_MS = 5_000, 1_700_000_000_000
OK = ErrorCode.NONE


def new_groups() -> Groups:
    groups = Groups(Offsets(), Limits(metadata_max=4))
    groups.set_date(NOW_MS, DATE_MS)
    return groups


def decide(groups: Groups, *positions: Position, producer_id: int | None = None, **fields: int) -> OffsetDecision:
    command = OffsetCommit("g", "", None, fields.pop("generation", -1), positions, producer_id, **fields)
    return groups.commits.commit(command, "ticket", NOW_MS)


def store(groups: Groups, decision: OffsetDecision) -> None:
    for record in decision.records:
        groups.apply(record)


def errors(decision: OffsetDecision) -> list[ErrorCode]:
    ((ticket, told),) = decision.responses
    assert ticket == "ticket"
    return list(told.errors)


def test_a_decision_changes_nothing_before_it_is_stored() -> None:
    groups = new_groups()
    decision = decide(groups, Position(ORDERS, 0, 7, 2, "note"))
    assert errors(decision) == [OK] and groups.offsets.get("g", ORDERS, 0) is None
    store(groups, decision)
    assert groups.offsets.get("g", ORDERS, 0) == Committed(7, 2, "note", DATE_MS)


def test_a_text_that_is_too_long_refuses_its_position_only() -> None:
    decision = decide(new_groups(), Position(ORDERS, 0, 7, -1, "ä" * 3), Position(ORDERS, 1, 8, -1, "ä" * 2))
    assert errors(decision) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, OK] and len(decision.records) == 1


def test_who_may_not_commit_is_told_so_for_each_position() -> None:
    decision = decide(new_groups(), Position(ORDERS, 0, 7), Position(ORDERS, 1, 7, -1, "too long"), generation=3)
    assert errors(decision) == [ErrorCode.GROUP_ID_NOT_FOUND] * 2 and not decision.records


def test_how_long_it_lives_if_the_client_says_so() -> None:
    groups = new_groups()
    store(groups, decide(groups, Position(ORDERS, 0, 7), retention_ms=60))
    committed = groups.offsets.get("g", ORDERS, 0)
    assert committed is not None and committed.expire_ms == DATE_MS + 60


def test_in_a_transaction_it_is_pending_until_that_ends() -> None:
    groups = new_groups()
    store(groups, decide(groups, Position(ORDERS, 0, 7), producer_id=9))
    assert groups.offsets.get("g", ORDERS, 0) is None and groups.pending.has("g", ORDERS, 0)
    ended = groups.commits.end("g", 9, "ticket", commit=True)
    assert errors(ended) == [OK]
    store(groups, ended)
    committed = groups.offsets.get("g", ORDERS, 0)
    assert committed is not None and committed.offset == 7 and not groups.pending.has("g", ORDERS, 0)
    again = groups.commits.end("g", 9, "ticket", commit=True)
    assert errors(again) == [OK] and not again.records, "nothing is left to end"


def test_deleting_stores_only_what_was_committed() -> None:
    groups = new_groups()
    store(groups, decide(groups, Position(ORDERS, 0, 7)))
    places = [CommittedPlace("orders", ORDERS, 0), CommittedPlace("orders", ORDERS, 1)]
    decision = groups.commits.delete("g", places, "ticket")
    assert errors(decision) == [OK, OK] and len(decision.records) == 1
    store(groups, decision)
    ((_, told),) = groups.commits.delete("g", places, "ticket").responses
    assert told.error == ErrorCode.GROUP_ID_NOT_FOUND and not told.errors


def test_what_could_not_be_stored_is_told_only_where_nothing_else_was_wrong() -> None:
    decision = decide(new_groups(), Position(ORDERS, 0, 7, -1, "too long"), Position(ORDERS, 1, 8))
    ((_, told),) = decision.responses
    assert list(told.unless_stored().errors) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
