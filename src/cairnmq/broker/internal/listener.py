"""The internal listener: accepts links of other brokers. Its limits are its own, apart from those of clients."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from cairnmq.broker.internal.link_numbers import LinkNumbers
from cairnmq.broker.internal.link_timing import LinkTiming
from cairnmq.broker.internal.served_link import Serve, ServeControl, ServedLink, ServeInstall, Serving
from cairnmq.broker.runtime import Runtime
from cairnmq.os_errors import reason_of
from cairnmq.wire.internal import Failure
from cairnmq.wire.internal_handshake import Identity

log = logging.getLogger(__name__)

_BACKLOG = 128
_ACCEPTED_AT_ONCE = 16
CONNECTIONS_MAX = 256
_PAUSE_SECONDS = 0.5  # without descriptors nothing can be accepted, and the loop would say so without end
_NOTE_SECONDS, _SAME_NOTE_SECONDS = 1.0, 60.0


class InternalListener:
    """`serve` responds to the fetches of a link, one at a time, `control` to the requests of links for control.
    `identity` may change while it is open (a broker that lost its session registers again); links that begin later are
    told the new one."""

    def __init__(
        self,
        identity: Callable[[], Identity],
        secret: bytes | None,
        serve: Serve,
        runtime: Runtime,
        timing: LinkTiming | None = None,
        connections_max: int = CONNECTIONS_MAX,
        *,
        install: ServeInstall | None = None,
        control: ServeControl | None = None,
    ) -> None:
        self._readers = runtime.executor("internal-read", 1)
        self._connections: set[ServedLink] = set()
        self._connections_max = connections_max
        self._serving = Serving(
            identity,
            secret,
            serve,
            install,
            control,
            timing or LinkTiming(),
            LinkNumbers(),
            self._readers,
            self._ended,
            runtime.random_bytes,
        )
        self._listening: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._noted_at, self._noted = 0.0, ""
        self._unnoted = 0

    async def open(self, bound_socket: socket.socket) -> None:
        """Accepts on a bound socket from now on."""
        bound_socket.setblocking(False)
        bound_socket.listen(_BACKLOG)
        self._listening = bound_socket
        asyncio.get_running_loop().add_reader(bound_socket, self._accept)

    async def close(self) -> None:
        """Closes the port and all links. What is being served is waited for; it is told that nobody waits for it."""
        loop = asyncio.get_running_loop()
        if self._pause is not None:
            self._pause.cancel()
        if self._listening is not None:
            loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        links = list(self._connections)
        for link in links:
            link.close(Failure.CLOSING, "this broker is closing")
        for link in links:
            await link.finished()
        self._readers.shutdown(wait=False)

    def links(self) -> list[int]:
        """Brokers that have a link to this one."""
        return sorted({broker for broker, _ in self._serving.links.open})

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._listening is None:
                return
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            self._connected(sock, f"{address[0]}:{address[1]}")

    def _connected(self, sock: socket.socket, address: str) -> None:
        if len(self._connections) >= self._connections_max:
            sock.close()
            self._note(address, f"refused: {self._connections_max} are open")
            return
        try:
            self._connections.add(ServedLink(sock, address, self._serving))
        except OSError as error:
            sock.close()
            self._note(address, f"closed: {reason_of(error)}")

    def _rest(self, error: OSError) -> None:
        assert self._listening is not None
        loop = asyncio.get_running_loop()
        log.error("internal connections cannot be accepted: %s; trying again in 0.5 s", reason_of(error))
        loop.remove_reader(self._listening)
        self._pause = loop.call_later(_PAUSE_SECONDS, loop.add_reader, self._listening, self._accept)

    def _ended(self, link: ServedLink, reason: str) -> None:
        self._connections.discard(link)
        if link.peer is not None:
            log.info("link of broker %d from %s closed: %s", link.peer.broker, link.address, reason)
        else:
            self._note(link.address, f"closed: {reason}")

    def _note(self, address: str, text: str) -> None:
        """Into the log, one per second at most: a stranger must not fill the disk with it. The same as before: one per
        minute, since whoever is refused tries again without end."""
        now = asyncio.get_running_loop().time()
        if now - self._noted_at < (_SAME_NOTE_SECONDS if text == self._noted else _NOTE_SECONDS):
            self._unnoted += 1
            return
        more = f" ({self._unnoted} more since the last note)" if self._unnoted else ""
        log.info("internal connection from %s %s%s", address, text, more)
        self._noted_at, self._noted, self._unnoted = now, text, 0
