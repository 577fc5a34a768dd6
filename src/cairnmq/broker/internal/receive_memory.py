"""Memory for the raw bytes of responses, used again: a new buffer for each would cost a page fault for each page."""

from __future__ import annotations

_KEPT = 2  # as many as are in flight
_KEPT_BYTES_MAX = 16 << 20  # of one; larger ones are rare, and given back to the system
_LEAST_BYTES = 64 << 10
_IDLE_RESPONSES = 20  # without bytes, one after another: about 10 s at rest


class ReceiveMemory:
    """Of one link. What is given back may be written over at once."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._empty = 0

    def nothing_came(self) -> None:
        """A response had no bytes. A link at rest holds no memory."""
        self._empty += 1
        if self._empty == _IDLE_RESPONSES:
            self._kept.clear()

    def take(self, size: int) -> bytearray:
        """At least `size` bytes. Pages are touched only when bytes arrive."""
        self._empty = 0
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
