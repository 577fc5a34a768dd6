"""Requests that wait until some time at most.

A timer for each would cost more than most of them. Instead somebody looks now and then, while there are any: so the end
of its time is noticed a little late, never early.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

LOOK_SECONDS = 0.1


class Expiring(Protocol):
    """A request whose time may be up."""

    def expire(self) -> None: ...


class Deadlines:
    """Runs on the loop thread."""

    def __init__(self) -> None:
        self._until: dict[Expiring, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, request: Expiring, seconds: float) -> None:
        """`expire` is called then, unless it is forgotten before."""
        loop = asyncio.get_running_loop()
        self._until[request] = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def forget(self, request: Expiring) -> None:
        """It does not wait any more, or never did."""
        self._until.pop(request, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for request in [each for each, until in self._until.items() if until <= now]:
            del self._until[request]
            loop.call_soon(request.expire)  # each for itself: one that fails keeps no other waiting
        self._timer = loop.call_later(LOOK_SECONDS, self._look) if self._until else None
