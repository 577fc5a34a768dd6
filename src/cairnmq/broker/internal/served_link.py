"""A link that another broker opened to this one: handshake, then its requests in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from cairnmq.broker.internal.answer import Answer, InstallAnswer, Part, size_of
from cairnmq.broker.internal.frame_socket import FrameSocket, tune
from cairnmq.broker.internal.link_numbers import LinkNumbers, TooManyBrokers
from cairnmq.broker.internal.link_timing import LinkTiming
from cairnmq.broker.internal.peer import Peer
from cairnmq.broker.runtime import Executor
from cairnmq.wire.internal import (
    CONTROL,
    CONTROL_IN_FLIGHT_MAX,
    DATA,
    HEADER_BYTES_MAX,
    HELLO_BYTES_MAX,
    IN_FLIGHT_MAX,
    INSTALL,
    TEXT_MAX,
    Failed,
    Failure,
    InstallAsk,
    Kind,
    ReplicaFetch,
    ReplicaFetched,
    decode,
    encode,
)
from cairnmq.wire.internal_frames import Frame, FrameParser
from cairnmq.wire.internal_handshake import NONCE_BYTES, Accepting, Identity, LinkRefused
from cairnmq.wire.internal_transactions import KIND_OF, ControlRequest, ControlResponse, decode_request, is_control
from cairnmq.wire.primitives import Malformed

log = logging.getLogger(__name__)

Serve: TypeAlias = Callable[[Peer, ReplicaFetch], Awaitable[Answer]]
ServeInstall: TypeAlias = Callable[[Peer, InstallAsk], Awaitable[InstallAnswer]]
ServeControl: TypeAlias = Callable[[Peer, ControlRequest], Awaitable[ControlResponse]]


class Serving(Struct, frozen=True):
    """What all served links of a listener share. `links`: those that have proved who they are. `install`, `control`:
    None if there are no requests of that purpose."""

    identity: Callable[[], Identity]
    secret: bytes | None
    serve: Serve
    install: ServeInstall | None
    control: ServeControl | None
    timing: LinkTiming
    links: LinkNumbers[ServedLink]
    readers: Executor
    ended: Callable[[ServedLink, str], None]
    random_bytes: Callable[[int], bytes]


class ServedLink:
    """Waits for Hello, then for a proof, then serves. What it has not started when it closes is dropped (R26)."""

    def __init__(self, sock: socket.socket, address: str, serving: Serving) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = serving
        self.address = address
        self.peer: Peer | None = None
        self._waiting: deque[tuple[int, ReplicaFetch | InstallAsk]] = deque()
        self._owed = 0  # responses to requests that have arrived
        self._task: asyncio.Task[None] | None = None
        self._controls: set[asyncio.Task[None]] = set()
        self._accepting = Accepting(serving.identity(), serving.secret, serving.random_bytes(NONCE_BYTES))
        tune(sock, serving.timing)
        parser = FrameParser(HELLO_BYTES_MAX)
        self._socket = FrameSocket(sock, parser, serving.timing, self._on_frame, self._on_end, serving.readers)
        self._timer = self._loop.call_later(serving.timing.hello_seconds, self._too_late)
        self._socket.start()

    def close(self, code: Failure, reason: str) -> None:
        """Requests that are being served end, and their responses are dropped."""
        self._socket.refuse(code, reason)

    async def finished(self) -> None:
        """When nothing of it is served any more. What still is after its link has closed is cancelled in the end."""
        tasks = [*self._controls] if self._task is None else [self._task, *self._controls]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._serving.timing.finish_seconds)
            for task in late:
                task.cancel()
                await asyncio.wait([task])

    def _too_late(self) -> None:
        self._socket.refuse(Failure.MALFORMED, f"no handshake within {self._serving.timing.hello_seconds:g} s")

    def _on_end(self, reason: str) -> None:
        self._timer.cancel()
        self._waiting.clear()
        if self.peer is not None:
            self._serving.links.ended(self.peer.broker, self.peer.purpose, self)
            self.peer.is_gone = True
            self.peer.supersede()
        self._serving.ended(self, reason)

    def _on_frame(self, frame: Frame) -> None:
        try:
            if self.peer is not None:
                self._request(self.peer, frame)
            elif frame.kind == Kind.HELLO:
                self._socket.send(Kind.HELLO, frame.correlation, self._accepting.greeted(frame.header))
            elif frame.kind == Kind.PROVE:
                self._open(frame)
            else:
                raise LinkRefused(Failure.MALFORMED, f"a frame of kind {frame.kind} came before the handshake")
        except LinkRefused as error:
            self._socket.refuse(error.code, error.text)

    def _open(self, frame: Frame) -> None:
        hello = self._accepting.proved(frame.header)
        links = self._serving.links
        try:
            admitted, replaced = links.admit(hello.broker, hello.purpose, hello.broker_epoch, hello.link_number, self)
        except TooManyBrokers:
            raise LinkRefused(Failure.TOO_MANY_LINKS, "too many brokers have had links here") from None
        if not admitted:
            text = f"link {hello.link_number} of broker {hello.broker} is older than one that it has opened since"
            raise LinkRefused(Failure.OLDER_LINK, text)
        self._timer.cancel()
        self.peer = Peer(hello, self._accepting.version)
        if replaced is not None:
            replaced.close(Failure.OLDER_LINK, "replaced by a later link")
        self._socket.parser.header_bytes_max = HEADER_BYTES_MAX
        self._socket.send(Kind.WELCOME, frame.correlation, self._accepting.welcome())

    def _request(self, peer: Peer, frame: Frame) -> None:
        if peer.purpose == CONTROL and is_control(frame.kind) and self._serving.control is not None:
            self._begin_control(peer, frame, self._serving.control)
            return
        is_install = frame.kind == Kind.INSTALL and peer.purpose == INSTALL and self._serving.install is not None
        if not is_install and (frame.kind != Kind.FETCH or peer.purpose != DATA):
            text = f"requests of kind {frame.kind} are not served on a {peer.purpose} link"
            self._fail(frame.correlation, Failure.UNKNOWN_KIND, text)
            return
        if self._owed + self._socket.unsent >= IN_FLIGHT_MAX:
            raise LinkRefused(Failure.TOO_MANY_REQUESTS, f"more than {IN_FLIGHT_MAX} requests in flight")
        request: ReplicaFetch | InstallAsk
        try:
            request = decode(InstallAsk, frame.header) if is_install else decode(ReplicaFetch, frame.header)
        except Malformed as error:
            raise LinkRefused(Failure.MALFORMED, str(error)) from error
        asks = [request] if isinstance(request, InstallAsk) else request.journals
        if any(ask.follower != peer.broker for ask in asks):
            raise LinkRefused(Failure.OTHER_BROKER, f"a position of another broker came from broker {peer.broker}")
        self._waiting.append((frame.correlation, request))
        self._owed += 1
        if self._task is None:
            self._task = self._loop.create_task(self._serve_all(peer))
        else:
            peer.supersede()

    def _begin_control(self, peer: Peer, frame: Frame, serve: ServeControl) -> None:
        """Each is served by itself; they begin in the order in which they came."""
        if self._owed + self._socket.unsent >= CONTROL_IN_FLIGHT_MAX:
            raise LinkRefused(Failure.TOO_MANY_REQUESTS, f"more than {CONTROL_IN_FLIGHT_MAX} requests in flight")
        try:
            request = decode_request(frame.kind, frame.header)
        except Malformed as error:
            raise LinkRefused(Failure.MALFORMED, str(error)) from error
        self._owed += 1
        task = self._loop.create_task(self._control(peer, frame.correlation, request, serve))
        self._controls.add(task)
        task.add_done_callback(self._controls.discard)

    async def _control(self, peer: Peer, correlation: int, request: ControlRequest, serve: ServeControl) -> None:
        if self._socket.is_closed:
            return  # what was not started is dropped
        try:
            response = await serve(peer, request)
            if not self._socket.is_closed:
                self._socket.send(KIND_OF[type(response)], correlation, encode(response))
        except Exception as error:
            if not self._socket.is_closed:
                log.exception("request of broker %d failed", peer.broker)
                self._fail(correlation, Failure.INTERNAL, f"{type(error).__name__}: {error}")
        finally:
            self._owed -= 1

    async def _serve_all(self, peer: Peer) -> None:
        try:
            while self._waiting:
                correlation, request = self._waiting.popleft()
                peer.begin(bool(self._waiting))
                await self._serve(peer, correlation, request)
                self._owed -= 1
        finally:
            self._task = None

    async def _serve(self, peer: Peer, correlation: int, request: ReplicaFetch | InstallAsk) -> None:
        try:
            if isinstance(request, InstallAsk):
                assert self._serving.install is not None
                installed = await self._serving.install(peer, request)
                self._respond(Kind.INSTALLED, correlation, encode(installed.told), installed.checked())
            else:
                answer = await self._serving.serve(peer, request)
                parts = answer.checked(request.max_bytes)
                self._respond(Kind.FETCHED, correlation, encode(ReplicaFetched(answer.told)), parts)
        except Exception as error:
            if not self._socket.is_closed:
                what = "step of an install" if isinstance(request, InstallAsk) else "fetch"
                log.exception("%s of broker %d failed", what, peer.broker)
                self._fail(correlation, Failure.INTERNAL, f"{type(error).__name__}: {error}")

    def _respond(self, kind: Kind, correlation: int, header: bytes, parts: list[Part]) -> None:
        if not self._socket.is_closed:
            self._socket.send(kind, correlation, header, parts, sum(map(size_of, parts)))

    def _fail(self, correlation: int, code: Failure, text: str) -> None:
        self._socket.send(Kind.FAILED, correlation, encode(Failed(code, text[:TEXT_MAX])))
