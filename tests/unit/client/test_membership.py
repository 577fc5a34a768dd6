"""A member of a consumer group, without a broker: what it says, when, and what it makes of the response."""

from __future__ import annotations

import pytest

from cairnmq.client.errors import Refused
from cairnmq.client.membership import JOINING, REBALANCE_TIMEOUT_MS, Member
from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

A, B = b"a" * 16, b"b" * 16


def response(
    epoch: int, assigned: dict[bytes, list[int]] | None = None, error: int = 0
) -> ConsumerGroupHeartbeatResponse:
    rows = ConsumerGroupHeartbeatResponse.TopicPartitions
    assignment = None
    if assigned is not None:
        parts = [rows(topic_id=topic, partitions=indexes) for topic, indexes in assigned.items()]
        assignment = ConsumerGroupHeartbeatResponse.Assignment(parts)
    return ConsumerGroupHeartbeatResponse(
        error_code=error, member_epoch=epoch, heartbeat_interval_ms=3000, assignment=assignment
    )


def exchange(
    member: Member, told: ConsumerGroupHeartbeatResponse | None, now: float = 0.0
) -> ConsumerGroupHeartbeatRequest:
    """One heartbeat; None: the response is lost."""
    request, said = member.request(), member.state
    member.sent()
    if told is not None:
        member.received(told, said, now)
    return request


def owned(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    rows = request.topic_partitions
    return None if rows is None else {row.topic_id: row.partitions for row in rows}


def joined(assigned: dict[bytes, list[int]]) -> Member:
    member = Member("g", "m", ["t"])
    exchange(member, response(1, assigned))
    member.follow()
    exchange(member, response(1))
    return member


def test_the_first_heartbeat_joins_and_says_everything() -> None:
    member = Member("g", "m", ["u", "t"])
    assert member.due(0.0)
    request = exchange(member, response(1, {}))
    assert (request.member_epoch, request.rebalance_timeout_ms) == (JOINING, REBALANCE_TIMEOUT_MS)
    assert (request.subscribed_topic_names, owned(request)) == (["t", "u"], {})
    assert member.epoch == 1


def test_later_ones_say_what_is_new_and_come_at_the_interval() -> None:
    member = joined({A: [0, 1]})
    assert not member.due(2.9) and member.due(3.0)
    request = exchange(member, response(1), 3.0)
    assert (request.member_epoch, request.rebalance_timeout_ms) == (1, -1)
    assert (request.subscribed_topic_names, owned(request)) == (None, None)
    member.subscribe(["t", "v"])
    assert member.due(3.0)
    request = exchange(member, response(1), 3.0)
    assert (request.subscribed_topic_names, owned(request)) == (["t", "v"], None)


def test_what_is_taken_away_is_given_up_before_it_is_confirmed() -> None:
    member = joined({A: [0, 1], B: [0]})
    exchange(member, response(2, {A: [1]}))
    assert member.owned == {(A, 0), (A, 1), (B, 0)}, "it is still read"
    assert member.target == {(A, 1)}
    member.follow()
    assert member.due(0.0), "others wait for this"
    assert owned(exchange(member, response(2))) == {A: [1]}
    assert not member.due(0.0)


def test_after_a_lost_response_everything_is_said_again() -> None:
    member = joined({A: [0]})
    exchange(member, None)
    assert member.due(0.0)
    request = exchange(member, response(1))
    assert (request.subscribed_topic_names, owned(request)) == (["t"], {A: [0]})


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_member_that_was_removed_joins_again_with_nothing(error: ErrorCode) -> None:
    member = joined({A: [0]})
    exchange(member, response(0, error=error))
    assert (member.epoch, member.owned, member.target, member.removals) == (JOINING, frozenset(), frozenset(), 1)
    request = exchange(member, response(5, {A: [0]}))
    assert (request.member_epoch, request.subscribed_topic_names, owned(request)) == (JOINING, ["t"], {})


def test_any_other_error_is_told() -> None:
    member = Member("g", "m", ["t"])
    with pytest.raises(Refused, match="group g has the maximum number of members"):
        exchange(member, response(0, error=ErrorCode.GROUP_MAX_SIZE_REACHED))
