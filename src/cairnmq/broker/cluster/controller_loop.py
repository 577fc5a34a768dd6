"""The controller's turn: on one broker, whichever holds the election, decisions of `replication.controller` are made.

It acts on the image of the metadata alone and sends nothing to brokers: they act on the records that they see.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from cairnmq.errors import Fault
from cairnmq.replication.controller import ControllerMemory, decide, preferred_due
from cairnmq.replication.records import ClusterView, Member, Proposal

log = logging.getLogger("cairnmq.broker")

LOOK_SECONDS = 0.5
RETRY_SECONDS = 0.05


class ControllerPorts(Protocol):
    """What the controller needs of the metadata."""

    def view(self) -> ClusterView: ...

    def controller(self) -> Member | None: ...

    def elect_controller(self) -> Awaitable[bool]: ...

    def decide(self, proposals: Sequence[Proposal]) -> Awaitable[bool]: ...

    def reread(self) -> Awaitable[None]: ...


class ControllerLoop:
    """`me`: this broker in its life of now, if it has a session."""

    def __init__(self, ports: ControllerPorts, me: Callable[[], Member | None], now_ms: Callable[[], int]) -> None:
        self._ports = ports
        self._me = me
        self._now_ms = now_ms
        self._memory = ControllerMemory()
        self._was_controller = False
        self._due = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def look(self) -> None:
        """The metadata changed."""
        self._due.set()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(LOOK_SECONDS, self._due.set)
            await self._due.wait()
            timer.cancel()
            self._due.clear()
            try:
                await self._look()
            except (Fault, OSError) as error:
                log.warning("controller: %s", error)
                await asyncio.sleep(LOOK_SECONDS)
            except Exception:
                log.exception("controller: a look at the metadata failed; trying again")
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        ports = self._ports
        me, view, controller = self._me(), ports.view(), ports.controller()
        if me is None:
            return
        if controller is None:
            await ports.elect_controller()
            await ports.reread()
            return
        if controller != me:
            self._was_controller = False
            return
        if not self._was_controller:
            log.info("this broker is the controller")
            self._memory, self._was_controller = ControllerMemory(), True
        now_ms = self._now_ms()
        proposals = decide(view, self._memory, now_ms)
        if not proposals:
            back = preferred_due(view, self._memory, now_ms)
            proposals = [back] if back is not None else []
        if not proposals:
            return
        for proposal in proposals:
            leader = proposal.record.leader
            log.info(
                "journal %d: %s under epoch %d",
                proposal.record.journal,
                f"elected broker {leader.broker}" if leader else "no replica can lead",
                proposal.record.epoch,
            )
        if not await ports.decide(proposals):
            await asyncio.sleep(RETRY_SECONDS)  # somebody changed what this was decided on
        await ports.reread()
        self._due.set()
