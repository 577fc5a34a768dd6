"""What is left of a decided end, until every place has said that it is done."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.transactions.ending import Ending
from cairnmq.transactions.messages import Producer, WriteMarkers


def ending() -> Ending:
    return Ending(WriteMarkers("x", Producer(9, 3), True, False, frozenset((1, 2)), frozenset(("g",))))


def test_it_is_done_when_every_place_has_said_so() -> None:
    one = ending()
    one.told_of_queues([(1, ErrorCode.NONE)])
    one.told_of_groups([("g", ErrorCode.NONE)])
    assert not one.is_done and one.queues == {2} and not one.refused
    one.told_of_queues([(2, ErrorCode.NONE)])
    assert one.is_done


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_whoever_could_not_is_asked_again(code: ErrorCode) -> None:
    one = ending()
    one.told_of_queues([(1, code), (2, ErrorCode.NONE)])
    one.told_of_groups([("g", code)])
    assert one.queues == {1} and one.groups == {"g"} and one.refused == {code}


def test_what_a_later_epoch_has_ended_is_done() -> None:
    one = ending()
    one.told_of_queues([(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.NONE)])
    one.told_of_groups([("g", ErrorCode.NONE)])
    assert one.is_done and one.refused == {ErrorCode.INVALID_PRODUCER_EPOCH}


def test_nothing_to_end() -> None:
    assert Ending(WriteMarkers("x", Producer(9, 3), True, False, frozenset(), frozenset())).is_done
