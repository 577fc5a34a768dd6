"""Producers wait, in order, while the splitter's backlog is at its cap; they are never refused for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cairnmq.storage.api.serving import Engine


class Backlog:
    """One store's; runs on the loop thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def _at_cap(self) -> bool:
        engine = self._engine
        return any(engine.full(path) for path in engine.paths.values())

    @property
    def full(self) -> bool:
        """At its cap, or other requests wait already: call `when_room`."""
        return bool(self._waiting) or self._at_cap

    def when_room(self, resume: Callable[[], None]) -> None:
        self._waiting.append(resume)

    def give_room(self) -> None:
        """There may be room: a round was split, a setting changed, or a journal stopped, which refuses producers."""
        while self._waiting and not self._at_cap:
            self._waiting.popleft()()
