"""A socket between two brokers as frames, for both ends of a link. On the loop thread, under asyncio and uvloop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from cairnmq.broker.internal.answer import Part
from cairnmq.broker.internal.link_timing import LinkTiming
from cairnmq.broker.internal.send_queue import SendQueue
from cairnmq.broker.runtime import Executor
from cairnmq.os_errors import reason_of
from cairnmq.wire.internal import TEXT_MAX, Failed, Failure, Kind, encode, frame_head
from cairnmq.wire.internal_frames import Frame, FrameParser
from cairnmq.wire.primitives import Malformed

_TURN_BYTES = 4 << 20  # received at once, then others have their turn
_PROBES = 3


def tune(sock: socket.socket, timing: LinkTiming) -> None:
    """No delay for small frames, and the system's own probes for a machine that is gone."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = max(int(timing.dead_seconds / 2), 1)
    for name, value in (
        ("TCP_KEEPIDLE", idle),
        ("TCP_KEEPINTVL", max(idle // _PROBES, 1)),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", int(timing.dead_seconds * 1000)),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class FrameSocket:
    """`on_frame` is called for each whole frame. `on_end` once, with the reason, when nothing follows any more."""

    def __init__(
        self,
        sock: socket.socket,
        parser: FrameParser,
        timing: LinkTiming,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[str], None],
        readers: Executor | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self.parser = parser
        self._on_frame = on_frame
        self._on_end = on_end
        self._queue = SendQueue(sock, readers, timing.stall_seconds, self._failed)
        self.is_closed = False
        self.received_at = self._loop.time()

    def start(self) -> None:
        """Frames arrive from now on."""
        self._loop.add_reader(self._sock, self._readable)

    def send(self, kind: int, correlation: int, header: bytes, parts: Sequence[Part] = (), raw_bytes: int = 0) -> None:
        """In the order of calls. OSError: files of it could not be held open, and nothing of it is sent."""
        self._queue.send(frame_head(kind, correlation, header, raw_bytes), parts)

    @property
    def unsent(self) -> int:
        """Frames that have not left yet."""
        return self._queue.unsent

    def refuse(self, code: Failure, text: str) -> None:
        """Tells the other side why this link ends, and ends it."""
        self.send(Kind.FAILED, 0, encode(Failed(code, text[:TEXT_MAX])))
        self.close(text)

    def close(self, reason: str) -> None:
        """What has not left is dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._sock)
        self._queue.close()
        self._sock.close()
        self._on_end(reason)

    def _failed(self, error: str | OSError) -> None:
        self.close(error if isinstance(error, str) else reason_of(error))

    def _readable(self) -> None:
        """Until there is no more: libuv reports a connection that was reset once, with bytes of it still to be read,
        and watches no longer."""
        budget = _TURN_BYTES
        while not self.is_closed:
            try:
                count = self._sock.recv_into(self.parser.space())
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._failed(error)
                return
            if not count:
                self.close("closed by the other side")
                return
            self._take(count)
            budget -= count
            if budget <= 0:
                self._loop.call_soon(self._readable)
                return

    def _take(self, count: int) -> None:
        self.received_at = self._loop.time()
        try:
            frames = self.parser.received(count)
        except Malformed as error:
            self.refuse(Failure.MALFORMED, f"malformed frame: {error}")
            return
        for frame in frames:
            if self.is_closed:
                return
            self._on_frame(frame)
