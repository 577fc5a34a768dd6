"""What a leader gives to a replica that takes its journal over, and how long it holds it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster import install_service
from cairnmq.broker.cluster.install_service import HELD_MS, InstallService
from cairnmq.broker.internal.peer import Peer
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.checkpoint.split_report import Published, QueuePlace
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.install.snapshot import newest_checkpoint
from cairnmq.storage.segments.segment import LOG
from cairnmq.wire.internal import (
    INSTALL,
    Hello,
    InstallAsk,
    InstallBegun,
    InstallPiece,
    InstallRefused,
    InstallRuns,
)
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, Desk
from unit.broker.rig import scenario, until
from unit.storage.cluster_harness import spec
from unit.storage.replica_harness import NOW, batch

HELLO = Hello("c", 3, 13, 1, INSTALL, 1, 1, bytes(16))


class Bench:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.rate = 1 << 40
        self.settled = 0
        self.service = InstallService(
            {JOURNAL: desk.replica},
            desk.store,
            rate=lambda: self.rate,
            settled=self.settle,
            now_ms=lambda: desk.time_ms,
        )

    async def settle(self) -> None:
        self.settled += 1

    async def told(self, **fields: int) -> object:
        ask = replace(InstallAsk(JOURNAL, 3, 13, RECORD.epoch), **fields)
        answer = await self.service.serve(Peer(HELLO, 1), ask)
        self.data = b"".join(bytes(part) for part in answer.checked())
        return answer.told.told

    async def begin(self) -> InstallBegun:
        begun = await self.told()
        assert isinstance(begun, InstallBegun), begun
        return begun

    async def runs(self, begun: InstallBegun, queue: int = 0, offset: int = 0, max_bytes: int = 1 << 20) -> InstallRuns:
        runs = await self.told(install=begun.install, queue=queue, offset=offset, max_bytes=max_bytes)
        assert isinstance(runs, InstallRuns), runs
        return runs


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """It leads, alone by now, and three batches of queue 1 are in a checkpoint."""
    async with Desk() as desk:
        await desk.lead(replace(RECORD, isr=RECORD.isr[:1]))
        for _ in range(3):
            await desk.produced()
        await until(lambda: desk.state.path.journal.synced == desk.end)
        await until(lambda: desk.leader.durable_end == desk.end)
        desk.machine.split()
        desk.machine.checkpoint()
        yield Bench(desk)


@scenario
async def test_rows_and_batches_of_a_checkpoint() -> None:
    async with bench() as one:
        begun = await one.begin()
        assert begun.split == one.desk.end and begun.epoch == RECORD.epoch and begun.records == 3
        assert isinstance(await one.told(install=begun.install, piece=1), InstallPiece) and one.data
        runs = await one.runs(begun)
        (run,) = runs.runs
        assert runs.is_last and (run.queue, run.offset, run.next_offset, run.is_last) == (1, 0, 3, True)
        assert len(one.data) == run.size > 0


@scenario
async def test_a_batch_comes_whole_however_little_is_asked_for() -> None:
    async with bench() as one:
        begun = await one.begin()
        first = await one.runs(begun, max_bytes=1)
        assert [(run.next_offset, run.is_last) for run in first.runs] == [(1, False)] and not first.is_last
        rest = await one.runs(begun, queue=1, offset=1)
        assert rest.runs[0].offset == 1 and rest.is_last


@scenario
async def test_the_journal_is_held_from_the_checkpoint_on_for_a_time() -> None:
    async with bench() as one:
        begun, pins = await one.begin(), one.desk.store.engine.hosting.pins
        assert pins == {JOURNAL: begun.split}
        one.desk.time_ms += HELD_MS
        one.service.expire()
        assert pins, "it may still ask"
        await one.runs(begun)
        one.desk.time_ms += HELD_MS + 1
        one.service.expire()
        assert not pins
        refused = await one.told(install=begun.install)
        assert isinstance(refused, InstallRefused) and "does not hold it" in refused.reason


@scenario
async def test_a_hold_that_would_fill_the_disk_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_service, "HELD_BYTES", -1)
    async with bench() as one:
        await one.begin()
        one.service.expire()
        assert not one.desk.store.engine.hosting.pins


@scenario
async def test_a_second_install_of_a_broker_takes_the_place_of_the_first() -> None:
    async with bench() as one:
        first = await one.begin()
        second = await one.begin()
        assert isinstance(await one.told(install=first.install), InstallRefused)
        assert (await one.runs(second)).is_last


@scenario
async def test_who_does_not_lead_refuses_and_a_leadership_that_ends_lets_go() -> None:
    async with bench() as one:
        begun = await one.begin()
        assert isinstance(await one.told(epoch=RECORD.epoch - 1), InstallRefused)
        assert isinstance(await one.told(follower=9), InstallRefused)
        one.desk.see(replace(RECORD, leader=None, epoch=RECORD.epoch + 1))
        assert isinstance(await one.told(install=begun.install), InstallRefused)
        one.service.expire()
        assert not one.desk.store.engine.hosting.pins


@scenario
async def test_a_queue_that_was_deleted_is_told() -> None:
    async with bench() as one:
        begun = await one.begin()
        one.desk.store.engine.drop_queues([1])
        (run,) = (await one.runs(begun)).runs
        assert run.is_gone and run.size == 0


@scenario
async def test_a_compacted_queue_that_is_rewritten_meanwhile_begins_again() -> None:
    async with bench() as one:
        engine = one.desk.store.engine
        spec = engine.queues[1].spec
        engine.configure(replace(spec, config=replace(spec.config, compact=True)))
        begun = await one.begin()
        (first,) = (await one.runs(begun, max_bytes=1)).runs
        place = QueuePlace(1, 3, engine.queues[1].segments_from)
        engine.on_checkpoint(Published(engine.serial + 1, dict(engine.checkpointed), engine.pack_set.numbers, [place]))
        (second,) = (await one.runs(begun, queue=1, offset=1)).runs
        assert second.rewrites != first.rewrites


@scenario
async def test_the_rate_is_held() -> None:
    async with bench() as one:
        begun = await one.begin()
        one.rate = 1000
        waited = one.service._throttle.wait_ms(0, 1, one.desk.time_ms)
        await one.runs(begun)
        after = one.service._throttle.wait_ms(0, 1, one.desk.time_ms)
        assert waited == 0 and after > 0


@scenario
async def test_a_queue_whose_first_records_are_in_the_checkpoint_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made when the follower had asked already, and before the checkpoint was read."""
    async with bench() as one:
        desk, loop = one.desk, asyncio.get_running_loop()

        async def make() -> None:
            desk.store.engine.add_queues([spec(5)])
            desk.store.append(desk.store.engine.queues[5], batch(), -1, NOW)
            await until(lambda: desk.leader.durable_end == desk.state.path.journal.staged_end)
            desk.machine.split()
            desk.machine.checkpoint()

        def late(disk: Disk) -> CheckpointImage:
            asyncio.run_coroutine_threadsafe(make(), loop).result(60)
            return newest_checkpoint(disk)

        monkeypatch.setattr(install_service, "newest_checkpoint", late)
        runs = await one.runs(await one.begin())
        assert [run.queue for run in runs.runs] == [1, 5]


