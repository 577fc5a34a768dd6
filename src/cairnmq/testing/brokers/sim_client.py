"""Our own client on a simulated network: carries the plans of `client/session.py` out on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from cairnmq.client.connection import Connection
from cairnmq.client.errors import ClientError, Disconnected, GaveUp, Unreachable
from cairnmq.client.session import Ask, Pause, Plan, Session
from cairnmq.testing.brokers.sim_socket import Address, SimNetwork
from cairnmq.types import Buffer
from cairnmq.wire.messages import Message

T = TypeVar("T")

_NO_NODE = -1


class _Link:
    """One connection and the protocol state that belongs to it."""

    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._state = Connection("sim", f"{address[0]}:{address[1]}", "0")

    async def greet(self) -> None:
        hello: list[Buffer] | None = self._state.hello()
        while hello is not None:
            self._writer.write(b"".join(hello))
            hello = self._state.greeted(await self._read())

    async def ask(self, ask: Ask) -> Message | None:
        _, frame = self._state.request(ask.request, min_version=ask.min_version, answered=ask.answered)
        self._writer.write(b"".join(frame))
        return await self._read() if ask.answered else None

    def close(self) -> None:
        self._writer.close()

    async def _read(self) -> Message:
        while True:
            room = self._state.space()
            try:
                data = await self._reader.read(len(room))
            except OSError as error:
                raise Disconnected(f"lost {self._state.address}: {error}") from None
            if not data:
                raise Disconnected(f"lost {self._state.address}: the broker closed the connection")
            room[: len(data)] = data
            reply = self._state.received(len(data))
            if reply is not None:
                return reply.message


class SimClient:
    """`timeout` is for one response, `patience` for a whole call."""

    def __init__(
        self,
        network: SimNetwork,
        name: str,
        bootstrap: Sequence[Address],
        timeout: float = 10.0,
        patience: float = 60.0,
    ) -> None:
        self.session = Session()
        self._network = network
        self._own = (name, 0)
        self._bootstrap = list(bootstrap)
        self._timeout = timeout
        self._patience = patience
        self._links: dict[int, _Link] = {}

    async def run(self, plan: Plan[T]) -> T:
        """Carries out any plan of `session`."""
        loop = self._network.loop
        deadline = loop.time() + self._patience
        try:
            step = next(plan)
            while True:
                if isinstance(step, Pause):
                    if loop.time() + step.seconds > deadline:
                        raise GaveUp(f"{step.reason}; gave up after {self._patience:g} s")
                    await asyncio.sleep(step.seconds)
                    step = plan.send(())
                else:
                    step = plan.send(await asyncio.gather(*map(self._ask, step)))
        except StopIteration as done:
            return cast(T, done.value)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    async def _ask(self, ask: Ask) -> object:
        """The response, or why there is none."""
        node = _NO_NODE if ask.node is None else ask.node
        try:
            async with asyncio.timeout(self._timeout + ask.wait_seconds):
                link = self._links.get(node) or await self._connect(node)
                return await link.ask(ask)
        except ClientError as error:
            self._drop(node)
            return error
        except TimeoutError:
            self._drop(node)
            return Disconnected(f"node {node} did not respond in {self._timeout:g} s")

    def _drop(self, node: int) -> None:
        link = self._links.pop(node, None)
        if link is not None:
            link.close()

    async def _connect(self, node: int) -> _Link:
        place = self.session.nodes.get(node)
        if place is None and node != _NO_NODE:
            raise Unreachable(f"node {node} is no longer part of the cluster")
        addresses = self._bootstrap if place is None else [(place.host, place.port)]
        for address in addresses:
            try:
                sock = await self._network.connect(*address, self._own)
            except OSError:
                continue
            link = _Link(address, *await asyncio.open_connection(sock=cast(Any, sock)))
            await link.greet()
            self._links[node] = link
            return link
        self._bootstrap.append(self._bootstrap.pop(0))
        raise Unreachable(f"nobody listens at {addresses}")
