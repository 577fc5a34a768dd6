"""What a connection has received and not started yet: frames, parsed in place in a chunk.

A chunk is never written over while a view on it may live (storage/files/buffers.py). Bytes that may not be started yet
stay in the chunk. An idle connection holds no chunk.
"""

from __future__ import annotations

from mmap import mmap
from struct import Struct as Layout  # noqa: TID251 - a frame must be seen to be whole before anything parses it

from cairnmq.storage.api.serving import LARGE, SMALL, Chunks
from cairnmq.types import Buffer

FEW_BYTES = 256  # of a request that has just begun are kept without a chunk
SIZE_BYTES = 4

_SIZE = Layout(">i")


class ReceiveBuffer:
    """`view[start:end]` is received and not started. Who starts a frame moves `start`; who receives moves `end`."""

    __slots__ = ("_chunks", "_chunk", "view", "start", "end", "_chunk_size", "_was_filled")

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._chunk: bytearray | mmap | None = None
        self.view = memoryview(b"")
        self.start = 0
        self.end = 0
        self._chunk_size = SMALL
        self._was_filled = False

    @property
    def held_bytes(self) -> int:
        return 0 if self._chunk is None else len(self._chunk)

    @property
    def is_full(self) -> bool:
        return self.end == len(self.view)

    def space(self, paid: int) -> memoryview:
        """Room for what comes next. `paid`: bytes of the unfinished frame for which memory is reserved."""
        if self._chunk is None:
            chunk = self._chunks.take(self.frame_bytes(), self._chunk_size)
            self._use(chunk, self.view[self.start : self.end])
        elif self.end == len(self._chunk) or self.start + self.frame_bytes() > len(self._chunk):
            self._use_next_chunk()
        if isinstance(self._chunk, mmap):
            # No more than is paid for, or little: the system may have megabytes more, and would hand over all of them.
            return self.view[self.end : self.end + max(self.start + paid - self.end, SMALL)]
        return self.view[self.end :]

    def frame_bytes(self) -> int:
        """Size of the unfinished frame at `start`, as far as it is known."""
        if self.end - self.start < SIZE_BYTES:
            return SIZE_BYTES
        return SIZE_BYTES + int(_SIZE.unpack_from(self.view, self.start)[0])

    def shrink(self, *, waits: bool) -> None:
        """Hold as little as possible. `waits`: the frame has to wait, so its part may lie there for long."""
        received = self.end - self.start
        if not received:
            self.drop()
        elif received <= FEW_BYTES or (waits and self._is_part_of_a_small_chunk(received)):
            head = bytearray(self.view[self.start : self.end])  # may hold a whole Produce, to be written to
            self.drop()
            self.view, self.end = memoryview(head), len(head)

    def _is_part_of_a_small_chunk(self, received: int) -> bool:
        """A mapped chunk takes memory only as far as it is filled: a copy would be in memory beside it for a moment,
        and leave a hole in the heap."""
        return received < self.frame_bytes() and not isinstance(self._chunk, mmap)

    def drop(self) -> None:
        """Give the chunk back; what it holds is lost."""
        if self._chunk is not None:
            self.view.release()
            self._chunks.give(self._chunk)
            self._chunk = None
        self.view = memoryview(b"")
        self.start = self.end = 0

    def forget_rate(self) -> None:
        """Called every few seconds: a connection that did not fill a chunk meanwhile uses small ones again."""
        if not self._was_filled:
            self._chunk_size = SMALL
        self._was_filled = False

    def _use(self, chunk: bytearray | mmap, head: Buffer) -> None:
        self._chunk = chunk
        self.view = memoryview(chunk)
        self.view[: len(head)] = head
        self.start = 0
        self.end = len(head)

    def _use_next_chunk(self) -> None:
        if not self._was_filled:
            self._was_filled = True
        else:
            # Two chunks filled between two sweeps: this connection is busy.
            self._chunk_size = LARGE
        head = self.view[self.start : self.end]
        old, old_view = self._chunk, self.view
        self._use(self._chunks.take(self.frame_bytes(), self._chunk_size), head)
        head.release()
        old_view.release()
        assert old is not None
        self._chunks.give(old)
