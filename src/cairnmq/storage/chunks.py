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


class Tray:
    """The reads of one answer, side by side in as few chunks as they need.

    What `take` gives may be written over by the next read, except what `keep` was told of.
    """

    __slots__ = ("_chunks", "_chunk", "_view", "_used")

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._chunk: bytearray | mmap | None = None
        self._view = memoryview(b"")
        self._used = 0

    def fits(self, size: int) -> bool:
        return size <= len(self._view) - self._used

    def take(self, size: int) -> memoryview:
        """At most `LARGE` bytes."""
        if not self.fits(size):
            self.close()
            self._chunk = self._chunks.take(size, LARGE)
            self._view = memoryview(self._chunk)
        return self._view[self._used : self._used + size]

    def keep(self, view: memoryview) -> None:
        """The beginning of what was taken last; of anything else it knows nothing."""
        if view.obj is self._chunk:
            self._used += len(view)

    def close(self) -> None:
        """The pool gets the last chunk back; views on it stay good."""
        if self._chunk is not None:
            self._chunks.give(self._chunk)
            self._chunk = None
            self._view = memoryview(b"")
            self._used = 0
