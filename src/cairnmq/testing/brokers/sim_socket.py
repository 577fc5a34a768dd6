"""Stream sockets between simulated processes: bytes arrive later, in order, and what was under way may be lost."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from functools import partial

from cairnmq.testing.brokers.sim_loop import SimLoop
from cairnmq.testing.brokers.sim_process import PROCESS, SimProcess
from cairnmq.types import Buffer

_KNOCK_SECONDS = 0.1
BUFFER_BYTES = 256 << 10  # that one direction holds: sent and not read
_FIRST_NUMBER = 1 << 24  # no descriptor of this process: whoever uses it past the loop fails
_APART_SECONDS = 1e-6  # timers that are due at the same moment run in any order
_NOBODY = contextvars.Context()  # what the network does belongs to no process

Address = tuple[str, int]


class SimSocket:
    """One end of a connection, or a port where connections arrive. As a socket of the operating system for asyncio's
    transports and for our own loops. `family` is that of local sockets, so that nobody looks for what TCP alone has."""

    family, type, proto = socket.AF_UNIX, socket.SOCK_STREAM, 0

    def __init__(self, network: SimNetwork, own: Address, other: Address | None = None) -> None:
        self._network = network
        self._number = network.add(self)
        self._own = own
        self._other = other
        self._peer: SimSocket | None = None
        self._inbox = bytearray()
        self._room = BUFFER_BYTES
        self._ended = False  # the other side has closed, and all that it sent is in the inbox
        self._error: int | None = None
        self._arrived: deque[SimSocket] = deque()  # connections that nobody has accepted
        self._last_arrival = 0.0  # of what was sent from here
        self.is_closed = False
        self.is_listening = False
        self.process: SimProcess | None = None
        self.belongs_to(PROCESS.get())

    def belongs_to(self, process: SimProcess | None) -> None:
        """It is closed with it, and hears nothing while it is paused."""
        if self.process is not None:
            self.process.belongings.pop(self, None)
        self.process = process
        if process is not None:
            process.belongings[self] = None

    # ------------------------------------------------------------------------------------------- as asyncio sees it

    def fileno(self) -> int:
        return -1 if self.is_closed else self._number

    @property
    def is_readable(self) -> bool:
        return bool(self._inbox or self._arrived) or self._ended or self._error is not None

    @property
    def is_writable(self) -> bool:
        return self._room > 0 or self._ended or self._error is not None

    def setblocking(self, is_blocking: bool) -> None:
        assert not is_blocking, "a simulated socket makes nobody wait"

    def setsockopt(self, level: int, option: int, value: int | Buffer) -> None: ...

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        return bytes(size) if size else 0

    def getsockname(self) -> Address:
        return self._own

    @property
    def machines(self) -> tuple[str, str]:
        """Of both ends."""
        return self._own[0], self.getpeername()[0]

    def getpeername(self) -> Address:
        if self._other is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._other

    def listen(self, backlog: int = 0) -> None:
        self.is_listening = True

    def accept(self) -> tuple[SimSocket, Address]:
        self._check()
        if not self._arrived:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        found = self._arrived.popleft()
        return found, found.getpeername()

    def send(self, data: Buffer, flags: int = 0) -> int:
        self._check()
        if self._peer is None or self._peer.is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        view = memoryview(data).cast("B")
        if not len(view):
            return 0
        if self._room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        part = bytes(view[: self._room])
        self._room -= len(part)
        self._network.deliver(self, self._peer, part)
        return len(part)

    def sendall(self, data: Buffer) -> None:
        """For a process that waits until all is sent; nothing here waits, so the other side has to hold it."""
        self._check()
        if self._peer is None or self._peer.is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        self._room -= len(data)
        self._network.deliver(self, self._peer, bytes(data))

    def recv(self, size: int) -> bytes:
        self._check()
        if self._inbox:
            data = bytes(self._inbox[:size])
            self._took(len(data))
            return data
        if self._ended:
            return b""
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def recv_into(self, room: memoryview) -> int:
        data = self.recv(len(room))
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """The other side reads what is under way, then the end; a reset if something was not read here."""
        if self.is_closed:
            return
        self.is_closed = True
        self._network.remove(self._number)
        self.belongs_to(None)
        for arrived in self._arrived:
            arrived.close()
        if self._peer is not None and not self._peer.is_closed:
            self._network.end(self, self._peer, errno.ECONNRESET if self._inbox else None)

    # ------------------------------------------------------------------------------------------- as the network sees it

    def arrive(self, data: bytes) -> None:
        if not self.is_closed:
            self._inbox += data

    def connected(self, end: SimSocket) -> None:
        """A connection is there, to be accepted."""
        if self.is_closed:
            end.close()
        else:
            self._arrived.append(end)

    def ends(self, error: int | None) -> None:
        if error is not None:
            self._inbox.clear()
            self._error = error
        self._ended = True

    def next_arrival(self, due: float) -> float:
        """Nothing that is sent from here overtakes what was sent before, or arrives at the same moment."""
        self._last_arrival = max(due, self._last_arrival + _APART_SECONDS)
        return self._last_arrival

    def _check(self) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._error is not None:
            error, self._error = self._error, None
            raise OSError(error, os.strerror(error))

    def _took(self, count: int) -> None:
        del self._inbox[:count]
        if self._peer is not None:
            self._peer._room += count

    @classmethod
    def pair(cls, network: SimNetwork, one: Address, other: Address) -> tuple[SimSocket, SimSocket]:
        """Two ends of a connection."""
        first, second = cls(network, one, other), cls(network, other, one)
        first._peer, second._peer = second, first
        return first, second


class SimNetwork:
    """All sockets of a world. Each message takes its time. `observe` is told who sends what."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.observe: Callable[[str, bytes], None] | None = None
        self._cuts: set[frozenset[str]] = set()
        self._held: list[tuple[SimSocket, Callable[[], None]]] = []
        self.ports: dict[Address, SimSocket] = {}
        self._next = _FIRST_NUMBER

    def add(self, sock: SimSocket) -> int:
        """Its number."""
        self._next += 1
        self.loop.selector.sockets[self._next] = sock
        return self._next

    def remove(self, number: int) -> None:
        """It is closed."""
        del self.loop.selector.sockets[number]

    def bind(self, address: Address) -> SimSocket:
        """A port; it refuses connections until it listens."""
        found = self.ports.get(address)
        if found is not None and not found.is_closed:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self.ports[address] = SimSocket(self, address)
        return self.ports[address]

    async def connect(self, host: str, port: int, own: Address = ("client", 0)) -> SimSocket:
        """ConnectionRefusedError if nobody listens there."""
        await asyncio.sleep(self.loop.delay())
        while self._is_cut(own[0], host):  # noqa: ASYNC110 - who waits gives up, or the cut is over
            await asyncio.sleep(_KNOCK_SECONDS)
        found = self.ports.get((host, port))
        if found is None or found.is_closed or not found.is_listening:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        near, far = SimSocket.pair(self, own, (host, port))
        far.belongs_to(found.process)
        found.connected(far)
        await asyncio.sleep(self.loop.delay())
        return near

    def deliver(self, source: SimSocket, target: SimSocket, data: bytes) -> None:
        """Later."""
        if self.observe is not None:
            self.observe(source.getsockname()[0], data)
        self._send(source, partial(target.arrive, data))

    def end(self, source: SimSocket, target: SimSocket, error: int | None) -> None:
        """The connection, after what was sent."""
        self._send(source, partial(target.ends, error))

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between these machines until `join`: connections stay, new ones wait."""
        self._cuts.add(frozenset((one, other)))

    def join(self, one: str, other: str) -> None:
        """What was held goes on, as it is sent again."""
        self._cuts.discard(frozenset((one, other)))
        held, self._held = self._held, []
        for source, arrival in held:
            self._send(source, arrival)

    def _is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cuts

    def _send(self, source: SimSocket, arrival: Callable[[], None]) -> None:
        if self._is_cut(*source.machines):
            self._held.append((source, arrival))
            return
        due = source.next_arrival(self.loop.time() + self.loop.delay())
        self.loop.call_at(due, arrival, context=_NOBODY)
