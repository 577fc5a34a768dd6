"""The real Runtime."""

from __future__ import annotations

import asyncio
import threading
import uuid

from cairnmq.broker.machine import MACHINE, limit_stacks


def test_threads_bear_the_name_that_was_asked_for() -> None:
    executor = MACHINE.executor("some-work", 1)
    names = {executor.submit(lambda: threading.current_thread().name).result() for _ in range(3)}
    assert len(names) == 1 and names.pop().startswith("some-work")
    executor.shutdown()


def test_no_two_random_values_are_equal() -> None:
    for draw in (lambda: MACHINE.random_bits(128), lambda: MACHINE.random_bytes(16), MACHINE.uuid):
        assert len({draw() for _ in range(100)}) == 100
    assert len(MACHINE.random_bytes(16)) == 16 and uuid.UUID(MACHINE.uuid()).version == 4


def test_clocks_go_on() -> None:
    clocks = (MACHINE.wall_ms, MACHINE.steady_ms, MACHINE.boot_ms, MACHINE.seconds)
    before = [clock() for clock in clocks]
    MACHINE.sleep(0.01)
    assert all(clock() > then for clock, then in zip(clocks, before, strict=True))


def test_threads_have_small_stacks() -> None:
    before = threading.stack_size()
    limit_stacks()
    assert threading.stack_size(before) == 1 << 20


def test_connections_are_refused_where_nobody_listens() -> None:
    async def connect() -> None:
        listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            (await MACHINE.connect("127.0.0.1", port)).close()
        try:
            await MACHINE.connect("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        raise AssertionError("somebody listens")

    asyncio.run(connect())
