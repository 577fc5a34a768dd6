"""TCP proxies before ZooKeeper's servers: connections are refused, go silent, or break when a transaction passes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from broker_process import fixed_port

SECONDS = 30.0
MULTI = 14
"""ZooKeeper's number of a transaction, after length and xid."""


class Passages:
    """One for each server, on a thread of their own."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.loses: bool | None = None
        """The next transaction reaches a server (True) or not (False), and nothing that follows reaches anybody."""
        self._targets = list(map(_port, targets))
        self._ports = [fixed_port() for _ in targets]
        self._listening: list[socket.socket] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = {target: asyncio.Event() for target in self._targets}
        self._carried: Counter[int] = Counter()  # connections of each target
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="passages", daemon=True)
        self._thread.start()
        self.accept()

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ports]

    def accept(self) -> None:
        """All is well again."""
        self.loses = None
        self._do(self._accept())

    def refuse(self) -> None:
        """Connections break, and nobody listens."""
        self._do(self._refuse())

    @property
    def used(self) -> set[str]:
        """The servers that connections lead to now."""
        return {f"127.0.0.1:{target}" for target, count in self._carried.items() if count}

    def silence(self, servers: Collection[str] | None = None) -> None:
        """Nothing passes, to and from these servers or all, and nobody is told. New connections are accepted."""
        self._do(self._silence(self._targets if servers is None else list(map(_port, servers))))

    def close(self) -> None:
        self._do(self._refuse())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    async def _accept(self) -> None:
        self._let_all_pass()
        if self._listening:
            return
        for port, target in zip(self._ports, self._targets, strict=True):
            listening = socket.create_server(("127.0.0.1", port))
            listening.setblocking(False)
            self._listening.append(listening)
            self._loop.add_reader(listening, self._take, listening, target)

    async def _refuse(self) -> None:
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        self._listening.clear()
        for writer in list(self._writers):
            writer.transport.abort()
        self._let_all_pass()

    async def _silence(self, targets: Sequence[int]) -> None:
        for target in targets:
            self._open[target].clear()

    def _let_all_pass(self) -> None:
        for each in self._open.values():
            each.set()

    def _take(self, listening: socket.socket, target: int) -> None:
        with suppress(OSError):
            connection, _ = listening.accept()
            connection.setblocking(False)
            task = self._loop.create_task(self._serve(connection, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket, target: int) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        self._writers.add(writer)
        self._carried[target] += 1
        ends = [writer]
        with suppress(OSError, asyncio.IncompleteReadError):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", target)
            self._writers.add(inner_writer)
            ends.append(inner_writer)
            lost, is_open = asyncio.Event(), self._open[target]
            await asyncio.gather(
                self._requests(reader, inner_writer, is_open, lost),
                self._responses(inner_reader, writer, is_open, lost),
            )
        self._carried[target] -= 1
        for each in ends:
            self._writers.discard(each)
            each.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event, lost: asyncio.Event
    ) -> None:
        """Ends by an error, that of the connection."""
        is_handshake = True
        while True:
            length = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(length, "big"))
            await is_open.wait()
            if not is_handshake and self.loses is not None and struct.unpack_from(">i", frame, 4)[0] == MULTI:
                if not self.loses:
                    await self._refuse()
                lost.set()
            is_handshake = False
            writer.write(length + frame)
            await writer.drain()

    async def _responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event, lost: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            await is_open.wait()
            if lost.is_set():
                await self._refuse()
            writer.write(data)
            await writer.drain()
        await is_open.wait()  # that the other side has hung up is not to be heard either
        raise ConnectionResetError

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)


def _port(server: str) -> int:
    return int(server.rpartition(":")[2])
