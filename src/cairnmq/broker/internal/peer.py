"""A follower as the code that serves it sees it: which broker asks, and whether its request may still wait."""

from __future__ import annotations

import asyncio
from enum import Enum

from cairnmq.wire.internal import Hello


class Parked(Enum):
    """Why a wait is over."""

    WOKEN = "woken"
    SUPERSEDED = "superseded"  # respond with what there is, an empty Answer if nothing
    TIMED_OUT = "timed out"


class Peer:
    """The other end of one link. Requests of a link are served one after another, so there is one wait at a time.

    `superseded` is done when a later request has arrived, or the link has ended; it is a new future for each request.
    `park` waits for it too.
    """

    def __init__(self, hello: Hello, version: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.broker = hello.broker
        self.broker_epoch = hello.broker_epoch
        self.purpose = hello.purpose
        self.version = version
        self.is_gone = False  # its link has ended: what waits must not change anything any more
        self.superseded: asyncio.Future[None] = self._loop.create_future()
        self._wait: asyncio.Future[Parked] | None = None

    async def park(self, seconds: float) -> Parked:
        """Until `wake`, a later request, or the time limit. Wake-ups of before do not count: look first, then park."""
        if self.superseded.done():
            return Parked.SUPERSEDED
        self._wait = self._loop.create_future()
        timer = self._loop.call_later(seconds, self._end_wait, Parked.TIMED_OUT)
        try:
            return await self._wait
        finally:
            timer.cancel()
            self._wait = None

    def wake(self) -> None:
        """There are bytes, or the role in a journal has changed. Without effect if nothing waits."""
        self._end_wait(Parked.WOKEN)

    def begin(self, superseded: bool) -> None:
        """The next request is served from here on."""
        self.superseded = self._loop.create_future()
        if superseded:
            self.supersede()

    def supersede(self) -> None:
        """The request that is served now need not wait any longer."""
        if not self.superseded.done():
            self.superseded.set_result(None)
        self._end_wait(Parked.SUPERSEDED)

    def _end_wait(self, why: Parked) -> None:
        if self._wait is not None and not self._wait.done():
            self._wait.set_result(why)
