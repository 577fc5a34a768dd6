"""Virtual time: what happens when, in which order, from one seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random


class Schedule:
    """Events by time, and at equal times in the order in which they were made."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now_ms = 1_000
        self.events = 0
        self._made = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        """Let it happen then."""
        self._made += 1
        heapq.heappush(self._queue, (self.now_ms + max(delay_ms, 0), self._made, event))

    def run_until(self, end_ms: int) -> None:
        """All events up to this time."""
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, event = heapq.heappop(self._queue)
            self.events += 1
            event()
        self.now_ms = end_ms

    def delay(self, most_ms: int = 30, *, rarely_ms: int = 0) -> int:
        """How long something takes: mostly short, now and then up to `rarely_ms`."""
        if rarely_ms and self.random.random() < 0.03:
            return self.random.randint(0, rarely_ms)
        return self.random.randint(0, most_ms)


class Network:
    """Messages between brokers. A pair keeps their order; what is on its way when it is cut may still arrive."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.cuts: set[tuple[int, int]] = set()  # directed
        self.rarely_ms = 2_000  # what a message may take now and then
        self._last: dict[tuple[int, int], int] = {}

    def send(self, sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        """Deliver it later, or never."""
        pair = (sender, receiver)
        if pair in self.cuts:
            return
        at = max(self.schedule.now_ms + self.schedule.delay(rarely_ms=self.rarely_ms), self._last.get(pair, 0))
        self._last[pair] = at

        def arrive() -> None:
            if pair not in self.cuts or self.schedule.random.random() < 0.2:
                deliver()

        self.schedule.after(at - self.schedule.now_ms, arrive)
