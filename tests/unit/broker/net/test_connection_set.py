"""All connections: how many, draining, shared memory, the log."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cairnmq.broker.net import connection_set
from cairnmq.storage.files.buffers import LARGE, SMALL
from cairnmq.wire.apis import FETCH, METADATA
from unit.broker.rig import scenario, until
from unit.broker.wire_client import open_bench


@scenario
async def test_max_connections() -> None:
    async with open_bench(connections_max=2) as bench:
        first, second = await bench.connect(), await bench.connect()
        for client in (first, second):
            client.send(METADATA, 1)
            await client.receive()
        third = await bench.connect()
        assert await third.closed()
        assert bench.ctx.metrics.refused == 1
        first.writer.close()
        await until(lambda: len(bench.connections.members) == 1)
        fourth = await bench.connect()
        fourth.send(METADATA, 4)
        assert (await fourth.receive())[0] == 4


@scenario
async def test_connections_are_counted() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(METADATA, 1)
        await client.receive()
        assert (bench.ctx.metrics.connections, bench.ctx.metrics.connections_total) == (1, 1)
        client.writer.close()
        await until(lambda: not bench.ctx.metrics.connections)
        assert bench.ctx.metrics.connections_total == 1


@scenario
async def test_draining_answers_what_was_started_and_starts_nothing_more() -> None:
    async with open_bench() as bench:
        busy, idle = await bench.connect(), await bench.connect()
        idle.send(METADATA, 1)
        await idle.receive()
        busy.send(FETCH, 1, version=4)
        busy.send(FETCH, 2, version=4)
        (parked,) = await bench.stub.until_started(1)
        closing = asyncio.create_task(bench.close(20))
        assert await idle.closed()
        with pytest.raises(OSError):
            await bench.connect()
        parked.answer(b"last words")
        assert await busy.receive() == (1, b"last words")
        assert await busy.closed()
        await closing
        assert len(bench.stub.started) == 1


@scenario
async def test_draining_ends_when_the_grace_is_over() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(FETCH, 1, version=4)
        await bench.stub.until_started(1)
        await bench.close(0.05)
        assert await client.closed()


@scenario
async def test_memory_goes_back_to_the_system_when_a_busy_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []
    monkeypatch.setattr(connection_set, "trim_heap", lambda: trims.append(1))
    async with open_bench() as bench:
        for chunks in (bench.connections.chunks, bench.ctx.store.chunks):
            chunks.give(chunks.take(LARGE))
            assert chunks.kept_bytes == LARGE
        for moved, expected in ((0, 0), (1 << 20, 0), (100 << 20, 0), (200 << 20, 0), (200 << 20, 1), (200 << 20, 1)):
            bench.ctx.metrics.bytes_in = moved
            bench.connections._give_memory_back()
            assert len(trims) == expected, moved
            kept = bench.connections.chunks.kept_bytes + bench.ctx.store.chunks.kept_bytes
            assert kept == (0 if expected else 2 * LARGE)


@pytest.mark.parametrize(("budget", "kept"), [(6 * LARGE, 4 * LARGE), (1 << 30, 32 * LARGE)])
@scenario
async def test_chunks_are_kept_as_the_memory_for_requests_allows(budget: int, kept: int) -> None:
    """A third of it for each of the two sizes, and never more than 16 MiB."""
    async with open_bench(budget=budget) as bench:
        chunks = bench.connections.chunks
        for size in (SMALL, LARGE):
            for chunk in [chunks.take(size, size) for _ in range(300 if size == SMALL else 30)]:
                chunks.give(chunk)
        assert chunks.kept_bytes == kept


@scenario
async def test_a_flood_of_nonsense_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with open_bench() as bench:
        for number in range(500):
            bench.connections.note_closed(f"client {number}", "nonsense")
        assert len(caplog.records) == 20
        bench.connections._notes_since -= 2
        bench.connections.note_closed("another", "nonsense")
        assert [record.getMessage() for record in caplog.records[20:]] == [
            "480 more connections closed for such reasons",
            "connection from another closed: nonsense",
        ]
