"""What a handler returns when the answer comes later: a future without the event loop's extra hop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cairnmq.types import Buffer
from cairnmq.wire.messages import Message

Answer: TypeAlias = Message | list[Buffer] | None


class CloseConnection(Exception):
    """Raised by a handler (or set as a reply's failure) when the only correct answer is to hang up."""


class Reply:
    """Completed once, by `complete` or `fail`; the connection writes the answer within that very call.

    `on_abandon` is called when the connection is lost first, so that a parked request can be taken out of its queue.
    """

    __slots__ = ("done", "abandoned", "answer", "failure", "deliver", "on_abandon")

    def __init__(self) -> None:
        self.done = False
        self.abandoned = False
        self.answer: Answer = None
        self.failure: BaseException | None = None
        self.deliver: Callable[[Reply], None] | None = None
        self.on_abandon: Callable[[], None] | None = None

    def complete(self, answer: Answer) -> None:
        self._settle(answer, None)

    def fail(self, failure: BaseException) -> None:
        self._settle(None, failure)

    def _settle(self, answer: Answer, failure: BaseException | None) -> None:
        assert not self.done, "a reply is completed once"
        self.done = True
        self.answer, self.failure = answer, failure
        deliver = self._let_go()
        if deliver is not None:
            deliver(self)

    @property
    def open(self) -> bool:
        """Somebody still waits for it."""
        return not self.done and not self.abandoned

    def abandon(self) -> bool:
        """True if whoever parked the request has given it up: then it is never completed."""
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
        """Both know this reply. A circle with a large answer in it would wait for the collector, which comes rarely."""
        deliver, self.deliver, self.on_abandon = self.deliver, None, None
        return deliver