@scenario
async def test_one_that_begins_keeps_its_hold_while_another_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read the checkpoint. The first that is done removes its own hold only."""
    async with bench() as one:
        pins, held = one.desk.store.engine.hosting.pins, threading.Event()
        waits = iter([False, True])

        def read(disk: Disk) -> CheckpointImage:
            if next(waits):
                held.wait(20)
                return newest_checkpoint(disk)
            raise OSError("it cannot be read")

        monkeypatch.setattr(install_service, "newest_checkpoint", read)
        first, second = (asyncio.create_task(one.told(follower=follower)) for follower in (2, 3))
        try:
            assert isinstance(await first, InstallRefused)
            assert pins == {JOURNAL: one.desk.store.engine.checkpointed[JOURNAL]}
        finally:
            held.set()
        begun = await second
        assert isinstance(begun, InstallBegun) and pins == {JOURNAL: begun.split}


@scenario
async def test_an_install_is_of_one_journal() -> None:
    async with bench() as one:
        begun = await one.begin()
        one.service._replicas = {JOURNAL: one.desk.replica, 9: one.desk.replica}
        assert isinstance(await one.told(install=begun.install, journal=9), InstallRefused)


@scenario
async def test_the_last_batches_of_a_compacted_queue_wait_for_the_splitter() -> None:
    async with bench() as one:
        begun = await one.begin()
        await one.runs(begun)
        assert one.settled == 0
        engine = one.desk.store.engine
        engine.configure(replace(engine.queues[1].spec, config=replace(engine.queues[1].spec.config, compact=True)))
        await one.runs(begun, max_bytes=1)
        assert one.settled == 0, "it is not the end"
        await one.runs(begun, queue=1, offset=1)
        assert one.settled == 1


@scenario
async def test_damage_that_is_met_is_listed() -> None:
    async with bench() as one:
        begun, engine = await one.begin(), one.desk.store.engine
        disk, directory = one.desk.machine.disks[1], engine.queues[1].spec.directory
        (segment,) = (name for name in disk.list(directory) if name.endswith(LOG))
        disk.damage(f"{directory}/{segment}", 70)
        refused = await one.told(install=begun.install, max_bytes=1 << 20)
        assert isinstance(refused, InstallRefused) and engine.damages.places
