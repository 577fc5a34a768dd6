"""A process of the simulation: whatever it asks the loop for bears its mark, so that it may be killed or paused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, Protocol
from weakref import WeakSet

PROCESS: ContextVar[SimProcess | None] = ContextVar("PROCESS", default=None)


class Ending(Protocol):
    """What ends with its process: sockets, and processes that it has started."""

    def close(self) -> None: ...


class SimProcess:
    """`kill` is kill -9, `pause` is SIGSTOP: clocks and the network go on."""

    def __init__(self) -> None:
        self.is_dead = self.is_paused = False
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.belongings: dict[Ending, None] = {}
        self._held: list[asyncio.Handle] = []
        self._left: list[asyncio.Task[Any]] = []  # nothing of a dead process is cleaned up: that would be its doing

    def run(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """In it, with all that this starts."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return loop.create_task(work, context=context)

    def hold(self, handle: asyncio.Handle) -> None:
        """Due while it is paused."""
        self._held.append(handle)

    def kill(self) -> None:
        self.is_dead = True
        self._held.clear()
        self._left = [task for task in self.tasks if not task.done()]
        for each in list(self.belongings):
            each.close()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> list[asyncio.Handle]:
        """What was due meanwhile, in order."""
        self.is_paused = False
        held, self._held = self._held, []
        return held

    def bury(self) -> None:
        """When the world has ended."""
        for task in self._left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                work: Any = task.get_coro()
                work.close()
        self._left.clear()


class Marked:
    """A callback of a process."""

    __slots__ = ("args", "callback", "handle", "process")

    def __init__(self, process: SimProcess, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        if self.process.is_dead:
            return
        if self.process.is_paused and self.handle is not None:
            self.process.hold(self.handle)
        else:
            self.callback(*self.args)
