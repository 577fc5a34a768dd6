"""A client that sends frames as it likes, and a listener whose handlers the test completes by hand."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from cairnmq.broker.machine import MACHINE
from cairnmq.broker.memory_budget import Budget
from cairnmq.broker.metrics import Metrics
from cairnmq.broker.net.connection import Connection
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.connection_set import ConnectionSet
from cairnmq.broker.net.listener import Listener, close_all
from cairnmq.broker.options import ListenerSpec
from cairnmq.broker.requests.reply import Reply
from cairnmq.broker.requests.router import Router
from cairnmq.storage.files.buffers import Chunks
from cairnmq.types import Buffer
from cairnmq.wire.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from cairnmq.wire.framing import RequestHeader, request_frame
from cairnmq.wire.messages import ApiVersionsResponse
from unit.broker.rig import LISTENER, until


class Started:
    """A request that reached its handler."""

    def __init__(self, header: RequestHeader, body: memoryview) -> None:
        self.header = header
        self.body = body
        self.reply = Reply()

    @property
    def correlation(self) -> int:
        return self.header.correlation_id

    def answer(self, body: bytes = b"") -> None:
        self.reply.complete([body])


class Stub:
    """Produce and Fetch wait for the test; Metadata echoes its body at once; ApiVersions answers a message."""

    def __init__(self) -> None:
        self.started: list[Started] = []
        self.abandoned: list[int] = []
        self._news = asyncio.Event()
        self.router = Router()
        self.router.add_raw(PRODUCE, self._park)
        self.router.add_raw(FETCH, self._park)
        self.router.add_raw(METADATA, self._echo)
        self.router.add(API_VERSIONS, lambda ctx, header, request: ApiVersionsResponse(throttle_time_ms=7))

    def _park(self, ctx: Any, header: RequestHeader, frame: memoryview, position: int) -> Reply:
        started = Started(header, frame[position:])
        started.reply.on_abandon = lambda: self.abandoned.append(header.correlation_id)
        self.started.append(started)
        self._news.set()
        return started.reply

    def _echo(self, ctx: Any, header: RequestHeader, frame: memoryview, position: int) -> list[Buffer]:
        return [bytes(frame[position:])]

    async def until_started(self, count: int) -> list[Started]:
        while len(self.started) < count:
            self._news.clear()
            await self._news.wait()
        return self.started


class Client:
    """One connection; correlation ids are chosen by the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, key: int, correlation: int, body: bytes = b"", version: int = 3) -> None:
        self.raw(frame(key, correlation, body, version))

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> tuple[int, bytes]:
        """(correlation id, what follows it)."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        data = await self.reader.readexactly(size)
        return struct.unpack_from(">i", data)[0], data[4:]

    async def closed(self) -> bool:
        """Waits for the broker to hang up; anything else it sends fails the test."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


def frame(key: int, correlation: int, body: bytes = b"", version: int = 3) -> bytes:
    return b"".join(request_frame(key, version, correlation, "test", [body]))


class Bench:
    def __init__(self, limits: Limits, connections_max: int, budget: int, answers: int, spec: ListenerSpec) -> None:
        self.stub = Stub()
        self.ctx: Any = SimpleNamespace(
            metrics=Metrics(MACHINE.seconds),
            budget=Budget(budget),
            objects=Budget(budget),
            answers=Budget(answers),
            large_polls=set(),
            store=SimpleNamespace(chunks=Chunks()),
        )
        self.connections = ConnectionSet(self.ctx, self.stub.router, limits, lambda: connections_max)
        self.listener = Listener(spec, self.connections)
        self.port = 0
        self.clients: list[Client] = []

    async def connect(self, receive_buffer: int | None = None) -> Client:
        """`receive_buffer` small: a client that reads slowly fills it soon."""
        raw = socket.socket()
        if receive_buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def turn(self) -> None:
        """Everything that was sent before has been looked at: two round trips on another connection."""
        before = len(self.connections.members)
        client = await self.connect()
        for correlation in (1, 2):
            client.send(METADATA, correlation)
            await client.receive()
        client.writer.close()
        self.clients.remove(client)
        await until(lambda: len(self.connections.members) <= before)

    def connection(self) -> Connection:
        """The broker's end, when there is one client."""
        (only,) = self.connections.members
        return only

    async def close(self, grace_seconds: float) -> None:
        await close_all([self.listener], self.connections, grace_seconds)


@asynccontextmanager
async def open_bench(
    limits: Limits | None = None,
    *,
    connections_max: int = 1000,
    budget: int = 1 << 30,
    answers: int = 1 << 30,
    spec: ListenerSpec = LISTENER,
) -> AsyncIterator[Bench]:
    bench = Bench(limits or Limits(), connections_max, budget, answers, spec)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bench.port = bound.getsockname()[1]
    await bench.listener.open(bound)
    try:
        yield bench
    finally:
        for client in bench.clients:
            client.writer.close()
        await bench.close(0.1)
