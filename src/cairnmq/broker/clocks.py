"""What time it is, for three purposes.

Time limits (sessions, rebalances, transactions) run by a steady clock, which no one sets. Dates that are stored are
those of the wall clock: nothing else means the same after a restart. What becomes too old by such a date does so by the
expiry clock: the wall clock may be wrong, most of all after a boot, before NTP has set it right.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

STEP_MS = 60_000  # NTP makes smaller ones now and then
START_HOLD_MS = 3_600_000


class Clocks(Struct, frozen=True, kw_only=True, eq=False):
    """`wall_ms` gives dates, `steady_ms` is for time limits, `seconds` measures how long something takes. `sleep` is
    for threads that may wait."""

    wall_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    seconds: Callable[[], float]
    sleep: Callable[[float], None]


def steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


SYSTEM_CLOCKS = Clocks(wall_ms=wall_ms, steady_ms=steady_ms, seconds=time.perf_counter, sleep=time.sleep)


class ExpiryClock:
    """The wall clock as far as it can be trusted; 0 as long as it cannot.

    A clock that is behind lets nothing go too early, so a step back counts at once. One that is ahead would let
    everything go, so after a start it counts when it has run evenly for an hour. After a step forward, the time goes on
    from what counted before (after a start: nothing) for a whole lifetime: if the clock was wrong before the step, what
    was dated then is old enough by then, whatever its date says.

    `lifetime_ms`: how long what expires by this clock lives.
    """

    def __init__(self, wall: Callable[[], int], steady: Callable[[], int], lifetime_ms: Callable[[], int]) -> None:
        self._wall = wall
        self._steady = steady
        self._lifetime_ms = lifetime_ms
        self._even_since_ms = steady()
        self._ahead_ms = wall() - self._even_since_ms  # how far the wall clock is ahead of the steady one
        self._stepped = False
        self._trusted_ahead_ms: int | None = None

    def __call__(self) -> int:
        now_ms = self._steady()
        ahead_ms = self._wall() - now_ms
        if ahead_ms > self._ahead_ms + STEP_MS:
            self._even_since_ms, self._stepped = now_ms, True
        self._ahead_ms = ahead_ms
        lifetime_ms = self._lifetime_ms()
        if now_ms - self._even_since_ms >= (lifetime_ms if self._stepped else min(START_HOLD_MS, lifetime_ms)):
            self._trusted_ahead_ms = ahead_ms
        elif self._trusted_ahead_ms is not None:
            self._trusted_ahead_ms = min(self._trusted_ahead_ms, ahead_ms)
        return 0 if self._trusted_ahead_ms is None else now_ms + self._trusted_ahead_ms
