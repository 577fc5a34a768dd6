"""Frames in place in a chunk, and what an idle connection holds."""

from __future__ import annotations

import struct
from mmap import mmap

from cairnmq.broker.net.receive_buffer import FEW_BYTES, ReceiveBuffer
from cairnmq.storage.files.buffers import LARGE, SMALL, Chunks


def receive(buffer: ReceiveBuffer, data: bytes, paid: int = 0) -> int:
    """As much of it as there is room for."""
    room = buffer.space(paid)
    taken = min(len(room), len(data))
    room[:taken] = data[:taken]
    buffer.end += taken
    return taken


def received(buffer: ReceiveBuffer) -> bytes:
    return bytes(buffer.view[buffer.start : buffer.end])


def test_idle_holds_nothing() -> None:
    buffer = ReceiveBuffer(Chunks())
    assert buffer.held_bytes == 0
    receive(buffer, b"\0\0\0\1x")
    assert buffer.held_bytes == SMALL and buffer.frame_bytes() == 5
    buffer.start = buffer.end
    buffer.shrink(waits=False)
    assert buffer.held_bytes == 0 and received(buffer) == b""


def test_start_of_a_frame_is_kept_without_a_chunk() -> None:
    buffer = ReceiveBuffer(Chunks())
    head = struct.pack(">i", 10_000) + bytes(range(200))
    receive(buffer, head)
    buffer.shrink(waits=False)
    assert buffer.held_bytes == 0 and received(buffer) == head and buffer.frame_bytes() == 10_004
    assert not buffer.view.readonly
    receive(buffer, b"more")
    assert buffer.held_bytes == SMALL and received(buffer) == head + b"more"


def test_part_that_waits_leaves_its_chunk() -> None:
    part = struct.pack(">i", 10_000) + bytes(FEW_BYTES)
    for waits, held in ((False, SMALL), (True, 0)):
        buffer = ReceiveBuffer(Chunks())
        receive(buffer, part)
        buffer.shrink(waits=waits)
        assert buffer.held_bytes == held and received(buffer) == part


def test_mapped_chunk_is_filled_as_it_is_paid() -> None:
    buffer = ReceiveBuffer(Chunks())
    receive(buffer, struct.pack(">i", 3 * LARGE) + bytes(96))
    assert receive(buffer, bytes(LARGE), paid=2 * SMALL) == 2 * SMALL - 100
    assert isinstance(buffer._chunk, mmap) and buffer.held_bytes == 3 * LARGE + 4
    buffer.shrink(waits=True)
    assert buffer.held_bytes == 3 * LARGE + 4, "a copy would be in memory beside it"


def test_next_chunk_keeps_the_unfinished_frame() -> None:
    """A view on the old chunk keeps its bytes; a connection that fills two chunks between sweeps gets large ones."""
    buffer = ReceiveBuffer(Chunks())
    receive(buffer, struct.pack(">i", SMALL - 100) + b"a" * (SMALL - 100) + struct.pack(">i", 200) + b"b" * 92)
    assert buffer.is_full
    view = buffer.view[:10]
    buffer.start = SMALL - 96
    receive(buffer, b"c")
    assert received(buffer) == struct.pack(">i", 200) + b"b" * 92 + b"c"
    assert bytes(view) == struct.pack(">i", SMALL - 100) + b"a" * 6
    receive(buffer, bytes(SMALL))
    receive(buffer, b"")
    assert buffer.held_bytes == LARGE
    buffer.forget_rate()
    buffer.forget_rate()
    buffer.drop()
    receive(buffer, b"x")
    assert buffer.held_bytes == SMALL
