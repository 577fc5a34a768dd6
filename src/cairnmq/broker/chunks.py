"""Receive buffers that are handed out again only when nobody can still see their bytes.

Request bytes travel to the journal as memoryviews, so a chunk must never be written over while a view on it lives.
CPython refuses to resize a bytearray that has exported views; that refusal is the (exact, cheap) test used here.
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
    """One pool for all connections: an idle connection holds no chunk at all."""

    __slots__ = ("_kept", "_limits")

    def __init__(self, kept_small: int = 256, kept_large: int = 64) -> None:
        self._kept: dict[int, deque[bytearray]] = {SMALL: deque(), LARGE: deque()}
        self._limits = {SMALL: kept_small, LARGE: kept_large}

    def take(self, size: int) -> bytearray | mmap:
        """A chunk of at least `size` bytes."""
        if size > LARGE:
            # Anonymous memory costs nothing until it is filled: a client that only announces 100 MB pins no 100 MB.
            return mmap(-1, size)
        size = SMALL if size <= SMALL else LARGE
        kept = self._kept[size]
        for _ in range(min(_TRIES, len(kept))):
            chunk = kept.popleft()
            if unseen(chunk):
                return chunk
            kept.append(chunk)
        return bytearray(size)

    def give(self, chunk: bytearray | mmap) -> None:
        """Take a chunk back, with or without views on it; what exceeds the pool is left to the last view."""
        if isinstance(chunk, bytearray):
            kept = self._kept[len(chunk)]
            if len(kept) < self._limits[len(chunk)]:
                kept.append(chunk)

    @property
    def kept_bytes(self) -> int:
        return sum(size * len(kept) for size, kept in self._kept.items())
