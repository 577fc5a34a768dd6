"""A response that comes later."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from cairnmq.broker.requests.reply import AwaitedReply, CloseConnection, Reply, Response
from cairnmq.types import Buffer
from unit.broker.rig import scenario, until


def test_delivered_within_the_call() -> None:
    reply = Reply()
    delivered: list[Reply] = []
    reply.deliver = delivered.append
    reply.complete([b"x"])
    assert delivered == [reply] and reply.response == [b"x"]


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


def test_who_cannot_be_given_up_is_told() -> None:
    """Its work goes on elsewhere; when that is done nobody waits any more, but what it held is given back."""
    reply, delivered = Reply(), list[Reply]()
    reply.deliver = delivered.append
    assert not reply.abandon() and not reply.open and not reply.done
    reply.complete(None)
    assert delivered == [reply]


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


def test_later_steps() -> None:
    """A step that waits once more returns the reply; a response completes it, a failure fails it."""
    reply, delivered = Reply(), list[Reply]()
    reply.deliver = delivered.append
    reply.resume(lambda: reply)
    assert not reply.done
    reply.resume(lambda: [b"x"])
    assert delivered == [reply] and reply.response == [b"x"]
    failing = Reply()
    failing.resume({}.popitem)  # type: ignore[arg-type]
    assert isinstance(failing.failure, KeyError)
    with pytest.raises(AssertionError, match="one reply"):
        Reply().resume(Reply)


async def respond() -> list[Buffer]:
    await asyncio.sleep(0)
    return [b"x"]


async def fail() -> list[Buffer]:
    raise ValueError


@scenario
async def test_coroutine_as_a_reply() -> None:
    reply, delivered = AwaitedReply(respond()), list[Reply]()
    reply.deliver = delivered.append
    assert not reply.done and not reply.abandon(), "an admin change that has begun is carried to its end"
    await until(lambda: delivered)
    assert reply.response == [b"x"]
    failed = AwaitedReply(fail())
    await until(lambda: failed.done)
    assert isinstance(failed.failure, ValueError)


@scenario
async def test_cancelled_coroutine_hangs_up() -> None:
    later: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    reply = AwaitedReply(later)
    later.cancel()
    await until(lambda: reply.done)
    assert isinstance(reply.failure, CloseConnection)


@scenario
async def test_finished_coroutine_does_not_wait_for_the_collector() -> None:
    gc.disable()
    try:
        for work in (respond, fail):
            task = asyncio.ensure_future(work())
            reply, last = AwaitedReply(task), weakref.ref(task)
            await until(lambda: reply.done)  # noqa: B023
            reply.response = reply.failure = None  # as the connection does
            del task
            await asyncio.sleep(0)
            assert last() is None
    finally:
        gc.enable()
