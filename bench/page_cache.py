"""The page cache, full before each turn, as on a server that has run for a while.

A virtual machine may give free memory back to its host. The first touch of such a page then costs the kernel ten times
as much as the copy into it, and is counted for the server that writes."""

from __future__ import annotations

import os
from pathlib import Path

from bench.probes import memory_bytes

PIECE_BYTES = 4 << 20
TIMES_OF_MEMORY = 4  # so that what is read next was never read, or is long gone from memory


class PageCache:
    """`fill` reads a file without blocks, which takes no disk and gives way to whatever is written later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def fill(self) -> int:
        """Reads as much as is free now; returns how many bytes."""
        wanted = memory_bytes("MemFree")
        size = TIMES_OF_MEMORY * memory_bytes("MemTotal")
        piece = bytearray(PIECE_BYTES)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(handle, size)
            done = 0
            while done < wanted:
                count = os.preadv(handle, [piece], self._position)
                done += count
                self._position = (self._position + count) % size
        finally:
            os.close(handle)
        return done
