"""The internal listener: what it accepts, how many, and how it closes."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from cairnmq.broker.internal import listener
from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.link import LinkClosed
from cairnmq.broker.internal.listener import InternalListener
from cairnmq.broker.internal.peer import Peer
from cairnmq.broker.machine import MACHINE
from cairnmq.wire.internal import ReplicaFetch
from cairnmq.wire.internal_handshake import Identity
from unit.broker.internal.link_rig import (
    QUICK,
    RawPeer,
    fetch,
    nothing,
    on_both_loops,
    open_bench,
    told,
)
from unit.broker.rig import until


@on_both_loops
async def test_connections_are_bounded() -> None:
    async with open_bench(connections_max=2) as bench:
        idle = [await RawPeer.connect(bench.address) for _ in range(2)]
        await until(lambda: len(bench.listener._connections) == 2)
        third = await RawPeer.connect(bench.address)
        assert await third.frame() is None
        idle[0].close()
        await until(lambda: len(bench.listener._connections) == 1)
        assert (await (await bench.link()).fetch(fetch())).journals == [told()]
        for raw in (third, idle[1]):
            raw.close()


@on_both_loops
async def test_closing_ends_links_and_what_is_served() -> None:
    served: list[str] = []

    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        served.append("begun")
        await peer.park(50)
        await asyncio.sleep(0)
        served.append("done")
        return Answer([told()])

    async with open_bench(serve) as bench:
        link = await bench.link()
        lost = asyncio.create_task(link.fetch(fetch(wait_ms=50_000)))
        await until(lambda: served)
        await bench.listener.close()
        assert served == ["begun", "done"]
        with pytest.raises(LinkClosed):
            await lost
        with pytest.raises(ConnectionRefusedError):
            await bench.link(number=2)


@on_both_loops
async def test_closing_does_not_wait_for_ever() -> None:
    served: list[str] = []

    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        served.append("begun")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            served.append("cancelled")
        raise AssertionError

    async with open_bench(serve, timing=QUICK) as bench:
        link = await bench.link()
        lost = asyncio.create_task(link.fetch(fetch()))
        await until(lambda: served)
        await bench.listener.close()
        assert served == ["begun", "cancelled"]
        with pytest.raises(LinkClosed):
            await lost


@on_both_loops
async def test_a_new_identity_holds_for_new_links() -> None:
    epochs = [11]
    listener = InternalListener(lambda: Identity("cluster-a", 1, epochs[-1]), None, nothing, MACHINE)
    async with open_bench() as bench:
        await bench.listener.close()
        bound = socket.create_server(("127.0.0.1", 0))
        bench.address = bound.getsockname()
        await listener.open(bound)
        first = await bench.link(number=1)
        epochs.append(12)
        second = await bench.link(number=2)
        assert [link.peer.broker_epoch for link in (first, second) if link.peer] == [11, 12]
        await listener.close()


@on_both_loops
async def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with open_bench() as bench:
        for _ in range(30):
            raw = await RawPeer.connect(bench.address)
            raw.writer.write(bytes(13))
            while await raw.frame() is not None:
                pass
            raw.close()
        await until(lambda: not bench.listener._connections)
    notes = [line for line in caplog.messages if "internal connection" in line]
    assert 1 <= len(notes) < 15
    assert "malformed" in notes[0]


@on_both_loops
async def test_what_was_said_is_not_said_again_each_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is refused tries without end."""
    monkeypatch.setattr(listener, "_NOTE_SECONDS", 0.0)
    monkeypatch.setattr(listener, "_SAME_NOTE_SECONDS", 3600.0)
    caplog.set_level(logging.INFO)
    async with open_bench() as bench:
        for reason in ("closed: one", "closed: one", "closed: one", "closed: two"):
            bench.listener._note("here:1", reason)
    assert caplog.messages == [
        "internal connection from here:1 closed: one",
        "internal connection from here:1 closed: two (2 more since the last note)",
    ]


@on_both_loops
async def test_a_broker_that_cannot_accept_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without descriptors the loop would call it again and again."""
    calls: list[int] = []

    class Full:
        """A listening socket of a process without descriptors."""

        def __init__(self, real: socket.socket) -> None:
            self._real = real

        def fileno(self) -> int:
            return self._real.fileno()

        def accept(self) -> tuple[socket.socket, tuple[str, int]]:
            calls.append(1)
            if len(calls) == 1:
                raise OSError(24, "Too many open files")
            return self._real.accept()

        def close(self) -> None:
            self._real.close()

    monkeypatch.setattr("cairnmq.broker.internal.listener._PAUSE_SECONDS", 0.05)
    async with open_bench() as bench:
        listener = bench.listener
        assert listener._listening is not None
        asyncio.get_running_loop().remove_reader(listener._listening)
        listener._listening = Full(listener._listening)  # type: ignore[assignment]
        asyncio.get_running_loop().add_reader(listener._listening, listener._accept)  # type: ignore[arg-type]
        assert (await (await bench.link()).fetch(fetch())).journals == [told()]
    assert "internal connections cannot be accepted: too many open files" in caplog.text


@on_both_loops
async def test_its_thread_starts_with_the_first_cold_read() -> None:
    async with open_bench() as bench:
        await (await bench.link()).fetch(fetch())
        assert not bench.listener._readers._threads
