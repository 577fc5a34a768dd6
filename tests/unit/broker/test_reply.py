"""An answer that comes later."""

from __future__ import annotations

import pytest

from cairnmq.broker.reply import Reply


def test_delivered_within_the_call() -> None:
    reply, delivered = Reply(), []
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
