"""Buffers that are handed out again only when nobody can still see their bytes.

Request bytes travel to the journal, and record bytes from a file to a socket, as memoryviews, so a chunk must never be
written over while a view on it lives. CPython refuses to resize a bytearray that has exported views; that refusal is
the (exact, cheap) test used here. Memory that is used again needs no page faults, which cost more than a copy.
"""

from __future__ import annotations

from collections import deque
from mmap import MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, mmap

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

    def empty(self) -> None:
        """Keeps nothing any more; what is out, or in sight, stays good."""
        for kept in self._kept.values():
            kept.clear()

    @property
    def kept_bytes(self) -> int:
        return sum(size * len(kept) for size, kept in self._kept.items())


class ResponseArena:
    """Memory for the reads of one response, side by side in as few chunks as they need.

    The next read may overwrite what `take` gave, except for what was passed to `keep`.
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


class SplitBuffer:
    """Memory for one large read after the other. Only what reads have filled counts, and it can be given back."""

    __slots__ = ("_size", "_map")

    def __init__(self, size: int) -> None:
        self._size = size
        self._map: mmap | None = None

    def take(self, size: int) -> memoryview:
        """Memory that nobody can see; what was taken before is written over, unless a view on it lives."""
        if size > self._size or (self._map is not None and not self._unseen(self._map)):
            return memoryview(_anonymous(size))
        if self._map is None:
            self._map = _anonymous(self._size)
        return memoryview(self._map)[:size]

    def empty(self) -> None:
        """Gives the memory back to the system; views on it stay good."""
        if self._map is None:
            return
        if self._unseen(self._map):
            self._map.madvise(MADV_DONTNEED)
        else:
            self._map = None

    def _unseen(self, held: mmap) -> bool:
        """As with a bytearray: what has exported views cannot change its size."""
        try:
            held.resize(self._size)
        except (BufferError, SystemError):  # the latter where the system cannot resize at all
            return False
        return True


def _anonymous(size: int) -> mmap:
    return mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
