"""Produce requests for topics that this broker has not heard of: another one may just have made them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

Key: TypeAlias = "str | bytes"
"""A topic as the request names it."""
CatchUp: TypeAlias = Callable[[], Awaitable[None]]


class UnknownTopics:
    """They wait for one look at the metadata, and later requests for the same topics with them: batches that a client
    sent one after the other keep their order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Collection[Key], Callable[[], None]]] = deque()
        self._named: Counter[Key] = Counter()
        self._task: asyncio.Task[None] | None = None

    def holds(self, topics: Callable[[], Collection[Key]]) -> bool:
        """Whether a request for these topics has to wait behind another one."""
        return bool(self._waiting) and not self._named.keys().isdisjoint(topics())

    def wait(self, topics: Collection[Key], catch_up: CatchUp, go_on: Callable[[], None]) -> None:
        """`go_on` is called when all is known that was made before now."""
        self._waiting.append((topics, go_on))
        self._named.update(topics)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(catch_up))

    async def _run(self, catch_up: CatchUp) -> None:
        while self._waiting:
            count = len(self._waiting)  # those that come later need a later look
            await catch_up()
            for _ in range(count):
                topics, go_on = self._waiting.popleft()
                for topic in topics:
                    self._named[topic] -= 1
                    if not self._named[topic]:
                        del self._named[topic]
                go_on()
        self._task = None
