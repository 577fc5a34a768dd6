"""A process that may die or be paused in the middle of anything."""

from __future__ import annotations

from collections.abc import Callable

from cairnmq.testing.replicas.schedule import Schedule


class Process:
    """Dies by `alive = False`: then nothing that it began is finished. While it is paused, everything waits."""

    def __init__(self, schedule: Schedule) -> None:
        self.alive = True
        self.paused = False
        self._schedule = schedule
        self._postponed: list[Callable[[], None]] = []

    def guarded(self, step: Callable[[], None]) -> Callable[[], None]:
        """Only while this process lives, and not while it is paused."""

        def run() -> None:
            if self.alive and self.paused:
                self._postponed.append(step)
            elif self.alive:
                step()

        return run

    def resume(self) -> None:
        """After a pause everything that waited happens at once."""
        self.paused = False
        postponed, self._postponed = self._postponed, []
        for step in postponed:
            self.guarded(step)()

    def now_ms(self) -> int:
        """By a clock that goes on while the machine is suspended, as CLOCK_BOOTTIME does."""
        return self._schedule.now_ms

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        """In this process, unless it dies before."""
        self._schedule.after(delay_ms, self.guarded(step))
