"""Sizes of queue logs on disk, for people: measured by looking, at most every few seconds, on a thread."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

log = logging.getLogger("cairnmq.broker")

_FRESH_SECONDS = 5.0
_SHARE = 0.02


class Measured:
    """Bytes by the name of a queue's directory."""

    __slots__ = ("_bytes",)

    def __init__(self, sizes: dict[str, int]) -> None:
        self._bytes = sizes

    def of_partition(self, topic: str, partition: int) -> int:
        return self._bytes.get(f"{topic}-{partition}", 0)


class Sizes:
    """Looks again only when asked, and so rarely that looking takes at most a small share of the time."""

    def __init__(self, data: str, clock: Callable[[], float]) -> None:
        self._queues = os.path.join(data, "queues")
        self._clock = clock
        self._known = Measured({})
        self._stale_at = clock()
        self._looking: asyncio.Task[None] | None = None

    async def current(self) -> Measured:
        if self._clock() >= self._stale_at:
            if self._looking is None:
                self._looking = asyncio.get_running_loop().create_task(self._look())
            await asyncio.shield(self._looking)
        return self._known

    async def _look(self) -> None:
        seconds = 0.0
        try:
            found, seconds = await asyncio.to_thread(_measure, self._queues)
            self._known = Measured(found)
        except OSError as error:
            log.warning("sizes of queue logs cannot be measured; those known before are shown: %s", error)
        finally:
            self._looking = None
            self._stale_at = self._clock() + max(_FRESH_SECONDS, seconds / _SHARE)


def _measure(queues: str) -> tuple[dict[str, int], float]:
    started = time.thread_time()
    sizes: dict[str, int] = {}
    try:
        with os.scandir(queues) as directories:
            for directory in directories:
                sizes[directory.name] = _size(directory.path)
    except FileNotFoundError:
        return {}, 0.0
    return sizes, time.thread_time() - started


def _size(directory: str) -> int:
    """As much as can be seen. Files may go while we look: retention and deletion do not wait for us."""
    total = 0
    try:
        with os.scandir(directory) as files:
            for file in files:
                if file.name.endswith(".log"):
                    total += file.stat().st_size
    except OSError:
        return total
    return total
