"""Memory for the raw bytes of responses, used again: a new buffer for each would cost a page fault for each page."""

from __future__ import annotations

_KEPT = 2  # as many as are in flight
_KEPT_BYTES_MAX = 16 << 20  # of one; larger ones are rare, and given back to the system
_LEAST_BYTES = 64 << 10


class ReceiveMemory:
    """Of one link. What is given back may be written over at once."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """At least `size` bytes. Pages are touched only when bytes arrive."""
        for place, buffer in enumerate(self._kept):
            if len(buffer) >= size:
                return self._kept.pop(place)
        return bytearray(max(1 << (size - 1).bit_length(), _LEAST_BYTES) if size else 0)

    def give(self, buffer: bytearray) -> None:
        """Nobody reads it any more."""
        if _LEAST_BYTES <= len(buffer) <= _KEPT_BYTES_MAX:
            self._kept.append(buffer)
            self._kept.sort(key=len)
            if len(self._kept) > _KEPT:
                del self._kept[0]
