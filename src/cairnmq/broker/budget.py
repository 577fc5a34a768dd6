"""The broker-wide allowance of request bytes in flight: read but not yet answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_WAKES = 16


class Budget:
    """Grants are given while anything is left, so one request larger than the whole allowance still passes."""

    __slots__ = ("limit", "used", "_waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[Callable[[], object]] = deque()

    def reserve(self, size: int) -> bool:
        if self.used >= self.limit:
            return False
        self.used += size
        return True

    def wait(self, wake: Callable[[], object]) -> None:
        """`wake` is called once, when something may be reserved again."""
        self._waiting.append(wake)

    def forget(self, wake: Callable[[], object]) -> None:
        if wake in self._waiting:
            self._waiting.remove(wake)

    def release(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0, "released more request bytes than were reserved"
        if self._waiting and self.used < self.limit:
            # A few at a time, or thousands of waiters would be woken for one small request's worth of room. While
            # anything is in flight another release will follow; when nothing is, nobody may be left waiting.
            for _ in range(min(len(self._waiting), _WAKES) if self.used else len(self._waiting)):
                self._waiting.popleft()()
