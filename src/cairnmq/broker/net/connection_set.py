"""Every client connection of the broker, whichever listener accepted it: admission, the periodic sweep, draining."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from cairnmq.broker.memory_budget import trim_heap
from cairnmq.broker.net.connection import Connection
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.options import Address, ListenerSpec
from cairnmq.broker.requests.router import Router
from cairnmq.storage.api.serving import LARGE, SMALL, Chunks

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

log = logging.getLogger("cairnmq.broker")

_SWEEPS_PER_TIMEOUT = 4
_SWEEP_SECONDS_MAX = 5.0
_PRESSED_SWEEP_SECONDS = 1.0
_NOTES_PER_SECOND = 20
_CALM_BYTES = 1 << 20
_BUSY_BYTES = 64 << 20
_KEPT_PART = 3  # of the memory for requests, at most, in free chunks of either size
_KEPT_SMALL, _KEPT_LARGE = 256, 16


class ConnectionSet:
    """Owns the connections, and what they share: limits, receive memory, one sweep. `maximum` gives how many there may
    be, by the settings as they are now; `http` is where the status page is, for browsers that come here instead."""

    def __init__(
        self, ctx: Context, router: Router, limits: Limits, maximum: Callable[[], int], http: Address | None = None
    ) -> None:
        self._ctx = ctx
        self._router = router
        self._limits = limits
        self._maximum = maximum
        self.http = http
        self.members: set[Connection] = set()
        kept = ctx.budget.limit // _KEPT_PART
        self.chunks = Chunks(min(kept // SMALL, _KEPT_SMALL), min(kept // LARGE, _KEPT_LARGE))
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._is_empty = asyncio.Event()
        self._notes = 0
        self._notes_since = 0.0
        self._moved = 0
        self._trimmed = 0
        for key in router.routes:
            ctx.metrics.request(key)

    def connect(self, spec: ListenerSpec) -> Connection:
        """A new connection of that listener; it becomes a member when it has its transport."""
        return Connection(self, spec, self._ctx, self._router, self._limits)

    def admit(self, connection: Connection) -> bool:
        if self._is_draining or len(self.members) >= self._maximum():
            self._ctx.metrics.refused += 1
            log.debug("connection from %s refused: max.connections is %d", connection.peer, self._maximum())
            return False
        self.members.add(connection)
        self._ctx.metrics.connections = len(self.members)
        self._ctx.metrics.connections_total += 1
        return True

    def note_closed(self, peer: str, reason: str) -> None:
        """Into the log, but for floods: a client that sends nonsense all the time must not fill the disk with it."""
        now = asyncio.get_running_loop().time()
        if now - self._notes_since >= 1.0:
            if self._notes > _NOTES_PER_SECOND:
                log.info("%d more connections closed for such reasons", self._notes - _NOTES_PER_SECOND)
            self._notes_since, self._notes = now, 0
        self._notes += 1
        if self._notes <= _NOTES_PER_SECOND:
            log.info("connection from %s closed: %s", peer, reason)

    def dismiss(self, connection: Connection) -> None:
        self.members.discard(connection)
        self._ctx.metrics.connections = len(self.members)
        if self._is_draining and not self.members:
            self._is_empty.set()

    def sweep(self, now: float) -> None:
        """One pass over all connections instead of a timer for each."""
        for connection in list(self.members):
            connection.sweep(now)

    def start_sweeps(self) -> None:
        """Until `drain`; every listener asks for it."""
        if self._sweeper is None and not self._is_draining:
            self._sweep()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.sweep(loop.time())
        shortest = min(self._limits.idle_seconds, self._limits.stall_seconds)
        delay = min(shortest / _SWEEPS_PER_TIMEOUT, _SWEEP_SECONDS_MAX)
        # While memory is short, those who hold it without moving are looked for more often.
        if any(budget.wanted for budget in (self._ctx.budget, self._ctx.objects, self._ctx.answers)):
            delay = min(delay, _PRESSED_SWEEP_SECONDS)
            for respond_now in tuple(self._ctx.large_polls):
                respond_now()
        self._sweeper = loop.call_later(delay, self._sweep)
        self._give_memory_back()

    def _give_memory_back(self) -> None:
        """What a busy time has used is free, but pools and the heap keep it. Only in a calm one: using it again costs
        faults."""
        moved = self._ctx.metrics.bytes_in + self._ctx.metrics.bytes_out
        calm = moved - self._moved < _CALM_BYTES
        self._moved = moved
        if calm and moved - self._trimmed > _BUSY_BYTES:
            self._trimmed = moved
            self.chunks.empty()
            self._ctx.store.chunks.empty()
            trim_heap()

    async def drain(self, grace_seconds: float) -> None:
        """Admit nobody; started requests get their responses for at most `grace_seconds`, then hang up."""
        self._is_draining = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.members):
            connection.drain()
        if self.members:
            try:
                await asyncio.wait_for(self._is_empty.wait(), grace_seconds)
            except TimeoutError:
                for connection in list(self.members):
                    connection.abort()
