"""When a slow client is cut off: it does not read its responses, or holds memory for a request that does not arrive.

Pure: the connection says what it sees, with the time. A client that moves on is kept, unless others wait for the memory
that it holds; then it has less time and must move more.
"""

from __future__ import annotations

PRESSED_SECONDS = 3.0
SLOW_BYTES = 64 * 1024  # moved in that time, or between two sweeps, while others wait

_UNKNOWN = 1 << 62


class SlowClientPolicy:
    __slots__ = ("_stall_seconds", "_stalled_since", "_unsent_bytes", "_part", "_received_bytes")

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._stalled_since = 0.0
        self._unsent_bytes = 0
        self._part = 0
        self._received_bytes = 0

    def restart(self) -> None:
        """The next look at its unsent bytes starts the clock."""
        self._unsent_bytes = _UNKNOWN

    def reads_too_slowly(self, now: float, unsent_bytes: int, *, others_wait: bool) -> bool:
        needed, patience = 0, self._stall_seconds
        if others_wait:
            needed, patience = SLOW_BYTES, min(patience, PRESSED_SECONDS)
        if unsent_bytes < self._unsent_bytes - needed:
            self._unsent_bytes, self._stalled_since = unsent_bytes, now
            return False
        return now - self._stalled_since >= patience

    def sends_too_slowly(self, part: int, received_bytes: int, frame_bytes: int) -> bool:
        """Asked while others wait for the memory of an unfinished request. `part`: a number that each such request has
        for itself; it has until the next look but one."""
        if part != self._part:
            self._part, self._received_bytes = part, received_bytes
            return False
        before, self._received_bytes = self._received_bytes, received_bytes
        return received_bytes < frame_bytes and received_bytes - before < SLOW_BYTES
