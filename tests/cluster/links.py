"""A TCP proxy before the internal listener of each broker: every byte between two brokers passes here, or does not.

Brokers are told the proxies' addresses (`cairn.internal.advertise`). Who connects is seen by whose socket it is, so the
proxy knows nothing of the protocol. What is held back is delivered late, as a network does it: nothing is dropped.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from cluster.socket_owner import inode_of, owner

BUFFER = 1 << 16
SECONDS = 30.0
STRANGER = 0
"""Whoever connects and is no broker; nothing is ever held back from it."""

Pair = tuple[int, int]
"""From a broker to another one."""


class Gate:
    """What one broker sends to another one passes only while it is open."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.held = 0
        """How often somebody had to wait."""

    def set(self, *, is_open: bool) -> None:
        if is_open:
            self._open.set()
        else:
            self._open.clear()

    async def passed(self) -> None:
        if not self._open.is_set():
            self.held += 1
            await self._open.wait()


class Door:
    """The proxy of one broker."""

    def __init__(self, links: Links, node: int, port: int, target: int) -> None:
        self.links = links
        self.node = node
        self.port = port
        self.target = target
        self.listening: socket.socket | None = None
        self.writers: set[asyncio.StreamWriter] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    async def accept(self) -> None:
        if self.listening is None:
            self.listening = socket.create_server(("127.0.0.1", self.port))
            self.listening.setblocking(False)
            self.links.loop.add_reader(self.listening, self._take)

    def _take(self) -> None:
        """Not by asyncio's server: that one forgets a connection that it has accepted just before it is closed."""
        assert self.listening is not None
        with suppress(OSError):
            connection, (_, port) = self.listening.accept()
            connection.setblocking(False)
            task = self.links.loop.create_task(self.serve(connection, port))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def refuse(self) -> None:
        """Whoever connects is refused, as if nobody listened; connections that are there stay."""
        listening, self.listening = self.listening, None
        if listening is not None:
            self.links.loop.remove_reader(listening)
            listening.close()

    async def reset(self) -> None:
        """All connections break."""
        for writer in list(self.writers):
            _abort(writer)

    async def serve(self, connection: socket.socket, port: int) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        self.writers.add(writer)
        try:
            peer = self.links.who(port, self.port)
            # The network's answer to the first packet would not come either.
            await self.links.gate(peer, self.node).passed()
            await self.links.gate(self.node, peer).passed()
            try:
                inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.target)
            except OSError:
                _abort(writer)
                return
            self.writers.add(inner_writer)
            try:
                await asyncio.gather(
                    self._pump(reader, inner_writer, self.links.gate(peer, self.node)),
                    self._pump(inner_reader, writer, self.links.gate(self.node, peer)),
                )
            finally:
                self.writers.discard(inner_writer)
                inner_writer.close()
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: Gate) -> None:
        with suppress(OSError):
            while data := await reader.read(BUFFER):
                await gate.passed()
                writer.write(data)
                await writer.drain()
        await gate.passed()  # that a connection ended is news too
        with suppress(OSError):
            writer.close()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Resets the connection at once."""
    connection = writer.get_extra_info("socket")
    with suppress(OSError):  # it was closed meanwhile
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Links:
    """All doors, on a thread of their own; every other method may be called from any thread.

    `pids`: of the brokers' processes, by node id.
    """

    def __init__(self, pids: Callable[[], dict[int, int]]) -> None:
        self.pids = pids
        self.doors: dict[int, Door] = {}
        self.gates: dict[Pair, Gate] = {}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="links", daemon=True)
        self.thread.start()

    def add(self, node: int, port: int, target: int) -> None:
        """Listens at `port` for what is meant for this broker, which listens at `target`."""
        self.doors[node] = Door(self, node, port, target)
        self.accept(node)

    def who(self, port: int, door: int) -> int:
        """The broker whose socket this is. Every connection between brokers waits for it on this one thread, so it must
        cost little however many connections the machine has."""
        inode = inode_of(port, door)
        found = owner(inode, self.pids()) if inode else None
        return STRANGER if found is None else found

    def gate(self, source: int, target: int) -> Gate:
        return self.gates.setdefault((source, target), Gate())

    # What happens to the network

    def cut(self, source: int, target: int) -> None:
        """Nothing of what `source` sends reaches `target`; the other way round it does."""
        self._do(self._set(source, target, is_open=False))

    def part(self, one: int, other: int) -> None:
        """Both ways."""
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, node: int) -> None:
        """From all others."""
        for other in self.doors:
            if other != node:
                self.part(node, other)

    def heal(self) -> None:
        """What was held back is delivered."""
        for source, target in list(self.gates):
            self._do(self._set(source, target, is_open=True))

    def accept(self, node: int) -> None:
        self._do(self.doors[node].accept())

    def refuse(self, node: int) -> None:
        self._do(self.doors[node].refuse())

    def reset(self, node: int) -> None:
        self._do(self.doors[node].reset())

    def close(self) -> None:
        for node in self.doors:
            self.refuse(node)
        self.heal()
        for node in self.doors:
            self.reset(node)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(SECONDS)

    async def _set(self, source: int, target: int, *, is_open: bool) -> None:
        self.gate(source, target).set(is_open=is_open)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(SECONDS)
