"""Buffers that are handed out again only when nobody can still see their bytes.

Request bytes travel to the journal, and record bytes from a file to a socket, as memoryviews, so a chunk must never be
written over while a view on it lives. CPython refuses to resize a bytearray that has exported views; that refusal is
the (exact, cheap) test used here. Memory that is used again needs no page faults, which cost more than a copy.
"""

from __future__ import annotations

from collections import deque
from mmap import mmap

SMALL = 64 * 1024
LARGE = 1024 * 1024
_TRIES = 4


def unseen(chunk: bytearray) -> bool:
    """True if no memoryview on the chunk is alive."""
    try:
        chunk.pop()
    except BufferError:
        return False
    chunk.append(0)
    return True


class Chunks:
    """A pool; who is idle holds no chunk at all."""

    __slots__ = ("_kept", "_limits", "_large_out", "_large_max")

    def __init__(self, kept_small: int = 256, kept_large: int = 16, large_max: int = 32) -> None:
        self._kept: dict[int, deque[bytearray]] = {SMALL: deque(), LARGE: deque()}
        self._limits = {SMALL: kept_small, LARGE: kept_large}
        self._large_out = 0
        self._large_max = large_max

    def take(self, size: int, wish: int = SMALL) -> bytearray | mmap:
        """A chunk of at least `size` bytes; of `wish` bytes while not too many have such large ones."""
        if size > LARGE:
            # Anonymous memory costs nothing until it is filled: a client that only announces 100 MB pins no 100 MB.
            return mmap(-1, size)
        if self._large_out >= self._large_max:
            if size > SMALL:
                return mmap(-1, size)  # given back to the system at once, where the heap would keep it
            wish = SMALL
        size = SMALL if max(size, wish) <= SMALL else LARGE
        if size == LARGE:
            self._large_out += 1
        kept = self._kept[size]
        for _ in range(min(_TRIES, len(kept))):
            chunk = kept.popleft()
            if unseen(chunk):
                return chunk
            kept.append(chunk)
        return bytearray(size)

    def give(self, chunk: bytearray | mmap) -> None:
        """Take a chunk back, with or without views on it; what exceeds the pool is left to the last view."""
        kept = self._kept.get(len(chunk))
        if isinstance(chunk, bytearray) and kept is not None:
            if len(chunk) == LARGE:
                self._large_out -= 1
            if len(kept) < self._limits[len(chunk)]:
                kept.append(chunk)

    @property
    def kept_bytes(self) -> int:
        return sum(size * len(kept) for size, kept in self._kept.items())
