"""A link from this broker to another: connects, asks, and receives raw bytes where they are used."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address

from msgspec import Struct

from cairnmq.broker.internal.frame_socket import FrameSocket, tune
from cairnmq.broker.internal.link_timing import LAST_CHANCE_SECONDS, LinkTiming
from cairnmq.broker.internal.receive_memory import ReceiveMemory
from cairnmq.broker.internal.received import Answered, Fetched, Installed, Received
from cairnmq.broker.runtime import Runtime
from cairnmq.wire.internal import (
    ANY_BROKER,
    CONTROL_IN_FLIGHT_MAX,
    DATA,
    HEADER_BYTES_MAX,
    HELLO_BYTES_MAX,
    IN_FLIGHT_MAX,
    RAW_BYTES_MAX,
    Failed,
    Failure,
    InstallAsk,
    InstallTold,
    Kind,
    Prefix,
    ReplicaFetch,
    ReplicaFetched,
    decode,
    encode,
)
from cairnmq.wire.internal_frames import Frame, FrameParser
from cairnmq.wire.internal_handshake import NONCE_BYTES, Connecting, Identity, LinkRefused
from cairnmq.wire.internal_transactions import (
    KIND_OF,
    RESPONSE_TO,
    ControlRequest,
    ControlResponse,
    decode_response,
)
from cairnmq.wire.primitives import Malformed

_SCRATCH_BYTES = 64 << 10
_CORRELATIONS = 1 << 32


class LinkClosed(ConnectionError):
    """The link ended before the response was there. Whether the request was served is not known."""


class RequestFailed(Exception):
    """The other broker could not serve this request; the link stays."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Asked:
    """A request whose response has not arrived; it is to be of the kind `reply`."""

    __slots__ = ("buffer", "done", "max_bytes", "reply", "timer")

    def __init__(self, done: asyncio.Future[Received], reply: Kind, max_bytes: int, timer: asyncio.TimerHandle) -> None:
        self.done = done
        self.reply = reply
        self.max_bytes = max_bytes
        self.timer = timer
        self.buffer: bytearray | None = None


