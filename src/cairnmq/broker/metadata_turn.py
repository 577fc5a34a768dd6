"""Changes of the metadata are made one after another; a client waits for its own as long as its request says.

The store may be slow, or away for as long as it takes to find that out. A change that has its turn then goes on without
the client, and is seen by whoever asks next; one that still waits for its turn is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from cairnmq.errors import ErrorCode, Fault, Refusal

log = logging.getLogger("cairnmq.broker")

T = TypeVar("T")

UNSAID_SECONDS = 30.0
"""For a request that gives no time, as `request.timeout.ms` of Kafka's brokers has it."""


class TimeLimit:
    """When the client of a request will wait no longer."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        seconds = timeout_ms / 1000 if timeout_ms > 0 else UNSAID_SECONDS
        self._until = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        """Seconds; 0 when it is over."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    def run_out(self) -> None:
        """Somebody has waited until then: a timer may ring a little too early, and its time is over all the same."""
        self._until = asyncio.get_running_loop().time()

    def refusal(self, *, is_begun: bool) -> Refusal:
        """Retriable, as Kafka has it."""
        limit = f"timeout_ms={self._timeout_ms}" if self._timeout_ms > 0 else f"{UNSAID_SECONDS:g} s"
        outcome = "it may be made later" if is_begun else "it is not made"
        why = f"the metadata store did not take the change within {limit}; {outcome}"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, why)


class MetadataTurn:
    """A lock that knows whose turn has come."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting: set[asyncio.Task[Any] | None] = set()  # changes that have not had their turn
        self._late: set[asyncio.Task[Any]] = set()  # nobody waits for them

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        self._waiting.discard(asyncio.current_task())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    async def within(self, limit: TimeLimit, change: Callable[[], Coroutine[Any, Any, T]]) -> T | Refusal:
        """What a change comes to, or that it took too long."""
        if not limit.left:
            return limit.refusal(is_begun=False)
        task = asyncio.get_running_loop().create_task(change())
        self._waiting.add(task)
        try:
            await asyncio.wait({task}, timeout=limit.left)
        finally:  # the client may be gone
            if not task.done():
                self._late.add(task)
                task.add_done_callback(self._ended)
        if task.done():
            self._waiting.discard(task)
            return task.result()
        if is_begun := task not in self._waiting:
            log.warning("metadata: a change takes longer than its client waits; it continues")
        else:
            task.cancel()
        return limit.refusal(is_begun=is_begun)

    async def close(self) -> None:
        """Nobody waits for a slow store at the end."""
        late = list(self._late)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        self._waiting.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Fault):
            log.warning("metadata: a change that no client waits for any more was not made: %s", error)
        elif error is not None:
            log.error("metadata: a change that no client waits for any more failed", exc_info=error)
