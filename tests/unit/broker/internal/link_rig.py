"""Two brokers' ends of a link over real sockets on loopback, under asyncio's loop and uvloop's."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop
from msgspec.structs import replace

from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.link import Link
from cairnmq.broker.internal.link_timing import LinkTiming
from cairnmq.broker.internal.listener import InternalListener
from cairnmq.broker.internal.peer import Peer
from cairnmq.broker.internal.served_link import ServeControl
from cairnmq.broker.machine import MACHINE
from cairnmq.wire.internal import (
    DATA,
    HEADER_BYTES_MAX,
    AcceptedTold,
    JournalAsk,
    JournalTold,
    Kind,
    Prefix,
    ReplicaFetch,
    frame_head,
)
from cairnmq.wire.internal_frames import Frame, FrameParser
from cairnmq.wire.internal_handshake import Accepting, Identity

PATIENCE_SECONDS = 120  # of a whole test; only a failure uses it up
LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
LEADER, FOLLOWER = Identity("cluster-a", 1, 11), Identity("cluster-a", 2, 22)
SECRET = b"sixteen characters and more"
PATIENT = LinkTiming(connect_seconds=30, hello_seconds=30, silence_seconds=30, stall_seconds=30, dead_seconds=30)
QUICK = replace(PATIENT, silence_seconds=0.3, finish_seconds=0.1)
HASTY = replace(PATIENT, hello_seconds=0.2)


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """An async test, once on each event loop."""

    @functools.wraps(test)
    def run(loop: str, *args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_SECONDS))

    own = inspect.signature(test)
    first = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("loop", LOOPS)(run)


class Range(NamedTuple):
    """A file range as storage gives it."""

    fd: int
    offset: int
    size: int


def ask(journal: int = 0, end: int = 0, follower: int = FOLLOWER.broker) -> JournalAsk:
    return JournalAsk(journal, follower, FOLLOWER.broker_epoch, 5, end, 5, end)


def fetch(*journals: JournalAsk, wait_ms: int = 0, max_bytes: int = 8 << 20) -> ReplicaFetch:
    return ReplicaFetch(wait_ms, max_bytes, list(journals or (ask(),)))


def told(size: int = 0, journal: int = 0) -> JournalTold:
    return JournalTold(journal, AcceptedTold(1, 1, False, 1), size)


async def nothing(peer: Peer, request: ReplicaFetch) -> Answer:
    return Answer([told(journal=one.journal) for one in request.journals])


class Bench:
    """A listener on a free port, and links to it."""

    def __init__(self, listener: InternalListener, address: tuple[str, int]) -> None:
        self.listener = listener
        self.address = address
        self.links: list[Link] = []

    async def link(
        self,
        number: int = 1,
        identity: Identity = FOLLOWER,
        secret: bytes | None = None,
        timing: LinkTiming | None = None,
        purpose: str = DATA,
        to: int = LEADER.broker,
    ) -> Link:
        link = await Link.connect(
            *self.address, identity, secret, number, MACHINE, purpose=purpose, to=to, timing=timing or PATIENT
        )
        self.links.append(link)
        return link


@asynccontextmanager
async def open_bench(
    serve: Callable[[Peer, ReplicaFetch], Awaitable[Answer]] = nothing,
    identity: Identity = LEADER,
    secret: bytes | None = None,
    timing: LinkTiming | None = None,
    connections_max: int = 256,
    control: ServeControl | None = None,
) -> AsyncIterator[Bench]:
    listener = InternalListener(
        lambda: identity, secret, serve, MACHINE, timing or PATIENT, connections_max, control=control
    )
    bound = socket.create_server(("127.0.0.1", 0))
    bench = Bench(listener, bound.getsockname())
    await listener.open(bound)
    try:
        yield bench
    finally:
        for link in bench.links:
            link.close("test is over")
        await listener.close()


class RawPeer:
    """The other end of a link as bare frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._parser = FrameParser(HEADER_BYTES_MAX, lambda prefix: memoryview(bytearray(prefix.raw_bytes)))
        self._frames: list[Frame] = []

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> RawPeer:
        return cls(*await asyncio.open_connection(*address))

    async def frame(self) -> Frame | None:
        """The next one; None at the end of the stream."""
        while not self._frames:
            try:
                data = await self.reader.read(4096)
            except ConnectionError:
                return None
            if not data:
                return None
            self._frames = feed(self._parser, data)
        return self._frames.pop(0)

    def close(self) -> None:
        self.writer.transport.abort()


async def welcome(raw: RawPeer, identity: Identity = LEADER) -> None:
    """The handshake of an honest leader."""
    there = Accepting(identity, None, bytes(32))
    hello = await raw.frame()
    assert hello is not None
    raw.writer.write(frame_head(Kind.HELLO, 0, there.greeted(hello.header)))
    prove = await raw.frame()
    assert prove is not None
    there.proved(prove.header)
    raw.writer.write(frame_head(Kind.WELCOME, 0, there.welcome()))


@asynccontextmanager
async def raw_server(behave: Callable[[RawPeer], Awaitable[None]]) -> AsyncIterator[tuple[str, int]]:
    """A server that does to whoever connects what it likes."""
    peers: list[RawPeer] = []
    tasks: list[asyncio.Task[None]] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(RawPeer(reader, writer))
        tasks.append(asyncio.ensure_future(behave(peers[-1])))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for peer in peers:
            peer.close()


def feed(parser: FrameParser, data: bytes) -> list[Frame]:
    """As a socket would, as much at once as there is room for."""
    frames: list[Frame] = []
    view = memoryview(data)
    while view:
        space = parser.space()
        count = min(len(space), len(view))
        space[:count] = view[:count]
        frames += parser.received(count)
        view = view[count:]
    return frames


def anywhere(prefix: Prefix) -> memoryview:
    return memoryview(bytearray(prefix.raw_bytes))


def write_file(path: Path, size: int) -> bytes:
    """A file of bytes that differ everywhere."""
    block = b"".join(number.to_bytes(8, "big") for number in range(1 << 17))  # 1 MB
    data = bytearray()
    while len(data) < size:
        data += len(data).to_bytes(8, "big") + block
    del data[size:]
    path.write_bytes(data)
    return bytes(data)