class Link:
    """One per peer and purpose. `peer` is what the other side has said and, with a secret, proved. `closed` gives the
    reason when nothing more comes; it is never cancelled or failed."""

    def __init__(self, sock: socket.socket, connecting: Connecting, own: Identity, timing: LinkTiming) -> None:
        self._loop = asyncio.get_running_loop()
        self._connecting = connecting
        self._timing = timing
        self._memory = ReceiveMemory()
        self._asked: dict[int, _Asked] = {}
        self._next = 1
        self._places = asyncio.Semaphore(IN_FLIGHT_MAX if connecting.purpose == DATA else CONTROL_IN_FLIGHT_MAX)
        self._opened: asyncio.Future[Identity] = self._loop.create_future()
        self.own = own
        self.peer: Identity | None = None
        self.closed: asyncio.Future[str] = self._loop.create_future()
        parser = FrameParser(HELLO_BYTES_MAX, self._room, _SCRATCH_BYTES)
        self._socket = FrameSocket(sock, parser, timing, self._on_frame, self._on_end)
        self._socket.start()

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        identity: Identity,
        secret: bytes | None,
        number: int,
        runtime: Runtime,
        *,
        purpose: str = DATA,
        to: int = ANY_BROKER,
        timing: LinkTiming | None = None,
    ) -> Link:
        """To broker `to` at this address. `number` is above that of every earlier link of this life. LinkRefused: one
        of the two does not want the other. OSError: nobody is there."""
        patience = timing or LinkTiming()
        async with asyncio.timeout(patience.connect_seconds):
            sock = await runtime.connect(host, port)
        try:
            tune(sock, patience)
            connecting = Connecting(identity, secret, number, purpose, runtime.random_bytes(NONCE_BYTES), to)
            link = cls(sock, connecting, identity, patience)
        except BaseException:
            sock.close()
            raise
        try:
            async with asyncio.timeout(patience.hello_seconds):
                link._socket.send(Kind.HELLO, 0, connecting.hello)
                link.peer = await link._opened
        except BaseException:
            link.close("no handshake")
            raise
        return link

    async def fetch(self, request: ReplicaFetch) -> Fetched:
        """Two may be in flight: the other side completes the earlier one at once. A third waits for its turn."""
        fetched = await self._ask(Kind.FETCH, Kind.FETCHED, request, request.max_bytes, request.wait_ms / 1000)
        assert isinstance(fetched, Fetched)
        return fetched

    async def install(self, request: InstallAsk, wait_seconds: float) -> Installed:
        """On a link of that purpose. A batch may be larger than what was asked for. `wait_seconds`: that the other side
        may take besides."""
        installed = await self._ask(Kind.INSTALL, Kind.INSTALLED, request, RAW_BYTES_MAX, wait_seconds)
        assert isinstance(installed, Installed)
        return installed

    async def ask(self, request: ControlRequest) -> ControlResponse:
        """On a link for control: many may be in flight. They are begun there in the order of these calls."""
        kind = KIND_OF[type(request)]
        answered = await self._ask(kind, RESPONSE_TO[kind], request, 0, request.wait_ms / 1000)
        assert isinstance(answered, Answered)
        return answered.response

    async def _ask(self, kind: Kind, reply: Kind, request: Struct, max_bytes: int, wait_seconds: float) -> Received:
        await self._places.acquire()
        if self._socket.is_closed:
            self._places.release()
            raise LinkClosed(self.closed.result())
        correlation = self._next
        self._next = self._next % (_CORRELATIONS - 1) + 1
        patience = wait_seconds + self._timing.silence_seconds
        timer = self._loop.call_later(patience, self._look, correlation, self._loop.time())
        asked = _Asked(self._loop.create_future(), reply, max_bytes, timer)
        self._asked[correlation] = asked
        self._socket.send(kind, correlation, encode(request))
        try:
            return await asked.done
        except asyncio.CancelledError:
            # Its place stays taken until the response is there: the other side counts it too.
            if asked.done.done() and not asked.done.cancelled() and asked.done.exception() is None:
                asked.done.result().release()
            raise

    def close(self, reason: str) -> None:
        """Requests in flight fail with LinkClosed."""
        self._socket.close(reason)

    def _look(self, correlation: int, since: float, warned: bool = False) -> None:
        """The response is late. While bytes of it arrive there is no hurry. `warned`: it was late a moment ago too. A
        process that stood still has bytes that it did not read yet, and its timers run first."""
        asked = self._asked.get(correlation)
        if asked is None:
            return
        quiet = self._loop.time() - max(self._socket.received_at, since)
        wait = self._timing.silence_seconds - quiet
        if wait <= 0:
            if warned:
                self.close(f"no response for {self._loop.time() - since:.1f} s")
                return
            wait = LAST_CHANCE_SECONDS
        asked.timer = self._loop.call_later(wait, self._look, correlation, since, quiet >= self._timing.silence_seconds)

    def _room(self, prefix: Prefix) -> memoryview:
        asked = self._asked.get(prefix.correlation)
        if asked is None or prefix.kind != asked.reply:
            raise Malformed(f"{prefix.raw_bytes} raw bytes came that were not asked for")
        if prefix.raw_bytes > asked.max_bytes:
            raise Malformed(f"{prefix.raw_bytes} raw bytes came, {asked.max_bytes} were asked for")
        asked.buffer = self._memory.take(prefix.raw_bytes)
        return memoryview(asked.buffer)[: prefix.raw_bytes]

    def _on_frame(self, frame: Frame) -> None:
        try:
            if frame.kind == Kind.FAILED:
                self._failed(frame)
            elif self.peer is not None or self._opened.done():
                self._received(frame)
            elif frame.kind == Kind.HELLO:
                self._socket.send(Kind.PROVE, 0, self._connecting.greeted(frame.header))
            elif frame.kind == Kind.WELCOME:
                self._socket.parser.header_bytes_max = HEADER_BYTES_MAX
                self._opened.set_result(self._connecting.welcomed(frame.header))
            else:
                raise Malformed(f"a frame of kind {frame.kind} came before the handshake")
        except Malformed as error:
            self._refuse(LinkRefused(Failure.MALFORMED, str(error)))
        except LinkRefused as error:
            self._refuse(error)

    def _refuse(self, error: LinkRefused) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)
        self._socket.refuse(error.code, error.text)

    def _failed(self, frame: Frame) -> None:
        failed = decode(Failed, frame.header)
        asked = self._asked.pop(frame.correlation, None)
        if asked is not None:
            self._finish(asked)
            if not asked.done.done():
                asked.done.set_exception(RequestFailed(failed.code, failed.text))
            return
        if not self._opened.done():
            code = Failure(failed.code) if failed.code in Failure.__members__.values() else Failure.INTERNAL
            self._opened.set_exception(LinkRefused(code, failed.text))
        self.close(f"closed by the other side: {failed.text}")

    def _received(self, frame: Frame) -> None:
        asked = self._asked.get(frame.correlation)
        if asked is None or frame.kind != asked.reply:
            raise Malformed(f"a frame of kind {frame.kind} came that was not asked for")
        received = self._read(frame)
        del self._asked[frame.correlation]
        received.holds(self._finish(asked), self._memory)
        if asked.done.done():  # nobody waits for it any more
            received.release()
        else:
            asked.done.set_result(received)

    @staticmethod
    def _read(frame: Frame) -> Received:
        if frame.kind == Kind.INSTALLED:
            return Installed(decode(InstallTold, frame.header), frame.raw)
        if frame.kind != Kind.FETCHED:
            return Answered(decode_response(frame.kind, frame.header))
        journals = decode(ReplicaFetched, frame.header).journals
        if sum(told.size for told in journals) != len(frame.raw):
            raise Malformed(f"{len(frame.raw)} raw bytes came, and others were told")
        return Fetched(journals, frame.raw)

    def _finish(self, asked: _Asked) -> bytearray | None:
        asked.timer.cancel()
        self._places.release()
        buffer, asked.buffer = asked.buffer, None
        return buffer

    def _on_end(self, reason: str) -> None:
        asked, self._asked = self._asked, {}
        for one in asked.values():
            self._finish(one)
            if not one.done.done():
                one.done.set_exception(LinkClosed(reason))
        if not self._opened.done():
            self._opened.set_exception(LinkClosed(reason))
        self.closed.set_result(reason)


async def connect(host: str, port: int) -> socket.socket:
    """By its name or number."""
    loop = asyncio.get_running_loop()
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        target: tuple[object, ...] = (host, port)
    except ValueError:  # a name
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, target = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, target)
    except BaseException:
        sock.close()
        raise
    return sock
