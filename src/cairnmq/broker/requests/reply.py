"""What a handler returns: its response, or a `Reply` that brings it later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from cairnmq.types import Buffer
from cairnmq.wire.messages import Message

Response: TypeAlias = Message | list[Buffer] | None  # None: the client expects no response (Produce with acks=0)


class CloseConnection(Exception):
    """Raised by a handler (or set as a reply's failure) when nothing can be said but by hanging up."""


class Reply:
    """A later response: a future without the event loop's extra hop.

    It is completed once, by `complete` or `fail`; the connection writes the response within that very call.
    `on_abandon` is called when the connection is lost first, so that a parked request can be taken out of its queue.
    """

    __slots__ = ("done", "abandoned", "response", "failure", "deliver", "on_abandon")

    def __init__(self) -> None:
        self.done = False
        self.abandoned = False
        self.response: Response = None
        self.failure: BaseException | None = None
        self.deliver: Callable[[Reply], None] | None = None
        self.on_abandon: Callable[[], None] | None = None

    def complete(self, response: Response) -> None:
        self._finish(response, None)

    def fail(self, failure: BaseException) -> None:
        self._finish(None, failure)

    def resume(self, step: Callable[[], Outcome]) -> None:
        """Take a later step of the request. Its response completes this reply; a step that has to wait once more
        returns this very reply. A failure is for the connection, which reports it and hangs up."""
        try:
            outcome = step()
        except Exception as failure:  # noqa: BLE001 - the connection reports it
            self.fail(failure)
            return
        if outcome is not self:
            assert not isinstance(outcome, Reply), "a request has one reply"
            self.complete(outcome)

    def _finish(self, response: Response, failure: BaseException | None) -> None:
        assert not self.done, "a reply is completed once"
        self.done = True
        self.response, self.failure = response, failure
        deliver = self._let_go()
        if deliver is not None:
            deliver(self)

    @property
    def open(self) -> bool:
        """The connection still waits for it."""
        return not self.done and not self.abandoned

    def abandon(self) -> bool:
        """True if the handler has given the request up: then it is never completed."""
        if self.done:
            return False
        self.abandoned = True
        give_up = self.on_abandon
        if give_up is None:
            return False
        self._let_go()
        give_up()
        return True

    def _let_go(self) -> Callable[[Reply], None] | None:
        """Handler and connection both know this reply. A reference cycle with a large response in it would wait for
        the garbage collector, which comes rarely."""
        deliver, self.deliver, self.on_abandon = self.deliver, None, None
        return deliver


# The one type of what handlers return.
Outcome: TypeAlias = Response | Reply


class AwaitedReply(Reply):
    """The response of a coroutine. It is not cancelled when the connection is lost: an admin change that has begun is
    carried to its end."""

    __slots__ = ("_work",)

    def __init__(self, work: Awaitable[Response]) -> None:
        super().__init__()
        self._work: asyncio.Future[Response] | None = asyncio.ensure_future(work)
        self._work.add_done_callback(self._worked)

    def _worked(self, work: asyncio.Future[Response]) -> None:
        self._work = None
        if work.cancelled():
            self.fail(CloseConnection("the request was cancelled"))
        elif (failure := work.exception()) is not None:
            self.fail(failure)
        else:
            self.complete(work.result())
