"""The event loop of whole brokers: time, threads and sockets from a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, TypeVar

import pytest

from cairnmq.testing.brokers.sim_loop import SimExecutor, SimLoop, Stuck
from cairnmq.testing.brokers.sim_socket import BUFFER_BYTES, SimNetwork

T = TypeVar("T")
SERVER = ("server", 9092)


def simulated(work: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """What a coroutine gives on a new loop."""
    loop = SimLoop(Random(seed))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop))


def test_time_passes_at_once_and_exactly() -> None:
    async def work(loop: SimLoop) -> float:
        await asyncio.sleep(1_000_000)
        return loop.time()

    assert simulated(work) == pytest.approx(1_000_000, abs=0.01)


def test_who_waits_for_nothing_is_told() -> None:
    async def work(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(Stuck):
        simulated(work)


def test_callbacks_of_one_turn_keep_their_order() -> None:
    async def work(loop: SimLoop) -> list[int]:
        ran: list[int] = []
        for number in range(20):
            loop.call_soon(ran.append, number)
        await asyncio.sleep(1)
        return ran

    assert simulated(work) == list(range(20))


def test_calls_on_one_thread_keep_their_order_and_on_several_overtake() -> None:
    async def work(loop: SimLoop) -> tuple[list[int], list[int]]:
        one, several = SimExecutor(loop, "one", 1), SimExecutor(loop, "several", 4)
        on_one, on_several = list[int](), list[int]()
        waits = [loop.run_in_executor(one, on_one.append, number) for number in range(20)]
        waits += [loop.run_in_executor(several, on_several.append, number) for number in range(20)]
        assert not on_one, "a thread does not run within the turn that asked"
        await asyncio.gather(*waits)
        return on_one, on_several

    on_one, on_several = simulated(work)
    assert on_one == list(range(20)) and sorted(on_several) == on_one and on_several != on_one


def test_what_a_thread_does_is_told_later_and_failures_too() -> None:
    async def work(loop: SimLoop) -> None:
        pool = SimExecutor(loop, "pool", 1)
        done: list[int] = []
        wait = loop.run_in_executor(pool, done.append, 1)
        failing = loop.run_in_executor(pool, int, "x")
        pool.shutdown()
        assert done == [1] and not wait.done(), "shutdown waits for what was asked, not for who asked"
        with pytest.raises(ValueError, match="invalid literal"):
            await failing
        with pytest.raises(RuntimeError, match="after shutdown"):
            loop.run_in_executor(pool, bool)
        assert await asyncio.to_thread(int, "7") == 7
        assert pool.submit(int, "8").result() == 8

    simulated(work)


def test_real_threads_are_refused() -> None:
    async def work(loop: SimLoop) -> None:
        with ThreadPoolExecutor(1) as pool, pytest.raises(AssertionError, match="real threads"):
            loop.run_in_executor(pool, bool)

    simulated(work)


async def echoing(network: SimNetwork, seen: list[int]) -> asyncio.Server:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            seen.append(len(data))
            writer.write(data)
            await writer.drain()
        writer.close()

    bound: Any = network.bind(SERVER)
    return await asyncio.start_server(echo, sock=bound)


def test_asyncio_s_own_transports_carry_bytes_in_order() -> None:
    sent = Random(7).randbytes(5 * BUFFER_BYTES)

    async def work(loop: SimLoop) -> tuple[bytes, float]:
        network, seen = SimNetwork(loop), list[int]()
        server = await echoing(network, seen)
        sock: Any = await network.connect(*SERVER)
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.write(sent)
        got = await reader.readexactly(len(sent))
        writer.close()
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await network.connect(*SERVER)
        assert len(seen) > 5, "in pieces"
        return got, loop.time()

    got, seconds = simulated(work)
    assert got == sent
    assert simulated(work)[1] == seconds, "the same seed, the same delays"
    assert simulated(work, seed=2)[1] != seconds


def test_who_hangs_up_is_noticed_after_what_it_said() -> None:
    async def work(loop: SimLoop) -> None:
        network = SimNetwork(loop)
        listening = network.bind(SERVER)
        listening.listen()
        near = await network.connect(*SERVER, ("client", 7))
        far, address = listening.accept()
        assert address == ("client", 7) == far.getpeername() and near.getpeername() == SERVER
        assert far.send(b"last words") == 10
        far.close()
        await asyncio.sleep(1)
        assert near.recv(100) == b"last words" and near.recv(100) == b""
        with pytest.raises(BrokenPipeError):
            near.send(b"anybody?")
        near.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            near.send(b"closed")

    simulated(work)


def test_what_nobody_read_resets_the_connection() -> None:
    async def work(loop: SimLoop) -> None:
        network = SimNetwork(loop)
        listening = network.bind(SERVER)
        listening.listen()
        near = await network.connect(*SERVER)
        far, _ = listening.accept()
        near.send(b"never read")
        await asyncio.sleep(1)
        far.close()
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            near.recv(1)

    simulated(work)


def test_a_full_connection_takes_no_more_until_it_is_read() -> None:
    async def work(loop: SimLoop) -> None:
        network = SimNetwork(loop)
        listening = network.bind(SERVER)
        listening.listen()
        near = await network.connect(*SERVER)
        far, _ = listening.accept()
        assert near.send(bytes(2 * BUFFER_BYTES)) == BUFFER_BYTES and not near.is_writable
        with pytest.raises(BlockingIOError):
            near.send(b"more")
        with pytest.raises(BlockingIOError):
            far.recv(1)
        await asyncio.sleep(1)
        assert len(far.recv(100)) == 100 and near.send(bytes(200)) == 100

    simulated(work)


def test_a_port_has_one_owner() -> None:
    async def work(loop: SimLoop) -> None:
        network = SimNetwork(loop)
        first = network.bind(SERVER)
        with pytest.raises(OSError, match="in use"):
            network.bind(SERVER)
        with pytest.raises(ConnectionRefusedError):
            await network.connect(*SERVER)
        first.close()
        network.bind(SERVER).listen()
        assert (await network.connect(*SERVER)).getpeername() == SERVER

    simulated(work)
