"""One listening address: accepts connections, and gives each its `ListenerSpec`. A broker may have several."""

from __future__ import annotations

import asyncio
import socket

from cairnmq.broker.net.connection_set import ConnectionSet
from cairnmq.broker.options import ListenerSpec

_BACKLOG = 1024


class Listener:
    def __init__(self, spec: ListenerSpec, connections: ConnectionSet) -> None:
        self.spec = spec
        self._connections = connections
        self._server: asyncio.Server | None = None

    async def open(self, bound: socket.socket) -> None:
        """Accept connections on a bound socket from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: self._connections.connect(self.spec), sock=bound, backlog=_BACKLOG
        )
        self._connections.start_sweeps()

    def stop(self) -> None:
        """Accept nobody any more; connections stay."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """After its connections are closed."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


async def close_all(listeners: list[Listener], connections: ConnectionSet, grace_seconds: float) -> None:
    """Stop accepting everywhere, let started requests get their responses, then hang up."""
    for listener in listeners:
        listener.stop()
    await connections.drain(grace_seconds)
    for listener in listeners:
        await listener.close()
