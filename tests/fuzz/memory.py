"""Watches what a broker's processes hold together (PSS), and what its log says."""

from __future__ import annotations

import threading

import psutil

from broker_process import Broker

EVERY_SECONDS = 0.1
# What a client does is no error of ours. Everything of this kind in the log is a finding.
FORBIDDEN = ("Traceback", "request failed", "never retrieved", "MemoryError", " ERROR ", " CRITICAL ", "Exception in")


class MemoryWatch:
    """Samples from a thread of its own; `peak` is the largest sum seen, in bytes."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.peak = 0
        self.of_each: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            self.sample()

    def sample(self) -> int:
        total = 0
        each = {}
        for place, process in enumerate(self.broker.tree()):
            try:
                # Shared anonymous memory (large frames) is in PSS and not in USS.
                each["broker" if place == 0 else "splitter"] = size = process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            total += size
        if total > self.peak:
            self.peak, self.of_each = total, each
        return total

    def stop(self) -> int:
        """The peak in MB."""
        self._stop.set()
        self._thread.join()
        return self.peak >> 20


def findings_in_log(broker: Broker) -> list[str]:
    lines = broker.log().splitlines()
    return [line for line in lines if any(word in line for word in FORBIDDEN)][:20]
