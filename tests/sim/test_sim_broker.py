"""One whole broker on simulated time: its real shells, its splitter, our client."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from random import Random
from zlib import crc32

import pytest

from cairnmq.client import records
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.testing.brokers.sim_broker import SimBroker
from cairnmq.testing.brokers.sim_client import SimClient
from cairnmq.testing.brokers.sim_loop import SimLoop
from cairnmq.testing.brokers.sim_machine import DATE_MS, SimMachine
from cairnmq.testing.brokers.sim_socket import SimNetwork
from cairnmq.testing.memory_store import MemoryState
from cairnmq.types import TopicPartition

PLACE = TopicPartition("orders", 0)


class World:
    """A machine with a broker, and everything that went over the network or to a disk."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(Random(seed))
        self.network = SimNetwork(self.loop)
        self.machine = SimMachine(self.loop, self.network, "broker-1", seed)
        self.metadata = MemoryState(self.machine.steady_ms)
        self.trace: list[tuple[float, str, int]] = []
        self.network.observe = lambda name, data: self.trace.append((self.loop.time(), name, crc32(data)))
        for disk in (self.machine.journal_disk, self.machine.data_disk):
            disk.observe = lambda disk: self.trace.append((self.loop.time(), disk.last_operation, disk.operations))

    def client(self, name: str = "client") -> SimClient:
        return SimClient(self.network, name, [("broker-1", 9092)])


def batch(value: bytes) -> bytearray:
    return bytearray(build_batch([Record(0, DATE_MS, None, value, ())]))


async def produce(client: SimClient, *values: bytes) -> list[int]:
    """Offsets of what was acknowledged with acks=all."""
    offsets = []
    for value in values:
        done = await client.run(records.produce(client.session, {PLACE: batch(value)}, -1, 10_000))
        offsets.append(done[PLACE].base_offset)
    return offsets


async def fetch(client: SimClient, offset: int = 0) -> list[bytes | None]:
    found = await client.run(
        records.fetch(
            client.session,
            {PLACE.topic: {PLACE.partition: offset}},
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            partition_max_bytes=1 << 20,
        )
    )
    return [record.value for one in found for data in one.batches for record in decode_batch(data)]


async def produced_and_fetched(world: World) -> list[bytes | None]:
    broker = SimBroker(world.machine, world.metadata)
    await broker.start()
    client = world.client()
    values = [b"one", b"two", b"three"]
    assert await produce(client, *values) == [0, 1, 2]
    before = await fetch(client)
    await asyncio.sleep(60)  # the splitter has them in its files
    assert await fetch(client) == before
    client.close()
    await broker.stop()
    return before


def run(seed: int) -> World:
    world = World(seed)
    with asyncio.Runner(loop_factory=lambda: world.loop) as runner:
        assert runner.run(produced_and_fetched(world)) == [b"one", b"two", b"three"]
    return world


def test_it_serves_a_produce_and_a_fetch() -> None:
    world = run(1)
    image = load_checkpoint(world.machine.data_disk)
    assert [row.end for row in image.queues.values() if row.end] == [3], "the splitter has seen to them"
    assert 60 < world.loop.time() < 120


@pytest.mark.parametrize("seed", range(2, 6))
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    trace = run(seed).trace
    assert len(trace) > 50 and run(seed).trace == trace
    assert run(seed + 100).trace != trace


def test_a_seed_replays_in_another_process() -> None:
    """Where other objects lie in memory, and sets of names have another order."""
    script = "from sim.test_sim_broker import run; from zlib import crc32; print(crc32(repr(run(9).trace).encode()))"
    command, paths = [sys.executable, "-c", script], os.pathsep.join(filter(None, sys.path))
    traces = {
        subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths})
        for seed in ("1", "2")
    }
    assert traces == {b"%d\n" % crc32(repr(run(9).trace).encode())}


def test_what_was_acknowledged_is_there_for_the_next_process() -> None:
    world = World(7)

    async def work() -> list[bytes | None]:
        first = SimBroker(world.machine, world.metadata)
        await first.start()
        client = world.client()
        await produce(client, b"one", b"two")
        client.close()
        await first.stop()
        second = SimBroker(world.machine, world.metadata)
        await second.start()
        assert second.broker is not None and second.broker.ctx.store.engine.was_clean
        client = world.client()
        assert await produce(client, b"three") == [2]
        found = await fetch(client)
        client.close()
        await second.stop()
        return found

    with asyncio.Runner(loop_factory=lambda: world.loop) as runner:
        assert runner.run(work()) == [b"one", b"two", b"three"]


def test_a_fetch_waits_for_records_and_no_longer() -> None:
    world = World(8)

    async def work() -> None:
        broker = SimBroker(world.machine, world.metadata)
        await broker.start()
        reader, writer = world.client("reader"), world.client("writer")
        await produce(writer, b"one")
        began = world.loop.time()
        assert await fetch(reader, 1) == [] and 0.5 <= world.loop.time() - began < 1
        waiting = asyncio.create_task(fetch(reader, 1))
        await asyncio.sleep(0.1)
        await produce(writer, b"two")
        assert await waiting == [b"two"]
        reader.close()
        writer.close()
        await broker.stop()

    with asyncio.Runner(loop_factory=lambda: world.loop) as runner:
        runner.run(work())
