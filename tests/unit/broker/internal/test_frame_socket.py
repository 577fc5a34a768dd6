"""Frames over a socket: whole ones only, and one end that is told once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cairnmq.broker.internal.frame_socket import FrameSocket, tune
from cairnmq.broker.internal.link_timing import LinkTiming
from cairnmq.wire.internal import Failed, Failure, Kind, decode, frame_head
from cairnmq.wire.internal_frames import Frame, FrameParser
from unit.broker.internal.link_rig import anywhere, feed, on_both_loops
from unit.broker.rig import until


class Ends:
    """A frame socket, and the other end as plain bytes."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            self.far, _ = server.accept()
        tune(near, LinkTiming())
        self.near = near
        self.frames: list[Frame] = []
        self.ends: list[str] = []
        self.socket = FrameSocket(near, FrameParser(100, anywhere), LinkTiming(), self.frames.append, self.ends.append)
        self.socket.start()

    def received(self) -> list[Frame]:
        """All that has arrived at the other end until it closes."""
        self.far.settimeout(30)
        data = bytearray()
        while piece := self.far.recv(1 << 16):
            data += piece
        return feed(FrameParser(5000, anywhere), bytes(data))


@contextmanager
def open_ends() -> Iterator[Ends]:
    ends = Ends()
    try:
        yield ends
    finally:
        ends.socket.close("test is over")
        ends.far.close()


@on_both_loops
async def test_frames_arrive_whole() -> None:
    with open_ends() as ends:
        data = frame_head(1, 2, b"header", 3) + b"raw"
        for byte in data + data:
            ends.far.sendall(bytes([byte]))
        await until(lambda: len(ends.frames) == 2)
        assert [(one.kind, one.correlation, one.header, bytes(one.raw)) for one in ends.frames] == [
            (1, 2, b"header", b"raw")
        ] * 2


@on_both_loops
async def test_a_frame_is_sent() -> None:
    with open_ends() as ends:
        ends.socket.send(17, 5, b"header", [memoryview(b"raw")], 3)
        ends.socket.close("done")
        (frame,) = ends.received()
        assert (frame.kind, frame.correlation, frame.header, bytes(frame.raw)) == (17, 5, b"header", b"raw")


@on_both_loops
async def test_the_end_is_told_once() -> None:
    with open_ends() as ends:
        ends.far.close()
        await until(lambda: ends.ends)
        ends.socket.close("again")
        assert ends.ends == ["closed by the other side"]
        ends.socket.send(1, 1, b"nobody hears this")


@on_both_loops
async def test_a_reset_with_bytes_unread_is_noticed() -> None:
    """What came before it counts."""
    with open_ends() as ends:
        ends.socket.send(1, 1, b"unread")
        ends.far.sendall(frame_head(1, 2, b"last", 1 << 20) + bytes(1 << 20))
        ends.far.close()
        await until(lambda: ends.ends)
        assert len(ends.frames) <= 1


@on_both_loops
async def test_a_malformed_frame_ends_it_with_a_reason() -> None:
    with open_ends() as ends:
        ends.far.sendall(frame_head(1, 2, bytes(101)))
        await until(lambda: ends.ends)
        assert ends.ends == ["malformed frame: a header of 101 bytes; at most 100 are taken"]


@on_both_loops
async def test_a_refusal_says_why() -> None:
    with open_ends() as ends:
        ends.socket.refuse(Failure.OLDER_LINK, "x" * 2000)
        (frame,) = ends.received()
        assert frame.kind == Kind.FAILED and frame.correlation == 0
        assert decode(Failed, frame.header) == Failed(Failure.OLDER_LINK, "x" * 1024)


@on_both_loops
async def test_nothing_is_delivered_once_it_is_closed() -> None:
    with open_ends() as ends:
        ends.socket._on_frame = lambda frame: ends.socket.close(f"closed by frame {frame.correlation}")
        ends.far.sendall(frame_head(1, 2, b"") + frame_head(1, 3, b""))
        await until(lambda: ends.ends)
        assert ends.ends == ["closed by frame 2"]


@on_both_loops
async def test_dead_machines_are_probed_for() -> None:
    with open_ends() as ends:
        options = {
            name: ends.near.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        }
        assert ends.near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert options.pop("TCP_NODELAY")
        assert options == {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
