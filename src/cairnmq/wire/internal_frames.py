"""Cuts the stream of an internal link into frames. Raw bytes are received where they are wanted, without a copy.

The owner receives into `space()` and tells `received` how many bytes came. Every limit is enforced when a frame's
first bytes are there, before memory is taken for the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from cairnmq.wire.internal import PREFIX_BYTES, Prefix, read_prefix
from cairnmq.wire.primitives import Malformed

_DIRECT_BYTES = 16 << 10  # from here on the rest of a part is received in its place
_EMPTY = memoryview(b"")

Room = Callable[[Prefix], memoryview]
"""Where the raw bytes of a frame go: exactly as many. Raises Malformed if nobody wants them."""


def no_room(prefix: Prefix) -> memoryview:
    """For those to whom only headers are sent."""
    raise Malformed(f"a frame of kind {prefix.kind} brings {prefix.raw_bytes} raw bytes; it may have none")


class Frame(Struct, frozen=True):
    """A whole frame. `raw` is the memory that `Room` gave."""

    kind: int
    correlation: int
    header: bytes
    raw: memoryview


class FrameParser:
    """After `Malformed` it takes nothing any more: where the next frame begins is not known."""

    __slots__ = (
        "_direct",
        "_filled",
        "_header",
        "_lost",
        "_prefix",
        "_raw",
        "_room",
        "_scratch",
        "_target",
        "header_bytes_max",
    )

    def __init__(self, header_bytes_max: int, room: Room = no_room, scratch_bytes: int = 16 << 10) -> None:
        self.header_bytes_max = header_bytes_max
        self._room = room
        self._scratch = memoryview(bytearray(scratch_bytes))
        self._prefix: Prefix | None = None
        self._header: bytes | None = None
        self._raw = _EMPTY
        self._direct = False
        self._lost = False
        self._await(memoryview(bytearray(PREFIX_BYTES)))

    def _await(self, target: memoryview) -> None:
        self._target = target
        self._filled = 0

    def space(self) -> memoryview:
        """Room for what is received next."""
        rest = len(self._target) - self._filled
        self._direct = rest >= _DIRECT_BYTES
        return self._target[self._filled :] if self._direct else self._scratch

    def received(self, count: int) -> list[Frame]:
        """So many bytes are in `space()`: the frames that they complete."""
        if self._lost:
            raise Malformed("an earlier frame was malformed")
        frames: list[Frame] = []
        try:
            self._take(count, frames)
        except Malformed:
            self._lost = True
            raise
        return frames

    def _take(self, count: int, frames: list[Frame]) -> None:
        if self._direct:
            self._direct = False
            self._filled += count
            if self._filled == len(self._target):
                self._completed(frames)
            return
        position = 0
        while position < count:
            take = min(count - position, len(self._target) - self._filled)
            self._target[self._filled : self._filled + take] = self._scratch[position : position + take]
            self._filled += take
            position += take
            if self._filled == len(self._target):
                self._completed(frames)

    def _completed(self, frames: list[Frame]) -> None:
        """The part that was awaited is there: what the next one is."""
        if self._prefix is None:
            self._prefix = self._bounded(read_prefix(self._target))
            self._raw = self._room(self._prefix) if self._prefix.raw_bytes else _EMPTY
            assert len(self._raw) == self._prefix.raw_bytes
            self._await(memoryview(bytearray(self._prefix.header_bytes)))
            if self._prefix.header_bytes:
                return
        if self._header is None:
            self._header = bytes(self._target)
            self._await(self._raw)
            if self._raw:
                return
        frames.append(Frame(self._prefix.kind, self._prefix.correlation, self._header, self._raw))
        self._prefix = self._header = None
        self._raw = _EMPTY
        self._await(memoryview(bytearray(PREFIX_BYTES)))

    def _bounded(self, prefix: Prefix) -> Prefix:
        if prefix.header_bytes > self.header_bytes_max:
            raise Malformed(f"a header of {prefix.header_bytes} bytes; at most {self.header_bytes_max} are taken")
        return prefix
