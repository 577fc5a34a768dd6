"""One client connection: bytes in, requests started in order, answers out in the same order.

Frames are parsed in place in a chunk; a chunk is never written over while a view on it may live (chunks.py). A Produce
may start while earlier Produce answers are outstanding; any other request waits until the connection owes nothing, so
a parked fetch holds up its own connection only. What may not start yet simply stays unparsed in the chunk; when the
chunk is full, or too much is owed, reading pauses and the client's TCP window fills.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from mmap import mmap
from struct import Struct as Layout  # noqa: TID251 - a frame must be seen to be whole before anything parses it
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from cairnmq.broker.memory_budget import Budget
from cairnmq.broker.net.client_rtt import is_far
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.pending_request import Owed
from cairnmq.broker.net.wrong_port import HTTP_RESPONSE, is_http
from cairnmq.broker.requests.reply import Answer, CloseConnection, Reply
from cairnmq.broker.requests.router import Outcome, Router
from cairnmq.storage.api.serving import LARGE, SMALL
from cairnmq.types import Buffer
from cairnmq.wire.apis import (
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    PRODUCE,
    SYNC_GROUP,
    TRANSACTIONS,
)
from cairnmq.wire.codec import Malformed, encode
from cairnmq.wire.framing import behind, read_request_header, response_frame
from cairnmq.wire.messages import Message

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.broker.net.listener import Listener

log = logging.getLogger("cairnmq.broker")

_SIZE = Layout(">i")
_PEEK = Layout(">hhi")
_SHORTEST = _PEEK.size
_EFFORT = 4096  # any request costs as much time as so many bytes
_UNKNOWN = 1 << 62
_FEW_WORDS = 256  # of a request that has just begun are kept without a chunk
_STEP = LARGE  # larger frames pay in parts: as much again as is there, but at most this at once
# Other requests than Produce become objects, many times as large as their bytes; in small ones that is not much. They
# have an allowance of their own, so that who sends one that uses it up keeps only others of its kind waiting.
OBJECTS = 24
FEW_BYTES = 4096
PARKED_PART = 4  # what is left of them while a fetch is parked
# These wait for other members, whose requests must not have to wait for them; what they bring is their group's.
_GROUP_WAITS = frozenset((JOIN_GROUP, SYNC_GROUP))
# Their answers are small, and delaying them would harm groups and producers.
_SMALL_ANSWERS = frozenset(
    (PRODUCE, API_VERSIONS, OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)
    + (CONSUMER_GROUP_HEARTBEAT, INIT_PRODUCER_ID, *TRANSACTIONS)
)
_COPIED_MAX = LARGE // 2
_IOV_MAX = os.sysconf("SC_IOV_MAX")
_PRESSED_SECONDS = 3.0
_SLOW_BYTES = 64 * 1024  # who moves less in that time is slow, and cut off when others wait for the memory


class Connection(asyncio.BufferedProtocol):
    """Lives on the loop thread; `Listener` owns it and sweeps it."""

    __slots__ = (
        "_ctx", "_listener", "_router", "_limits", "_loop", "_transport", "_fd", "peer", "_host", "_far",
        "_chunk", "_view", "_start", "_end", "_chunk_size", "_owed", "_owed_bytes", "_reserved",
        "_blocked", "_reading", "_write_paused", "_waiting", "_closing", "_draining", "_pump_due", "_pumping",
        "heard", "_stalled_since", "_stalled_bytes", "_filled", "_unsent", "_handed", "_received_then",
        "_turn_at", "_turn_bytes",
    )  # fmt: skip

    def __init__(self, listener: Listener, ctx: Context, router: Router, limits: Limits) -> None:
        self._listener = listener
        self._ctx = ctx
        self._router = router
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._fd = -1
        self.peer = "?"
        self._host = ""
        self._far = False
        self._chunk: bytearray | mmap | None = None
        self._view = memoryview(b"")
        self._start = 0
        self._end = 0
        self._chunk_size = SMALL
        self._filled = False
        self._owed: deque[Owed] = deque()
        self._owed_bytes = 0
        self._reserved = 0
        self._blocked = False
        self._reading = True
        self._write_paused = False
        self._waiting = False
        self._closing = False
        self._draining = False
        self._pump_due = False
        self._pumping = False
        self.heard = self._loop.time()
        self._stalled_since = 0.0
        self._stalled_bytes = 0
        self._unsent = 0  # answer bytes that count in the broker's allowance
        self._handed = 0
        self._received_then = 0
        self._turn_at = 0.0
        self._turn_bytes = 0  # of requests that this turn of the loop has started

    # Life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "local"
        self._host = str(name[0]) if isinstance(name, tuple) else ""
        if not self._listener.admit(self):
            self._closing = True
            self._transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._fd = raw.fileno()
            self._far = is_far(raw)
        self._transport.set_write_buffer_limits(self._limits.write_high, self._limits.write_low)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._closing = True
        self._fd = -1
        self._listener.dismiss(self)
        if self._waiting:
            for budget in (self._ctx.budget, self._ctx.objects, self._ctx.answers):
                budget.forget(self._woken)
            self._waiting = False
        self._count_unsent(0)
        if self._reserved:
            reserved, self._reserved = self._reserved, 0
            self._ctx.budget.give_back(reserved, self)
        self._drop_chunk()
        for owed in self._owed:
            # What cannot be given up (a batch on its way to the journal) still holds its bytes until it is completed.
            if isinstance(owed.waits_for, Reply) and owed.waits_for.abandon():
                self._give_back(owed)
        self._owed.clear()  # they know this connection: a circle would wait for the collector

    def eof_received(self) -> bool:
        return False

    def close(self, reason: str = "") -> None:
        """Hang up; answers already handed to the transport still leave."""
        if self._closing:
            return
        self._closing = True
        if reason:
            self._listener.note_closed(self.peer, reason)
        self._stalled_bytes = _UNKNOWN  # what it is still owed leaves, if it reads: sweeps look after that
        self._transport.close()

    def abort(self) -> None:
        """Hang up at once; nothing more leaves."""
        self._closing = True
        self._transport.abort()

    def drain(self) -> None:
        """Start nothing more; hang up when everything owed has been answered."""
        self._draining = True
        self._pause()
        if not self._owed:
            self.close()

    @property
    def owes(self) -> int:
        return len(self._owed)

    @property
    def held_bytes(self) -> int:
        """Receive memory; an idle connection has none."""
        return 0 if self._chunk is None else len(self._chunk)

    def sweep(self, now: float) -> None:
        """Called every few seconds: reap the idle and the stuck, and let a quiet connection use small chunks again."""
        if not self._open():
            if self._closing and (self._ctx.answers.wanted or self._reads_too_slowly(now)):
                self.abort()  # nothing more is owed to it than what it does not take
            return
        if self._write_paused:
            if self._reads_too_slowly(now):
                log.info("closed connection from %s: it does not read its responses", self.peer)
                self.abort()
            return
        if self._arrives_too_slowly():
            log.info("closed connection from %s: its request arrives too slowly while others wait", self.peer)
            self.abort()
            return
        if not self._owed and now - self.heard >= self._limits.idle_seconds:
            log.debug("closed idle connection of %s", self.peer)
            self.abort()
            return
        if not self._filled:
            self._chunk_size = SMALL
        self._filled = False

    def _reads_too_slowly(self, now: float) -> bool:
        size = self._transport.get_write_buffer_size()
        needed, patience = 0, self._limits.stall_seconds
        if self._ctx.answers.wanted:
            needed, patience = _SLOW_BYTES, min(patience, _PRESSED_SECONDS)
        if size < self._stalled_bytes - needed:
            self._stalled_bytes, self._stalled_since = size, now
            return False
        return now - self._stalled_since >= patience

    def _arrives_too_slowly(self) -> bool:
        """Half a request holds memory that others wait for."""
        if not self._reserved or not self._reading or not self._ctx.budget.wanted:
            return False
        received = self._end - self._start
        before, self._received_then = self._received_then, received
        return received < self._wanted() and received - before < _SLOW_BYTES

    # Bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._chunk is None:
            chunk = self._listener.chunks.take(self._wanted(), self._chunk_size)
            self._use(chunk, self._view[self._start : self._end])
        elif self._end == len(self._chunk) or self._start + self._wanted() > len(self._chunk):
            self._next_chunk()
        if isinstance(self._chunk, mmap):
            # No more than is paid for, or little: the system may have megabytes more, and would hand over all of them.
            return self._view[self._end : self._end + max(self._start + self._reserved - self._end, SMALL)]
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.heard = self._loop.time()
        if self.heard != self._turn_at:
            self._turn_at = self.heard
            self._turn_bytes = 0
        self._ctx.metrics.bytes_in += nbytes
        if not self._blocked:
            self._pump()
        elif self._end == len(self._view):
            self._pause()

    def _wanted(self) -> int:
        """Size of the unfinished frame at the start of what is unparsed, as far as it is known."""
        if self._end - self._start < 4:
            return 4
        return 4 + int(_SIZE.unpack_from(self._view, self._start)[0])

    def _use(self, chunk: bytearray | mmap, head: Buffer) -> None:
        self._chunk = chunk
        self._view = memoryview(chunk)
        self._view[: len(head)] = head
        self._start = 0
        self._end = len(head)

    def _next_chunk(self) -> None:
        if not self._filled:
            self._filled = True
        else:
            # Two chunks filled between two sweeps: this connection is busy.
            self._chunk_size = LARGE
        head = self._view[self._start : self._end]
        old = self._chunk
        old_view = self._view
        self._use(self._listener.chunks.take(self._wanted(), self._chunk_size), head)
        head.release()
        old_view.release()
        assert old is not None
        self._listener.chunks.give(old)

    def _drop_chunk(self) -> None:
        if self._chunk is not None:
            self._view.release()
            self._listener.chunks.give(self._chunk)
            self._chunk = None
        self._view = memoryview(b"")
        self._start = self._end = 0

    def _pump(self) -> None:
        """Start every request that may start now."""
        self._pump_due = False
        self._pumping = True
        try:
            started_all = self._start_requests()
        finally:
            self._pumping = False
        if self._closing:
            return
        self._blocked = not started_all
        if self._blocked and self._end == len(self._view):
            self._pause()
        elif not self._blocked or not (self._pump_due or self._waiting):
            self._resume()  # also what waits is read: how else would it be seen that the client is gone?
        self._rest()

    def _rest(self) -> None:
        """With nothing owed and little received, an idle connection holds next to no memory and may be closed."""
        if not self._owed:
            if self._draining:
                self.close()
            elif self._start == self._end:
                self._drop_chunk()
            elif self._end - self._start <= _FEW_WORDS or self._waits_with_a_part():
                head = bytearray(self._view[self._start : self._end])  # may hold a whole Produce, to be written to
                self._drop_chunk()
                self._view, self._end = memoryview(head), len(head)

    def _waits_with_a_part(self) -> bool:
        """Of a request, in a chunk that is there as a whole. One of the system's own is there as far as it is filled: a
        copy would be in memory beside it for a moment, and leave a hole in the heap."""
        part = self._blocked and self._end - self._start < self._wanted()
        return part and not isinstance(self._chunk, mmap)

    def _start_requests(self) -> bool:
        """False if a request has to wait for something other than its own bytes."""
        while not self._closing:
            available = self._end - self._start
            if available < 4:
                break
            size = _SIZE.unpack_from(self._view, self._start)[0]
            if not _SHORTEST <= size <= self._limits.request_bytes:
                self._ctx.metrics.malformed += 1
                if is_http(self._view[self._start : self._end]):
                    self._transport.write(HTTP_RESPONSE)
                    self.close("looks like HTTP, but this is the Kafka port; --http names that of the status page")
                    break
                self.close(f"a request of {size} bytes ({_SHORTEST} to {self._limits.request_bytes} are allowed)")
                break
            if available < size + 4:
                if not self._reserve_half(size, available):
                    return False
                break
            first = self._start + 4
            key, version, correlation = _PEEK.unpack_from(self._view, first)
            if not self._may_start(key):
                return False
            if self._turn_bytes >= self._limits.turn_bytes:
                self._pause()
                self._pump_soon()
                return False
            objects = 0 if key == PRODUCE or size <= FEW_BYTES else size * OBJECTS
            if key not in _SMALL_ANSWERS and self._ctx.answers.full:
                self._wait_for(self._ctx.answers, LARGE)
                return False
            if objects and self._ctx.objects.full:
                self._wait_for(self._ctx.objects, objects)
                return False
            if self._reserved:
                reserved, self._reserved = self._reserved, 0
                self._ctx.budget.take(size)
                self._ctx.budget.give_back(reserved, self)
            elif not self._reserve(size):
                return False
            if objects:
                self._ctx.objects.take(objects)
            self._start = first + size
            self._turn_bytes += size + _EFFORT
            self._begin(key, version, correlation, self._view[first : first + size], objects)
        return True

    def _may_start(self, key: int) -> bool:
        if self._write_paused or self._draining:
            return False
        if not self._owed:
            return True
        return (
            key == PRODUCE
            and self._owed[0].key == PRODUCE
            and len(self._owed) < self._limits.requests
            and self._owed_bytes < self._limits.outstanding_bytes
        )

    def _reserve(self, size: int) -> bool:
        if self._ctx.budget.reserve(size):
            return True
        self._wait_for(self._ctx.budget, size)
        return False

    def _reserve_half(self, size: int, available: int) -> bool:
        """Memory for a large frame is asked for before it is filled. A small one that stays away pays for its chunk."""
        if size <= SMALL:
            return self._reserved > 0 or available <= _FEW_WORDS or self._reserve_part(SMALL)
        step = _STEP if size <= _STEP else min(max(available, SMALL), _STEP)
        if self._reserved >= size or self._reserved - available >= step // 2:
            return True
        return self._reserve_part(min(size, available + step) - self._reserved)

    def _reserve_part(self, size: int) -> bool:
        budget = self._ctx.budget
        if budget.reserve_more(size, self) if self._reserved else budget.reserve(size):
            if not self._reserved:
                self._received_then = -_SLOW_BYTES  # it has until the next sweep but one
            self._reserved += size
            return True
        self._wait_for(self._ctx.budget, LARGE if self._reserved else size)
        return False

    def _wait_for(self, budget: Budget, size: int) -> None:
        self._pause()
        if not self._waiting:
            self._waiting = True
            budget.wait(self._woken, size)

    def _woken(self) -> None:
        self._waiting = False
        self._pump_soon()

    def _open(self) -> bool:
        """A transport whose peer is gone says so before it calls `connection_lost`, and bears no calls in between."""
        return not self._closing and not self._transport.is_closing()

    def _pause(self) -> None:
        if self._reading and self._open():
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading and not self._draining and self._open():
            self._reading = True
            self._transport.resume_reading()

    def _pump_soon(self) -> None:
        # Never from inside a completion: the caller may be in the middle of completing many replies.
        if not self._pump_due and not self._closing:
            self._pump_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_bytes = 0
        self._pump()

    # Requests

    def _begin(self, key: int, version: int, correlation: int, frame: memoryview, objects: int) -> None:
        owed = Owed(self, key, version, correlation, len(frame), objects)
        self._owed.append(owed)
        self._owed_bytes += owed.size
        route = self._router.routes.get(key)
        if route is None or not route.min <= version <= route.max:
            if route is not None and key == API_VERSIONS:
                owed.version = 0
                self.settle(owed, self._router.unsupported_api_versions(), None)
            else:
                self.settle(owed, None, CloseConnection(f"api key {key} version {version} is not served"))
            return
        try:
            header, position = read_request_header(frame, 0, self._host, self._far)
            outcome = route.call(self._ctx, header, frame, position)
        except Exception as failure:  # noqa: BLE001 - whatever one request does must not harm other connections
            self.settle(owed, None, failure)
            return
        if outcome is None or type(outcome) is list or isinstance(outcome, Message):
            self.settle(owed, outcome, None)
        else:
            self._await(owed, outcome)

    def _await(self, owed: Owed, outcome: Outcome) -> None:
        if isinstance(outcome, Reply):
            if outcome.done:
                owed.replied(outcome)
            else:
                owed.waits_for = outcome
                outcome.deliver = owed.replied
                if owed.key in _GROUP_WAITS:
                    self._give_back(owed)
                elif owed.objects:
                    self._give_back_objects(owed, owed.objects - owed.objects // PARKED_PART)
            return
        # Not cancelled when the connection goes: an admin change that has begun is carried to its end.
        future: asyncio.Future[Any] = asyncio.ensure_future(cast(Any, outcome))
        owed.waits_for = future
        future.add_done_callback(owed.resolved)

    def settle(self, owed: Owed, answer: Answer, failure: BaseException | None) -> None:
        """The answer to one request is known (or will never be); send what is due, in order."""
        assert not owed.done, "a request is answered once"
        owed.done = True
        owed.waits_for = None
        self._give_back(owed)
        if failure is None and answer is not None and not self._closing:
            try:
                owed.body = answer if type(answer) is list else encode(cast(Message, answer), owed.version)
            except Exception as error:  # noqa: BLE001 - an answer that cannot be encoded is a bug of this request only
                self._failed(owed, error)
        if failure is not None:
            self._failed(owed, failure)
        if self._open():
            self._send_due()

    def _give_back(self, owed: Owed) -> None:
        cost, owed.cost = owed.cost, 0
        self._ctx.budget.release(cost)
        if owed.objects:
            self._give_back_objects(owed, owed.objects)

    def _give_back_objects(self, owed: Owed, size: int) -> None:
        owed.objects -= size
        self._ctx.objects.release(size)

    def _failed(self, owed: Owed, failure: BaseException) -> None:
        if isinstance(failure, CloseConnection):
            self.close(str(failure))
        elif isinstance(failure, Malformed):
            self._ctx.metrics.malformed += 1
            self.close(f"malformed request, api key {owed.key} version {owed.version}: {failure}")
        else:
            log.error(
                "request failed, api key %d version %d of %s", owed.key, owed.version, self.peer, exc_info=failure
            )
            self.close("the request failed")

    def _send_due(self) -> None:
        owing = self._owed
        metrics = self._ctx.metrics
        if not self._write_paused:
            self._handed = 0
        while owing and owing[0].done:
            owed = owing.popleft()
            self._owed_bytes -= owed.size
            metrics.requests[owed.key].observe(perf_counter() - owed.started)
            body, owed.body = owed.body, None  # whoever still knows the request does not hold its answer
            if body is not None:
                frame = response_frame(owed.key, owed.version, owed.correlation, body)
                size = 4 + _SIZE.unpack_from(frame[0])[0]
                metrics.bytes_out += size
                self._handed += size
                self._hand_over(frame, size)
                del body, frame
                if self._write_paused:
                    self._count_unsent(self._handed)
        self.heard = self._loop.time()
        if self._pumping:
            return
        if self._blocked:
            self._pump_soon()
        else:
            self._rest()

    def _hand_over(self, frame: list[Buffer], size: int) -> None:
        """A large answer goes to the system at once. The transport gets what that does not take: if it is little, in
        memory of its own, because the last bytes of a chunk hold all of it until they have left."""
        if size < SMALL or self._fd < 0:
            self._transport.writelines(frame)
            return
        sent = 0
        if not self._transport.get_write_buffer_size():
            try:
                sent = os.writev(self._fd, frame[:_IOV_MAX])
            except OSError:
                pass  # it takes nothing now, or never again, which the transport will find out
            if sent == size:
                return
        rest = behind(frame, sent)
        self._transport.writelines(rest if size - sent > _COPIED_MAX else [b"".join(rest)])

    # Flow control of the transport

    def pause_writing(self) -> None:
        self._write_paused = True
        self._stalled_bytes = _UNKNOWN  # the next sweep starts the clock

    def _count_unsent(self, size: int) -> None:
        """Answers count as a whole until all of them has left: till then all their memory is held."""
        before, self._unsent = self._unsent, size
        if size > before:
            self._ctx.answers.take(size - before)
        elif size < before:
            self._ctx.answers.release(before - size)

    def resume_writing(self) -> None:
        self._write_paused = False
        self._count_unsent(0)
        if self._blocked:
            self._pump_soon()
