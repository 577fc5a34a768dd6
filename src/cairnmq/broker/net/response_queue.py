"""Responses of one connection: they leave in the order of their requests, and are written as the client takes them."""

from __future__ import annotations

import asyncio
import os
from struct import Struct as Layout  # noqa: TID251 - the size of a frame that wire has made
from typing import cast

from cairnmq.broker.memory_budget import Budget
from cairnmq.broker.metrics import Metrics
from cairnmq.broker.net.pending_request import PendingRequest
from cairnmq.storage.api.serving import LARGE, SMALL
from cairnmq.types import Buffer
from cairnmq.wire.framing import response_frame, unsent_part

NO_BYPASS = -1

_SIZE = Layout(">i")
_COPIED_MAX = LARGE // 2
_IOV_MAX = os.sysconf("SC_IOV_MAX")


class ResponseQueue:
    """`bypass`: the socket's number if a large response may go to the system past the transport. Only a listener whose
    transport writes what it is given, and nothing else, allows that (`ListenerSpec.may_bypass_transport`)."""

    __slots__ = (
        "pending", "pending_bytes", "write_paused",
        "_metrics", "_memory", "_transport", "_bypass", "_unsent_bytes", "_handed_over",
    )  # fmt: skip

    def __init__(self, metrics: Metrics, memory: Budget) -> None:
        self.pending: list[PendingRequest] = []  # short, and of thousands of idle connections smaller than a deque
        self.pending_bytes = 0
        self.write_paused = False
        self._metrics = metrics
        self._memory = memory
        self._transport = cast(asyncio.Transport, None)
        self._bypass = NO_BYPASS
        self._unsent_bytes = 0  # that count in the broker's memory for responses
        self._handed_over = 0

    def open(self, transport: asyncio.Transport, bypass: int) -> None:
        self._transport = transport
        self._bypass = bypass

    def close(self) -> list[PendingRequest]:
        """The connection is lost. Its pending requests, no longer held here: they know the connection, and a reference
        cycle would wait for the garbage collector."""
        self._bypass = NO_BYPASS
        self._count_unsent(0)
        left = list(self.pending)
        self.pending.clear()
        return left

    def add(self, request: PendingRequest) -> None:
        self.pending.append(request)
        self.pending_bytes += request.size

    def send(self) -> None:
        """Write every response whose turn it is."""
        pending, metrics = self.pending, self._metrics
        if not self.write_paused:
            self._handed_over = 0
        while pending and pending[0].done:
            request = pending.pop(0)
            self.pending_bytes -= request.size
            metrics.requests[request.key].observe(metrics.seconds() - request.started)
            body, request.body = request.body, None  # a handler that still knows the request must not hold its response
            if body is not None:
                frame = response_frame(request.key, request.version, request.correlation, body)
                size = 4 + _SIZE.unpack_from(frame[0])[0]
                metrics.bytes_out += size
                self._handed_over += size
                self._write(frame, size)
                del body, frame
                if self.write_paused:
                    self._count_unsent(self._handed_over)

    def _write(self, frame: list[Buffer], size: int) -> None:
        """A large response goes to the system at once. The transport gets the rest: if it is little, in memory of its
        own, because the last bytes of a chunk hold all of it until they have left."""
        if size < SMALL or self._bypass < 0:
            self._transport.writelines(frame)
            return
        sent = 0
        if not self._transport.get_write_buffer_size():
            try:
                sent = os.writev(self._bypass, frame[:_IOV_MAX])
            except OSError:
                pass  # the socket takes nothing now, or never again, which the transport will find out
            if sent == size:
                return
        rest = unsent_part(frame, sent)
        self._transport.writelines(rest if size - sent > _COPIED_MAX else [b"".join(rest)])

    def resume_writing(self) -> None:
        """The client has taken everything."""
        self.write_paused = False
        self._count_unsent(0)

    def _count_unsent(self, size: int) -> None:
        """Responses count as a whole until all of them has left: till then all their memory is held."""
        before, self._unsent_bytes = self._unsent_bytes, size
        if size > before:
            self._memory.take(size - before)
        elif size < before:
            self._memory.release(before - size)
