"""asyncio's own event loop on simulated time, sockets and threads: everything follows from a seed (ADR 0033).

Time stands still while code runs. Between two turns it passes, to the next timer if nothing is ready. Callbacks of one
turn run in the order in which they were asked for, as asyncio promises; which socket is ready first is drawn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextvars import Context
from random import Random
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from typing import Any, Protocol

from cairnmq.testing.brokers.sim_process import PROCESS, Marked, SimProcess
from cairnmq.testing.brokers.sim_thread import SimThread

TURN_SECONDS_MAX = 0.0002
_RESOLUTION = 1e-9  # of the loop's clock: timers that are due at the same time are due in one turn


class Stuck(RuntimeError):
    """Everybody waits, and nothing will come: a test that would hang."""


class Waitable(Protocol):
    """A simulated socket, as the selector sees it."""

    def fileno(self) -> int: ...

    @property
    def is_readable(self) -> bool: ...

    @property
    def is_writable(self) -> bool: ...

    @property
    def process(self) -> SimProcess | None: ...


class SimSelector(BaseSelector):
    """Of simulated sockets by their numbers; other descriptors, as asyncio's own pipe, are never ready."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.sockets: dict[int, Waitable] = {}
        self._random = random
        self._keys: dict[int, SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        if number in self._keys:
            raise KeyError(f"{number} is registered already")
        self._keys[number] = SelectorKey(fileobj, number, events, data)
        return self._keys[number]

    def unregister(self, fileobj: Any) -> SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, SelectorKey]:
        return self._keys

    def get_key(self, fileobj: Any) -> SelectorKey:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """What is ready now; else time passes, up to the next timer."""
        ready = [(key, mask) for key in self._keys.values() if (mask := self._ready(key))]
        self._random.shuffle(ready)
        if ready or timeout == 0:
            self.now += self._random.random() * TURN_SECONDS_MAX
        elif timeout is None:
            raise Stuck("nothing is ready, and no timer runs")
        else:
            self.now += timeout
        return ready

    def _ready(self, key: SelectorKey) -> int:
        found = self.sockets.get(key.fd)
        if found is None or (found.process is not None and found.process.is_paused):
            return 0
        readable = EVENT_READ if key.events & EVENT_READ and found.is_readable else 0
        return readable | (EVENT_WRITE if key.events & EVENT_WRITE and found.is_writable else 0)

    def close(self) -> None:
        self._keys.clear()


class SimLoop(asyncio.SelectorEventLoop):
    """`random` decides all that a machine decides. `selector.sockets` are the simulated sockets."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.selector = SimSelector(random)
        super().__init__(self.selector)
        self._clock_resolution = _RESOLUTION
        self._threads: dict[SimProcess | None, SimExecutor] = {}  # asyncio's own, of each process
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self.selector.now

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """A simulated one, or asyncio's default."""
        process = PROCESS.get()
        if process not in self._threads:
            self._threads[process] = SimExecutor(self, "asyncio", 8, may_wait=True)
        pool = self._threads[process] if executor is None else executor
        assert isinstance(pool, SimExecutor), f"{pool!r} has real threads"
        return pool.begin(func, args)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, **context: Any) -> asyncio.Handle:  # type: ignore[override]
        """There are no threads, but the loop's own pipe is not to be written to."""
        return self.call_soon(callback, *args, **context)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        marked = Marked(process, callback, args)
        marked.handle = super().call_soon(marked, context=context)
        return marked.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        marked = Marked(process, callback, args)
        marked.handle = timer = super().call_at(when, marked, context=context)
        return timer

    def _add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        return super()._add_reader(fd, *_marked(callback, args))  # type: ignore[misc,no-any-return]

    def _add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        return super()._add_writer(fd, *_marked(callback, args))  # type: ignore[misc,no-any-return]

    def resume(self, process: SimProcess) -> None:
        """What was due while it was paused is done first."""
        for handle in process.resume():
            if not handle.cancelled():
                self._ready.append(handle)  # type: ignore[attr-defined]

    def delay(self) -> float:
        """How long something takes that another thread or machine does: mostly little, sometimes long."""
        return self.random.expovariate(1 / 0.0005) if self.random.random() < 0.98 else self.random.uniform(0.005, 0.05)


def _marked(callback: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Not called in a process that has been killed in the same turn."""
    process = PROCESS.get()
    return (callback, *args) if process is None else (Marked(process, callback, args),)


def _make_task(loop: Any, work: Any, context: Context | None = None) -> asyncio.Task[Any]:
    """Its process knows it."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.tasks.add(task)
    return task


class _Job:
    """One call on a thread. What it does happens at one moment, what it reports in a later turn."""

    __slots__ = ("args", "done", "func", "is_begun")

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], done: asyncio.Future[Any]) -> None:
        self.func = func
        self.args = args
        self.done = done
        self.is_begun = False

    def perform(self) -> tuple[Any, BaseException | None]:
        self.is_begun = True
        try:
            return self.func(*self.args), None
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whoever waits hears of it, as from a thread
            return None, error

    def report(self, result: Any, error: BaseException | None) -> None:
        if self.done.cancelled():
            return
        if error is None:
            self.done.set_result(result)
        else:
            self.done.set_exception(error)


class SimExecutor(Executor):
    """So many threads of a name. Calls of one thread keep their order, others may overtake each other. `may_wait`: they
    may sleep, and everybody else goes on meanwhile."""

    def __init__(self, loop: SimLoop, name: str, threads: int, *, may_wait: bool = False) -> None:
        self.name = name
        self._may_wait = may_wait
        self._loop = loop
        self._free = threads
        self._jobs: deque[_Job] = deque()
        self._taken: list[_Job] = []  # by a thread that has not begun
        self._is_shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """For code on another thread, which waits for the result: it is there at once."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - of whoever waits
            future.set_exception(error)
        return future

    def begin(self, func: Callable[..., Any], args: tuple[Any, ...]) -> asyncio.Future[Any]:
        """On the next thread that is free."""
        if self._is_shut:
            raise RuntimeError(f"cannot schedule new futures after shutdown of {self.name}")
        job = _Job(func, args, self._loop.create_future())
        self._jobs.append(job)
        self._next()
        return job.done

    def _next(self) -> None:
        while self._free and self._jobs:
            self._free -= 1
            self._taken.append(self._jobs.popleft())
            self._loop.call_later(self._loop.delay(), self._perform, self._taken[-1])

    def _perform(self, job: _Job) -> None:
        if job.is_begun:
            return  # by `shutdown`
        self._taken.remove(job)
        if self._may_wait:
            thread = SimThread(
                job.perform,
                lambda seconds: self._loop.call_later(seconds, thread.go_on),
                lambda outcome, _: self._performed(job, outcome),
            )
            thread.go_on()
        else:
            self._performed(job, job.perform())

    def _performed(self, job: _Job, outcome: tuple[Any, BaseException | None]) -> None:
        self._loop.call_soon(job.report, *outcome)
        self._free += 1
        self._next()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What waits for a thread is done before this returns, as by threads that are joined."""
        assert wait or not self._jobs, "nobody drops work"
        self._is_shut = True
        for job in [*self._taken, *self._jobs]:
            self._loop.call_soon(job.report, *job.perform())
        self._taken.clear()
        self._jobs.clear()
