"""Several listeners; what each allows its connections."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from msgspec.structs import replace

from cairnmq.broker.net.listener import Listener, close_all
from cairnmq.broker.options import Address, ListenerSpec
from cairnmq.wire.apis import METADATA
from unit.broker.rig import LISTENER, scenario
from unit.broker.wire_client import Client, open_bench

ENCRYPTED = ListenerSpec("EXTERNAL", "SSL", Address("127.0.0.1", 0), Address("broker.example.org", 9093))


@scenario
async def test_two_listeners_share_their_connections() -> None:
    async with open_bench(connections_max=2) as bench:
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        internal = Listener(replace(LISTENER, name="INTERNAL"), bench.connections)
        await internal.open(bound)
        first = await bench.connect()
        first.send(METADATA, 1, b"by the first")
        assert await first.receive() == (1, b"by the first")
        second = Client(*await asyncio.open_connection(*bound.getsockname()))
        second.send(METADATA, 2, b"by the second")
        assert await second.receive() == (2, b"by the second")
        third = await bench.connect()
        assert await third.closed(), "max.connections counts all"
        assert {each._caller.listener for each in bench.connections.members} == {"PLAINTEXT", "INTERNAL"}
        await close_all([internal, bench.listener], bench.connections, 20)
        assert await first.closed() and await second.closed()
        with pytest.raises(OSError):
            await asyncio.open_connection(*bound.getsockname())
        second.writer.close()


@pytest.mark.parametrize("spec", [LISTENER, ENCRYPTED], ids=["plaintext", "encrypted"])
@scenario
async def test_only_a_plaintext_listener_writes_past_the_transport(
    spec: ListenerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under encryption these bytes would be readable for everybody, and nonsense for the client."""
    written: list[int] = []
    writev = os.writev

    def watched(number: int, parts: list[memoryview]) -> int:
        written.append(number)
        return writev(number, parts)

    monkeypatch.setattr(os, "writev", watched)
    async with open_bench(spec=spec) as bench:
        client = await bench.connect()
        client.send(METADATA, 1, bytes(500_000))
        assert await client.receive() == (1, bytes(500_000))
        assert bool(written) == (spec is LISTENER)
