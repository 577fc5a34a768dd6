"""Bytes in and out over the last minutes: who opens the status page sees a rate at once, and how it came about."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct

STEP_SECONDS = 2.0
STEPS = 60
_YOUNG_SECONDS = STEP_SECONDS / 2  # too short for a rate

Totals: TypeAlias = tuple[int, int]  # bytes in, bytes out


class Sample(Struct, frozen=True, gc=False):
    at: float
    total_in: int
    total_out: int


class Traffic:
    """Looks at two counters every other second; keeps a fixed number of what it saw."""

    def __init__(self, clock: Callable[[], float], totals: Callable[[], Totals]) -> None:
        self._clock = clock
        self._totals = totals
        self._samples: deque[Sample] = deque(maxlen=STEPS + 1)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.look()
        self._timer = asyncio.get_running_loop().call_later(STEP_SECONDS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        self._samples.append(self._now())

    def rates(self) -> tuple[float, float]:
        """Bytes a second in and out, over the last step."""
        now = self._now()
        for sample in reversed(self._samples):
            if now.at - sample.at >= _YOUNG_SECONDS:
                return _rates(sample, now)
        return 0.0, 0.0

    def history(self) -> list[tuple[float, float]]:
        """The same for each step that is remembered, the oldest first."""
        return [_rates(before, after) for before, after in pairwise(self._samples)]

    def _now(self) -> Sample:
        return Sample(self._clock(), *self._totals())


def _rates(before: Sample, after: Sample) -> tuple[float, float]:
    seconds = after.at - before.at
    if seconds <= 0:
        return 0.0, 0.0
    return (after.total_in - before.total_in) / seconds, (after.total_out - before.total_out) / seconds
