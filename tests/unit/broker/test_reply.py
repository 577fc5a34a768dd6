"""An answer that comes later."""

from __future__ import annotations

import gc
import weakref

import pytest

from cairnmq.broker.reply import Reply
from cairnmq.types import Buffer


def test_delivered_within_the_call() -> None:
    reply = Reply()
    delivered: list[Reply] = []
    reply.deliver = delivered.append
    reply.complete([b"x"])
    assert delivered == [reply] and reply.answer == [b"x"]


def test_completed_before_anybody_waits() -> None:
    reply = Reply()
    reply.fail(ValueError())
    assert reply.done and isinstance(reply.failure, ValueError)


def test_only_once() -> None:
    reply = Reply()
    reply.complete(None)
    with pytest.raises(AssertionError):
        reply.fail(ValueError())


def test_abandoned_only_while_open() -> None:
    left: list[int] = []
    reply = Reply()
    reply.on_abandon = lambda: left.append(1)
    reply.complete(None)
    reply.abandon()
    assert left == []
    other = Reply()
    other.abandon()
    other.on_abandon = lambda: left.append(2)
    other.abandon()
    assert left == [2]


class Parked:
    """Knows its reply, and is known by it, as a parked request is."""

    def __init__(self, answer: list[Buffer]) -> None:
        self.reply = Reply()
        self.reply.on_abandon = self.unpark
        self.answer = answer

    def unpark(self) -> None: ...


@pytest.mark.parametrize("ending", ["complete", "fail", "abandon"])
def test_what_is_over_does_not_wait_for_the_collector(ending: str) -> None:
    parked = Parked([b"large"])
    last, reply = weakref.ref(parked), parked.reply
    reply.deliver = lambda _, parked=parked: parked.unpark()
    endings = {
        "complete": lambda: reply.complete([b"x"]),
        "fail": lambda: reply.fail(ValueError()),
        "abandon": reply.abandon,
    }
    gc.disable()
    try:
        endings[ending]()
        del parked
        assert last() is None
    finally:
        gc.enable()
