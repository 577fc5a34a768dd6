"""How long an install waits so that it takes no more than its share of the network and the disks."""

from __future__ import annotations

BURST_MS = 100  # of bytes at once, so that timers need not be exact


class Throttle:
    """Asked after each piece; time is an argument. A rate that changes counts from the next piece on."""

    def __init__(self) -> None:
        self._free_ms = 0.0  # when all that was taken before is paid for

    def wait_ms(self, size: int, bytes_per_second: int, now_ms: int) -> float:
        """Before the next piece, after one of this size."""
        self._free_ms = max(self._free_ms, now_ms - BURST_MS) + size * 1000 / bytes_per_second
        return max(0.0, self._free_ms - now_ms)
