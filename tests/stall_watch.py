"""How long the machine kept this process from running: what no deadline can be held against anybody else for."""

from __future__ import annotations

import threading
import time

TICK_SECONDS = 0.01
NOTED_SECONDS = 0.05


class StallWatch:
    """A thread that wants to wake up often, and notes when it could not."""

    def __init__(self) -> None:
        self.worst = 0.0
        self.stalls: list[tuple[float, float]] = []
        """(its end, seconds) of those worth mentioning."""
        self.awake = time.monotonic()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, name="stall watch", daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.wait(TICK_SECONDS):
            now = time.monotonic()
            late = now - self.awake - TICK_SECONDS
            self.worst = max(self.worst, late)
            if late > NOTED_SECONDS:
                self.stalls.append((now, late))
            self.awake = now

    def lost_since(self, moment: float) -> float:
        """Seconds of all stalls that ended since then, or last."""
        lasts = max(0.0, time.monotonic() - self.awake - TICK_SECONDS)
        return lasts + sum(min(late, end - moment) for end, late in self.stalls if end > moment)

    def finish(self) -> None:
        self.stopping.set()
        self.thread.join()

    def __enter__(self) -> StallWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
