"""Cold reads: off the loop, and a failure is remembered for the next reader."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from cairnmq.broker.storage_loop.cold_reads import FAILURES_MAX
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.files.damage import Damage, Place, ReadFailure
from unit.broker.rig import Rig, open_rig, scenario, until


def fail() -> None:
    raise Damage(Place("a.log", 7))


async def loaded(rig: Rig, *reads: NotCached) -> list[ReadFailure | None]:
    told: asyncio.Future[list[ReadFailure | None]] = asyncio.get_running_loop().create_future()
    rig.ctx.store.cold_reads.load(list(reads), told.set_result)
    return await told


@scenario
async def test_loads_run_on_another_thread_and_are_counted(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        names: list[str] = []
        read = NotCached(lambda: names.append(threading.current_thread().name))
        failure = ReadFailure(str(Damage(Place("a.log", 7))), Place("a.log", 7))
        assert await loaded(rig, read, NotCached(fail), read) == [None, failure, None]
        assert all(name.startswith("cold-read") for name in names) and len(names) == 2
        assert rig.ctx.store.stats().cold_reads == 3


@scenario
async def test_failure_that_no_request_waits_for_is_told_once(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        cold, queue = rig.ctx.store.cold_reads, rig.queue("a")
        cold.load_for_next([(queue, 0), (queue, 5)], [NotCached(lambda: None), NotCached(fail)])
        await loaded(rig, NotCached(lambda: None))
        await until(lambda: cold.failures)
        assert cold.failure_at(queue, 0) is None
        failure = cold.failure_at(queue, 5)
        assert failure is not None and failure.place == Place("a.log", 7)
        assert cold.failure_at(queue, 5) is None


@scenario
async def test_failures_are_bounded(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        cold, queue = rig.ctx.store.cold_reads, rig.queue("a")
        places = [(queue, offset) for offset in range(FAILURES_MAX + 10)]
        cold.load_for_next(places, [NotCached(fail)] * len(places))
        await until(lambda: cold.failures)
        assert len(cold.failures) == FAILURES_MAX
