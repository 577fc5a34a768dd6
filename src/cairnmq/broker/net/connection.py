"""One client connection: the glue between a transport and four parts.

- `ReceiveBuffer`: bytes in, frames in place;
- `Admission`: which request may start, by order, limits and memory;
- `ResponseQueue`: responses out, in the order of their requests;
- `SlowClientPolicy`: when a client is too slow to be kept.

What may not start yet stays unparsed in the buffer. When the buffer is full, or a request waits for memory, reading
pauses and the client's TCP window fills.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from enum import Enum
from itertools import count
from struct import Struct as Layout  # noqa: TID251 - a frame must be seen to be whole before anything parses it
from typing import TYPE_CHECKING, cast

from cairnmq.broker.net.client_rtt import is_far
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.pending_request import PendingRequest
from cairnmq.broker.net.receive_buffer import SIZE_BYTES, ReceiveBuffer
from cairnmq.broker.net.request_admission import OBJECT_FACTOR, SMALL_REQUEST_BYTES, Admission, Verdict
from cairnmq.broker.net.response_queue import NO_BYPASS, ResponseQueue
from cairnmq.broker.net.slow_client import SlowClientPolicy
from cairnmq.broker.net.wrong_port import refusal_of_stranger
from cairnmq.broker.requests.reply import AwaitedReply, CloseConnection, Reply, Response
from cairnmq.broker.requests.router import Router
from cairnmq.types import Caller
from cairnmq.wire.apis import API_VERSIONS, JOIN_GROUP, PRODUCE, SYNC_GROUP
from cairnmq.wire.codec import Malformed, encode
from cairnmq.wire.framing import read_request_header
from cairnmq.wire.messages import Message

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.broker.net.connection_set import ConnectionSet
    from cairnmq.broker.options import ListenerSpec

log = logging.getLogger("cairnmq.broker")

_PEEK = Layout(">ihhi")  # size, api key, version, correlation id
_SIZE = Layout(">i")
_SHORTEST = _PEEK.size - SIZE_BYTES
_NUMBERS = count(1)
# These wait for other members, whose requests must not have to wait for them; what they bring is their group's.
_GROUP_WAITS = frozenset((JOIN_GROUP, SYNC_GROUP))
PARKED_PART = 4  # of the memory of its objects is left while a fetch is parked


class Phase(Enum):
    """A connection's phases, in order. A later AUTHENTICATING stands before OPEN: `connection_made` sets it where the
    listener's protocol asks for it, and while it lasts `_start_requests` gives each frame to the mechanism instead of
    to `_begin`, so the router sees no request of a caller without a principal."""

    OPEN = "requests are started"
    DRAINING = "nothing more is started; it closes after the last response"
    CLOSED = "hung up; responses that the transport has may still leave"


class Intake(Enum):
    """Of received requests: all have been started, they are being started, or the next one has to wait."""

    DONE = 0
    STARTING = 1
    BLOCKED = 2


# Names of the module: looking up a member in its class costs a call.
_OPEN, _DRAINING, _CLOSED = Phase.OPEN, Phase.DRAINING, Phase.CLOSED
_DONE, _STARTING, _BLOCKED = Intake.DONE, Intake.STARTING, Intake.BLOCKED
_START, _TURN, _MEMORY = Verdict.START, Verdict.TURN, Verdict.MEMORY


class Connection(asyncio.BufferedProtocol):
    """Lives on the loop thread. `ConnectionSet` admits it and sweeps it."""

    __slots__ = (
        "_connections", "_spec", "_ctx", "_router", "_limits", "_loop", "_transport", "_buffer", "_admission",
        "_responses", "_slow", "_caller", "peer", "phase", "_intake", "_is_reading", "_pump_is_due", "_heard",
    )  # fmt: skip

    def __init__(
        self, connections: ConnectionSet, spec: ListenerSpec, ctx: Context, router: Router, limits: Limits
    ) -> None:
        self._connections = connections
        self._spec = spec
        self._ctx = ctx
        self._router = router
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._buffer = ReceiveBuffer(connections.chunks)
        self._admission = Admission(limits, ctx.budget, ctx.objects, ctx.answers)
        self._responses = ResponseQueue(ctx.metrics, ctx.answers)
        self._slow = SlowClientPolicy(limits.stall_seconds)
        self._caller = Caller()
        self.peer = "?"
        self.phase = _OPEN
        self._intake = _DONE
        self._is_reading = True
        self._pump_is_due = False
        self._heard = self._loop.time()

    # Life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "local"
        if not self._connections.admit(self):
            self.abort()
            return
        raw = transport.get_extra_info("socket")
        far, bypass = False, NO_BYPASS
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            far = is_far(raw)
            if self._spec.may_bypass_transport:
                bypass = raw.fileno()
        host = str(name[0]) if isinstance(name, tuple) else ""
        self._caller = Caller(host, far, self._spec.name, next(_NUMBERS))
        self._responses.open(self._transport, bypass)
        self._transport.set_write_buffer_limits(self._limits.write_high, self._limits.write_low)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.phase = _CLOSED
        self._connections.dismiss(self)
        pending = self._responses.close()
        self._admission.close(self._woken)
        self._buffer.drop()
        for request in pending:
            # What cannot be given up (a batch on its way to the journal) still holds its bytes until it is completed.
            if request.waits_for is not None and request.waits_for.abandon():
                self._admission.release(request)

    def close(self, reason: str = "") -> None:
        """Hang up; responses that the transport has still leave."""
        if self.phase is _CLOSED:
            return
        self.phase = _CLOSED
        if reason:
            self._connections.note_closed(self.peer, reason)
        self._slow.restart()  # they leave if the client reads: sweeps look after that
        self._transport.close()

    def abort(self) -> None:
        """Hang up at once; nothing more leaves."""
        self.phase = _CLOSED
        self._transport.abort()

    def drain(self) -> None:
        """Start nothing more; hang up after the response of every request that was started."""
        if self.phase is _OPEN:
            self._pause()
            self.phase = _DRAINING
        if not self._responses.pending:
            self.close()

    @property
    def held_bytes(self) -> int:
        """Receive memory; an idle connection has none."""
        return self._buffer.held_bytes

    def sweep(self, now: float) -> None:
        """Called every few seconds: hang up on the idle and the stuck; a quiet connection uses small chunks again."""
        buffer, admission, slow, is_closed = self._buffer, self._admission, self._slow, self.phase is _CLOSED
        if not is_closed and self._transport.is_closing():
            return
        if is_closed or self._responses.write_paused:
            others_wait = admission.others_want_responses
            is_slow = slow.reads_too_slowly(now, self._transport.get_write_buffer_size(), others_wait=others_wait)
            if is_slow and not is_closed:
                log.info("connection from %s closed: the client does not read its responses", self.peer)
            if is_slow or (is_closed and others_wait):
                self.abort()  # a closed one gets nothing more than what it does not take
            return
        # A part of a request holds memory that others wait for.
        is_looked_at = self._is_reading and admission.holds_what_others_want
        if is_looked_at and slow.sends_too_slowly(admission.part, buffer.end - buffer.start, buffer.frame_bytes()):
            log.info("connection from %s closed: its request arrives too slowly while others wait", self.peer)
            self.abort()
            return
        idle_seconds = now - self._heard
        if not self._responses.pending and idle_seconds >= self._limits.idle_seconds:
            log.debug("connection from %s closed: idle for %.0f s", self.peer, idle_seconds)
            self.abort()
            return
        buffer.forget_rate()

    # Bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.space(self._admission.reserved)

    def buffer_updated(self, nbytes: int) -> None:
        buffer, admission = self._buffer, self._admission
        buffer.end += nbytes
        self._heard = now = self._loop.time()
        if now != admission.turn_at:
            admission.turn_at = now
            admission.turn_bytes = 0
        self._ctx.metrics.bytes_in += nbytes
        if self._intake is not _BLOCKED:
            self._pump()
        elif buffer.is_full:
            self._pause()

    def _pump(self) -> None:
        """Start every request that may start now."""
        self._pump_is_due = False
        self._intake = _STARTING
        all_started = False
        try:
            all_started = self._start_requests()
        finally:
            self._intake = _DONE if all_started else _BLOCKED
        if self.phase is _CLOSED:
            return
        if not all_started and self._buffer.is_full:
            self._pause()
        elif all_started or not (self._pump_is_due or self._admission.is_waiting):
            self._resume()  # also if a request waits: how else would it be seen that the client is gone?
        self._rest()

    def _rest(self) -> None:
        """With nothing pending and little received, an idle connection holds next to no memory and may be closed."""
        if self._responses.pending:
            return
        buffer = self._buffer
        if self.phase is _DRAINING:
            self.close()
        elif buffer.start == buffer.end:
            buffer.drop()
        else:
            buffer.shrink(waits=self._intake is _BLOCKED)

    def _start_requests(self) -> bool:
        """False if a request has to wait for something other than its own bytes."""
        buffer, admission, responses = self._buffer, self._admission, self._responses
        while self.phase is _OPEN:
            start, view = buffer.start, buffer.view
            available = buffer.end - start
            if available < SIZE_BYTES:
                break
            size = _SIZE.unpack_from(view, start)[0]
            if not _SHORTEST <= size <= self._limits.request_bytes:
                self._ctx.metrics.malformed += 1
                reason, response = refusal_of_stranger(view[start : buffer.end], self._connections.http)
                if response:
                    self._transport.write(response)
                bounds = f"{_SHORTEST} to {self._limits.request_bytes}"
                self.close(reason or f"a request of {size} bytes ({bounds} are allowed)")
                break
            if available < size + SIZE_BYTES:
                if not admission.admit_part(size, available):
                    return self._wait(_MEMORY)
                break
            _, key, version, correlation = _PEEK.unpack_from(view, start)
            objects = 0 if key == PRODUCE or size <= SMALL_REQUEST_BYTES else size * OBJECT_FACTOR
            verdict = admission.admit(key, size, objects, responses)
            if verdict is not _START:
                return self._wait(verdict)
            first = start + SIZE_BYTES
            buffer.start = first + size
            self._begin(key, version, correlation, view[first : first + size], objects)
        return True

    def _wait(self, verdict: Verdict) -> bool:
        """Pending responses need no more than patience: `complete` starts what follows them."""
        if verdict is _TURN:
            self._pause()
            self._pump_soon()
        elif verdict is _MEMORY:
            self._pause()
            self._admission.wait(self._woken)
        return False

    def _woken(self) -> None:
        self._admission.is_waiting = False
        self._pump_soon()

    def _is_open(self) -> bool:
        """A transport whose peer is gone says so before it calls `connection_lost`, and bears no calls in between."""
        return self.phase is not _CLOSED and not self._transport.is_closing()

    def _pause(self) -> None:
        if self._is_reading and self._is_open():
            self._is_reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._is_reading and self.phase is _OPEN and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _pump_soon(self) -> None:
        # Never from inside a completion: the caller may be in the middle of completing many replies.
        if not self._pump_is_due and self.phase is not _CLOSED:
            self._pump_is_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._admission.turn_bytes = 0
        self._pump()

    # Requests

    def _begin(self, key: int, version: int, correlation: int, frame: memoryview, objects: int) -> None:
        request = PendingRequest(self, key, version, correlation, len(frame), objects, self._ctx.metrics.seconds())
        self._responses.add(request)
        route = self._router.routes.get(key)
        if route is None or not route.min <= version <= route.max:
            if route is not None and key == API_VERSIONS:
                request.version = 0
                self.complete(request, self._router.unsupported_api_versions(), None)
            else:
                self.complete(request, None, CloseConnection(f"api key {key} version {version} is not served"))
            return
        try:
            header, position = read_request_header(frame, 0, self._caller)
            outcome = route.call(self._ctx, header, frame, position)
        except Exception as failure:  # noqa: BLE001 - whatever one request does must not harm other connections
            self.complete(request, None, failure)
            return
        if not isinstance(outcome, Reply):
            self.complete(request, outcome, None)
        elif outcome.done:
            request.replied(outcome)
        else:
            request.waits_for = outcome
            outcome.deliver = request.replied
            if key in _GROUP_WAITS:
                self._admission.release(request)
            elif objects and not isinstance(outcome, AwaitedReply):  # a coroutine works on them until it ends
                self._admission.release_objects(request, objects - objects // PARKED_PART)

    def complete(self, request: PendingRequest, response: Response, failure: BaseException | None) -> None:
        """The response to one request is known (or will never be); send what is due, in order."""
        assert not request.done, "a request has one response"
        request.done = True
        request.waits_for = None
        self._admission.release(request)
        if failure is None and response is not None and self.phase is not _CLOSED:
            try:
                request.body = response if type(response) is list else encode(cast(Message, response), request.version)
            except Exception as error:  # noqa: BLE001 - a response that cannot be encoded is a bug of this request only
                self._failed(request, error)
        if failure is not None:
            self._failed(request, failure)
        if not self._is_open():
            return
        self._responses.send()
        self._heard = self._loop.time()
        if self._intake is _BLOCKED:
            self._pump_soon()
        elif self._intake is _DONE:
            self._rest()

    def _failed(self, request: PendingRequest, failure: BaseException) -> None:
        key, version = request.key, request.version
        if isinstance(failure, CloseConnection):
            self.close(str(failure))
        elif isinstance(failure, Malformed):
            self._ctx.metrics.malformed += 1
            self.close(f"malformed request, api key {key} version {version}: {failure}")
        else:
            log.error("request failed, api key %d version %d of %s", key, version, self.peer, exc_info=failure)
            self.close("the request failed")

    # Flow control of the transport

    def pause_writing(self) -> None:
        self._responses.write_paused = True
        self._slow.restart()

    def resume_writing(self) -> None:
        self._responses.resume_writing()
        if self._intake is _BLOCKED:
            self._pump_soon()
