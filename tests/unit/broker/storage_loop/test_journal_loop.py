"""What the loop does when the journal's disk refuses: failed writes, failed syncs, and syncs that fail for good."""

from __future__ import annotations

import asyncio
import errno
import sys
import threading
import time
from collections.abc import Callable, Sequence
from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.broker.machine import MACHINE
from cairnmq.broker.storage_loop.journal_loop import JournalLoop
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Refusal
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.disk import File
from cairnmq.storage.live.write_path import Placed
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.types import Buffer
from unit.broker.rig import scenario, until

NOW = 1_000_000
SPEC = QueueSpec(1, "t", 0, bytes(16), LogConfig())


class Desk:
    """One journal on a simulated disk, driven by a real loop and its threads."""

    def __init__(self, disk: SimDisk, epoch: int = 1, config: EngineConfig | None = None) -> None:
        self.disk = disk
        config = config or EngineConfig()
        self.engine = Engine.open(
            disk, SimDisk(Random(2)), [SPEC], begin=lambda _: epoch, seed=5, config=config, now_ms=NOW
        )
        self.path = self.engine.paths[0]
        self.queue = self.engine.queues[1]
        self.stops = 0
        self.now = NOW
        self.loop = JournalLoop(
            self.path, replace(MACHINE, wall_ms=lambda: self.now), lambda queues: None, lambda: None, self._stopped
        )

    def _stopped(self) -> None:
        self.stops += 1

    def stage(self, acks: int = -1) -> Placed:
        data = build_batch([Record(offset=0, timestamp=NOW, key=None, value=b"value")])
        placed = self.path.stage(self.queue, memoryview(bytearray(data)), acks, self.now)
        assert isinstance(placed, Placed)
        return placed

    async def produce(self) -> bool:
        """acks=all; says whether it was acknowledged."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.path.lines.when_durable(self.stage().end, answer.set_result)
        self.loop.staged()
        return await answer

    async def works_again(self) -> None:
        await until(lambda: self.path.stopped is None)


def kept(disk: SimDisk) -> set[int]:
    """Ends of the queue that power losses may leave."""
    return {Desk(disk.crash(Random(seed)), epoch=9).queue.end for seed in range(20)}


@scenario
async def test_after_a_failed_sync_everything_is_written_again_and_acknowledged() -> None:
    desk = Desk(SimDisk(Random(1)))
    assert await desk.produce()
    desk.disk.faults[desk.disk.operations + 2] = errno.EIO
    assert await desk.produce()
    assert (desk.path.stopped, desk.queue.high_watermark, desk.stops) == (None, 2, 0)
    assert kept(desk.disk) == {2}
    assert desk.disk.list("0") == ["00000000000000000000.jnl", "synced"]
    assert await desk.produce()
    assert len(desk.disk.list("0")) == 3, "the next group begins a segment"
    assert kept(desk.disk) == {3}
    desk.loop.close()


@scenario
async def test_a_clock_that_is_set_back_delays_no_sync() -> None:
    """acks=1 is synced within flush.ms, on no clock that can be set."""
    desk = Desk(SimDisk(Random(1)))
    assert await desk.produce()
    synced: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    began = time.monotonic()
    desk.path.lines.when_durable(desk.stage(acks=1).end, synced.set_result)
    desk.loop.staged()
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert not synced.done() or time.monotonic() - began >= LogConfig().flush_ms / 1000
    desk.now -= 3_600_000
    desk.stage(acks=1)
    desk.loop.staged()
    assert await synced
    desk.loop.close()


def prepared(desk: Desk) -> bool:
    return desk.disk.exists("0/next.new")


@scenario
async def test_the_next_segment_is_made_in_advance_unless_room_is_needed() -> None:
    desk = Desk(SimDisk(Random(1)), config=EngineConfig(segment_bytes=400))
    while not prepared(desk):
        assert await desk.produce()
        await asyncio.sleep(0.02)
    segments = len(desk.disk.list("0"))
    while prepared(desk):
        assert await desk.produce()
    assert len(desk.disk.list("0")) == segments, "it became the segment"
    while not prepared(desk):
        assert await desk.produce()
        await asyncio.sleep(0.02)
    desk.loop.room.is_needed(True)
    await until(lambda: not prepared(desk))
    for _ in range(8):
        assert await desk.produce()
        await asyncio.sleep(0.01)
        assert not prepared(desk)
    desk.loop.room.is_needed(False)
    while not prepared(desk):
        assert await desk.produce()
        await asyncio.sleep(0.02)
    desk.disk.faults[desk.disk.operations + 1] = errno.ENOSPC
    assert not await desk.produce()
    await until(lambda: not prepared(desk))
    await desk.works_again()
    while not prepared(desk):
        assert await desk.produce()
        await asyncio.sleep(0.02)
    desk.loop.close()
    assert not prepared(desk)


def _burn(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@pytest.mark.parametrize(("spend", "moves"), [(time.sleep, True), (_burn, False)])
@scenario
async def test_writes_leave_the_loop_when_the_disk_keeps_them_waiting(
    spend: Callable[[float], None], moves: bool
) -> None:
    """Not when they only take long, as on a busy machine: there a thread would have to wait for the CPU too."""
    desk = Desk(SimDisk(Random(1)))
    writers: list[str] = []

    def observe(disk: SimDisk) -> None:
        if disk.last_operation.startswith("append "):
            writers.append(threading.current_thread().name)
            spend(0.02)

    desk.disk.observe = observe
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1.0)  # who burns CPU keeps it: giving it up to another thread of ours would look like waiting
    try:
        for _ in range(3):
            assert await desk.produce()
    finally:
        sys.setswitchinterval(interval)
    here = threading.current_thread().name
    assert [name == here for name in writers] == [True, not moves, not moves]
    desk.loop.close()


@scenario
async def test_what_arrives_meanwhile_is_written_afterwards() -> None:
    desk = Desk(SimDisk(Random(1)))
    assert await desk.produce()
    failures = [OSError(errno.EIO, "no")]

    def observe(disk: SimDisk) -> None:
        if disk.last_operation.startswith("sync ") and failures:
            raise failures.pop()

    desk.disk.observe = observe
    answers = [asyncio.ensure_future(desk.produce())]
    for _ in range(20):
        await asyncio.sleep(0)
        answers.append(asyncio.ensure_future(desk.produce()))
    assert all(await asyncio.gather(*answers)) and not failures
    assert kept(desk.disk) == {22}
    desk.loop.close()


@scenario
async def test_a_disk_that_refuses_again_stops_the_journal_until_it_works() -> None:
    desk = Desk(SimDisk(Random(1)))
    assert await desk.produce()
    at = desk.disk.operations
    desk.disk.faults = {at + 2: errno.EIO, at + 6: errno.EIO}  # append, sync, note, create, append, sync
    assert not await desk.produce()
    assert desk.path.stopped is not None and "retrying every second" in desk.path.stopped
    assert desk.stops == 1 and desk.queue.high_watermark == 1
    refusal = desk.path.stage(desk.queue, memoryview(bytearray(100)), -1, NOW)
    assert isinstance(refusal, Refusal)
    assert not desk.engine.full(desk.path), "producers are refused instead of waiting for room"
    await desk.loop.drain()
    # A start now writes it again, and only then believes that it is there.
    desk.disk.faults.clear()
    after = desk.disk.kill()
    assert Desk(after, epoch=2).queue.end == 2
    assert kept(after) == {2}
    assert "doubt" not in after.list("0")
    # Without a start the same happens by itself.
    await desk.works_again()
    assert desk.queue.high_watermark == 2, "what was written before is durable after all"
    assert await desk.produce()
    assert kept(desk.disk) == {3}
    assert "doubt" not in desk.disk.list("0")
    desk.loop.close()


@scenario
async def test_what_was_staged_when_the_journal_stopped_is_taken_back() -> None:
    desk = Desk(SimDisk(Random(1)))
    assert await desk.produce()
    at = desk.disk.operations
    desk.disk.faults = {at + 2: errno.EIO, at + 6: errno.EIO}
    written = asyncio.ensure_future(desk.produce())
    while desk.queue.end < 2:  # noqa: ASYNC110 - the journal writes at the end of a turn of the loop
        await asyncio.sleep(0)
    told: list[bool] = []
    desk.path.lines.when_durable(desk.stage().end, told.append)
    assert not await written and told == [False]
    await desk.works_again()
    assert (desk.queue.high_watermark, desk.queue.state.end) == (2, 2)
    assert await desk.produce()
    assert kept(desk.disk) == {3}
    desk.loop.close()


@scenario
async def test_a_write_that_fails_otherwise_than_by_the_disk_leaves_nothing_half_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(SimDisk(Random(1)))
    assert await desk.produce()
    file = desk.path.journal.segments[-1].file
    append = type(file).append

    def half(self: File, buffers: Sequence[Buffer]) -> int:
        append(self, buffers[:1])
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(type(file), "append", half)
        assert not await desk.produce()
    await desk.works_again()
    assert await desk.produce()
    assert desk.queue.high_watermark == 2 and kept(desk.disk) == {2}
    desk.loop.close()


@scenario
async def test_a_failed_write_takes_nothing_along() -> None:
    desk = Desk(SimDisk(Random(1)))
    assert await desk.produce()
    desk.disk.faults[desk.disk.operations + 1] = errno.EIO
    assert not await desk.produce()
    assert desk.path.stopped is not None and desk.stops == 1
    desk.disk.faults.clear()
    await desk.works_again()
    assert await desk.produce()
    assert desk.queue.high_watermark == 2 and kept(desk.disk) == {2}
    assert [name for name in desk.disk.list("0") if not name.endswith(".jnl")] == ["reserve", "synced"]
    desk.loop.close()


@scenario
async def test_a_full_disk_costs_the_reserve_and_is_left_when_there_is_room_for_it() -> None:
    desk = Desk(SimDisk(Random(1), capacity=8 << 20))
    desk.loop.start(4 << 20)
    await until(lambda: desk.disk.free_bytes() <= 4 << 20)
    assert await desk.produce()
    junk = desk.disk.create("junk")
    junk.append([bytes(desk.disk.free_bytes() - 50)])
    assert not await desk.produce()
    await until(lambda: "reserve" not in desk.disk.list("0"))
    await asyncio.sleep(0.5)
    assert "reserve" not in desk.disk.list("0")
    assert desk.path.stopped is not None and f"when {5 << 20} are" in desk.path.stopped
    assert desk.disk.free_bytes() > 4 << 20
    desk.disk.remove("junk")
    await desk.works_again()
    assert "reserve" in desk.disk.list("0")
    assert await desk.produce()
    assert kept(desk.disk) == {2}
    desk.loop.close()
