"""Broker-wide allowances of bytes: pending requests, and responses that clients have not taken yet."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable

_WAKES = 16
_SHARE = 6  # one response gets at most this part of the rest, so that a few slow readers cannot take all of it
_LEAST = 64 * 1024
_SMALL = 64 * 1024


class Budget:
    """A reservation succeeds while anything is left, so one request larger than the whole allowance still passes.

    Small ones may use a quarter more, whatever the large ones hold: clients that send or ask for much must not keep
    the others waiting.
    """

    __slots__ = (
        "limit", "used", "_small_used", "_small_limit", "_large_started", "_waiting", "_small_waiting", "_privileged",
    )  # fmt: skip

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._small_limit = limit // 4
        self._small_used = 0  # of those that are given back in one piece
        self._large_started = 0
        self._waiting: deque[Callable[[], object]] = deque()
        self._small_waiting: deque[Callable[[], object]] = deque()
        self._privileged: object | None = None

    @property
    def full(self) -> bool:
        return self.used >= self.limit

    @property
    def wanted(self) -> bool:
        """A reservation waits."""
        return bool(self._waiting or self._small_waiting)

    @property
    def share(self) -> int:
        """How much one response may take now."""
        return max((self.limit - self.used) // _SHARE, _LEAST)

    def reserve(self, size: int) -> bool:
        if size <= _SMALL:
            if self.used >= self.limit and self._small_used >= self._small_limit:
                return False
            self._small_used += size
        elif self.used >= self.limit:
            return False
        self.used += size
        return True

    def reserve_more(self, size: int, holder: object) -> bool:
        """For the holder of a part. Holders of parts could wait for one another for ever, so one is let through: not
        while large requests are under way, which end without more memory."""
        if self.used >= self.limit:
            if self._large_started or self._privileged not in (None, holder):
                return False
            self._privileged = holder
        self.used += size
        return True

    def start(self, size: int) -> None:
        """A request that holds so much is under way, and will `finish`."""
        if size > _SMALL:
            self._large_started += size

    def finish(self, size: int) -> None:
        """Releases it."""
        self.release(size)
        if size > _SMALL:
            self._large_started -= size
            if not self._large_started and self.full:
                self._wake_all()

    def give_back(self, size: int, holder: object) -> None:
        """The holder of parts has everything, or gives up."""
        was_privileged = self._privileged is holder
        if was_privileged:
            self._privileged = None
        self.release(size)
        if was_privileged and self.full and not self._large_started:
            self._wake_all()

    def take(self, size: int) -> None:
        """Without asking: the bytes are there already."""
        self.used += size

    def wait(self, wake: Callable[[], object], size: int = _SMALL + 1) -> None:
        """`wake` is called once, when so much may be reserved again."""
        (self._waiting if size > _SMALL else self._small_waiting).append(wake)

    def forget(self, wake: Callable[[], object]) -> None:
        for waiting in (self._waiting, self._small_waiting):
            if wake in waiting:
                waiting.remove(wake)

    def release(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0, "released more bytes than were reserved"
        if size <= _SMALL:
            self._small_used = max(self._small_used - size, 0)
        if self._small_waiting and (self.used < self.limit or self._small_used < self._small_limit):
            self._wake(self._small_waiting)
        if self._waiting and self.used < self.limit:
            self._wake(self._waiting)

    def _wake_all(self) -> None:
        for _ in range(len(self._waiting)):  # among them is the next to be let through
            self._waiting.popleft()()

    def _wake(self, waiting: deque[Callable[[], object]]) -> None:
        # A few at a time, or thousands of waiters would be woken for one small request's worth of room. While
        # anything is in flight another release will follow; when nothing is, nobody may be left waiting.
        for _ in range(min(len(waiting), _WAKES) if self.used else len(waiting)):
            waiting.popleft()()


def trim_heap() -> None:
    """Give free memory inside the heap back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Tally:
    """Bytes that go unseen: added up as they come, and counted again when the sum seems to be too much."""

    __slots__ = ("limit", "_count", "_total", "_counted_ms")

    AGAIN_MS = 1000

    def __init__(self, limit: int, count: Callable[[], int]) -> None:
        self.limit = limit
        self._count = count
        self._total = count()
        self._counted_ms = 0

    def admits(self, size: int, now_ms: int) -> bool:
        if size <= 0:
            return True  # nothing more, or less: also when there is too much already
        if self._total + size > self.limit and abs(now_ms - self._counted_ms) >= self.AGAIN_MS:
            self._total, self._counted_ms = self._count(), now_ms
        if self._total + size > self.limit:
            return False
        self._total += size
        return True

    def count_again(self) -> None:
        """Much has come, or gone, at once."""
        self._total = self._count()
