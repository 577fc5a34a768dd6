"""A journal's loop in a cluster: a follower's writes and cuts on a disk that refuses, and changes of sides."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest
from msgspec.structs import replace

from cairnmq.broker.machine import MACHINE
from cairnmq.broker.storage_loop.journal_loop import INLINE_BYTES_MAX
from cairnmq.broker.storage_loop.journal_threads import JournalThreads
from cairnmq.broker.storage_loop.replica_loop import ReplicaLoop
from cairnmq.storage.journal.replica_note import ReplicaNote, read_replica_note
from cairnmq.storage.live.follow_path import FollowPath, MustReopen
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.write_path import WritePath
from cairnmq.testing.sim_disk import SimDisk
from unit.broker.rig import scenario, until
from unit.storage.cluster_harness import Machine, content, spec
from unit.storage.replica_harness import NOW


class Desk:
    """A leader, whose storage is driven by hand, and a follower with a real loop. It hears what the loop tells."""

    def __init__(self) -> None:
        specs = [spec(1), spec(2), spec(3, 9)]
        self.leader, self.machine = Machine(1, specs), Machine(2, specs)
        self.leader.lead(5)
        self.shown: list[Queue] = []
        self.told: list[str] = []
        self.loop = ReplicaLoop(
            self.machine.engine.paths[4],
            replace(MACHINE, wall_ms=lambda: NOW),
            self.shown.extend,
            lambda: None,
            lambda: self.told.append("stop"),
        )
        self.loop.observer = self

    def written(self, journal: int) -> None:
        self.told.append(f"written {journal}")

    def synced(self, journal: int, end: int) -> None:
        self.told.append(f"synced {end}")

    @property
    def disk(self) -> SimDisk:
        return self.machine.disks[0]

    @property
    def path(self) -> FollowPath:
        path = self.loop.path
        assert isinstance(path, FollowPath)
        return path

    @property
    def end(self) -> int:
        return self.loop.path.journal.end

    async def append(self) -> bool:
        """All that the leader has more."""
        data = content(self.leader.engine, 4, self.end)
        copy = self.path.take(memoryview(data), 5, NOW)
        assert copy is not None
        return await self.loop.append(copy)

    def is_equal(self) -> bool:
        return content(self.machine.engine, 4, 0) == content(self.leader.engine, 4, 0)


@scenario
async def test_copies_are_written_at_once_and_synced_in_time() -> None:
    desk = Desk()
    desk.leader.put(1)
    assert await desk.append() and desk.is_equal()
    assert desk.told == ["written 4"] and desk.path.sync_by_ms is not None
    desk.loop.sync()
    await until(lambda: desk.path.journal.synced == desk.end)
    await until(lambda: desk.told == ["written 4", f"synced {desk.end}"])
    assert not desk.shown, "nobody says that it counts"
    desk.loop.close()


@scenario
async def test_large_copies_are_written_on_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    writers: list[str] = []

    def observe(disk: SimDisk) -> None:
        if disk.last_operation.startswith("append "):
            writers.append(threading.current_thread().name)

    desk.disk.observe = observe
    monkeypatch.setattr("cairnmq.broker.storage_loop.journal_loop.INLINE_BYTES_MAX", 10)
    assert INLINE_BYTES_MAX > 10
    desk.leader.put(1)
    waits = asyncio.ensure_future(desk.append())
    await asyncio.sleep(0)
    await desk.loop.quiesce()
    assert desk.is_equal(), "nobody changes sides before it is written"
    assert await waits
    assert writers and all("journal-4-write" in name for name in writers)
    desk.loop.close()


@scenario
async def test_what_the_disk_refused_is_asked_for_again() -> None:
    desk = Desk()
    desk.leader.put(1)
    desk.disk.faults[desk.disk.operations + 2] = errno.EIO
    assert not await desk.append()
    assert desk.path.stopped is not None and desk.told == ["stop"] and desk.end == 0
    await until(lambda: desk.path.stopped is None)
    assert await desk.append() and desk.is_equal()
    desk.loop.close()


@scenario
async def test_what_the_disk_took_of_it_stays() -> None:
    desk = Desk()
    for _ in range(12):
        desk.leader.put(1)
    desk.disk.faults[desk.disk.operations + 4] = errno.ENOSPC  # of the second file
    assert not await desk.append()
    assert 0 < desk.end < desk.leader.end()
    await until(lambda: desk.path.stopped is None)
    assert await desk.append() and desk.is_equal()
    desk.loop.close()


@scenario
async def test_after_a_failed_sync_all_is_written_again_and_followed_on() -> None:
    desk = Desk()
    desk.leader.put(1)
    assert await desk.append()
    desk.disk.faults[desk.disk.operations + 1] = errno.EIO
    desk.loop.sync()
    await until(lambda: desk.path.journal.synced == desk.end)
    assert desk.path.stopped is None and desk.told[-1] == f"synced {desk.end}"
    desk.leader.put(1)
    assert await desk.append() and desk.is_equal()
    desk.machine.crashed()
    assert desk.machine.end() >= desk.path.journal.synced > 0
    desk.loop.close()


@scenario
async def test_nothing_is_copied_while_the_disk_fails_for_longer() -> None:
    desk = Desk()
    desk.leader.put(1)
    assert await desk.append()
    refuses = True

    def observe(disk: SimDisk) -> None:
        if refuses and disk.last_operation.startswith(("sync ", "create ")):
            raise OSError(errno.EIO, "no")

    desk.disk.observe = observe
    desk.loop.sync()
    await until(lambda: desk.path.stopped is not None)
    assert "sync failed" in str(desk.path.stopped)
    desk.leader.put(1)
    journal, end = desk.path.journal, desk.end
    desk.path.stopped, stopped = None, desk.path.stopped  # taken before anybody knew
    waits = asyncio.ensure_future(desk.append())
    assert not await waits and (journal.end, journal.staged_end) == (end, end)
    desk.path.stopped, refuses = stopped, False
    await until(lambda: desk.path.stopped is None)
    assert await desk.append() and desk.is_equal()
    desk.loop.close()


@scenario
async def test_a_cut_waits_for_the_sync_under_way_and_is_durable() -> None:
    desk = Desk()
    desk.leader.put(1)
    first = desk.leader.end()
    desk.leader.put(1)
    assert await desk.append()
    gate = threading.Event()
    desk.loop.threads.sync.submit(gate.wait, 20)
    desk.loop.sync()
    cut = asyncio.ensure_future(desk.loop.cut(first, 5, 6))
    await asyncio.sleep(0.01)
    assert desk.end > first and not cut.done()
    gate.set()
    await cut
    assert (desk.end, desk.path.journal.synced) == (first, first)
    assert read_replica_note(desk.disk.crash(), 4).cut_in == 6
    assert await desk.append() and desk.is_equal()
    desk.loop.sync()
    await until(lambda: desk.path.journal.synced == desk.end)
    desk.loop.close()


@scenario
async def test_a_cut_that_only_a_start_can_do_is_told() -> None:
    desk = Desk()
    desk.leader.put(1)
    assert await desk.append()
    desk.path.replicated_to(desk.end, 0, NOW)
    with pytest.raises(MustReopen):
        await desk.loop.cut(0, 0, 6)
    desk.leader.put(1)
    assert await desk.append(), "the loop goes on"
    desk.loop.close()


@scenario
async def test_a_note_never_goes_beside_a_cut() -> None:
    desk = Desk()
    desk.leader.put(1)
    first = desk.leader.end()
    desk.leader.put(1)
    assert await desk.append()
    desk.machine.sync()
    gate, started = threading.Event(), threading.Event()

    def note() -> None:
        started.set()
        gate.wait(20)
        desk.machine.engine.note(4, ReplicaNote(desk.end, 0, 5))

    noting = asyncio.ensure_future(desk.loop.note(note))
    await until(started.is_set)
    cut = asyncio.ensure_future(desk.loop.cut(first, 5, 6))
    await asyncio.sleep(0.01)
    assert desk.end > first
    gate.set()
    await asyncio.gather(noting, cut)
    assert read_replica_note(desk.disk, 4) == ReplicaNote(first, 0, 5, 6)
    desk.loop.close()


def elected(desk: Desk, epoch: int) -> WritePath:
    path = desk.machine.engine.lead(4, epoch, NOW)
    assert path is not None
    desk.loop.swap(path)
    return path


@scenario
async def test_a_note_that_nobody_waits_for_keeps_its_turn() -> None:
    """At a stop its task is cancelled, and the last notes are written at once."""
    desk = Desk()
    desk.loop.threads = JournalThreads.shared(MACHINE.executor)
    begun, may_go, told = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        assert may_go.wait(60)
        told.append("first")

    noting = asyncio.ensure_future(desk.loop.note(first))
    await asyncio.to_thread(begun.wait)
    noting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await noting
    again = asyncio.ensure_future(desk.loop.note(lambda: told.append("second")))
    cutting = asyncio.ensure_future(desk.loop.cut(0, 5, 6))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not told and not again.done() and not cutting.done()
    may_go.set()
    await again
    await cutting
    assert told == ["first", "second"]
    desk.loop.close()


@scenario
async def test_the_head_of_an_epoch_is_written_at_once() -> None:
    desk = Desk()
    desk.leader.put(1)
    assert await desk.append()
    path, end = elected(desk, 6), desk.end
    assert path.epoch_start == end
    await until(lambda: desk.end > end)
    assert desk.told.count("written 4") == 2
    assert desk.machine.engine.histories(4) == ([(5, 0), (6, end)], desk.end)
    desk.loop.close()


@scenario
async def test_a_head_that_the_disk_refused_is_written_later() -> None:
    """Nothing of earlier epochs counts before it, whether anybody produces or not."""
    desk = Desk()
    desk.leader.put(1)
    assert await desk.append()
    path, end = elected(desk, 6), desk.end
    desk.disk.faults[desk.disk.operations + 1] = errno.ENOSPC
    await until(lambda: path.stopped is not None)
    assert desk.end == end
    await until(lambda: desk.end > end)
    assert desk.machine.engine.histories(4)[0] == [(5, 0), (6, end)]
    path.replicated_to(desk.end)
    assert desk.machine.engine.queues[1].end == 1
    desk.loop.close()


@scenario
async def test_a_leader_becomes_a_follower_while_its_disk_fails() -> None:
    desk = Desk()
    desk.leader.put(1)
    assert await desk.append()
    elected(desk, 6)
    await until(lambda: desk.told.count("written 4") == 2)
    refuses = True

    def observe(disk: SimDisk) -> None:
        if refuses and disk.last_operation.startswith(("sync ", "create ")):
            raise OSError(errno.EIO, "no")

    desk.disk.observe = observe
    desk.machine.put(1, write=False)
    desk.loop.staged()
    await until(lambda: desk.loop.path.stopped is not None)
    await desk.loop.quiesce()
    desk.loop.swap(desk.machine.engine.follow(4, "broker 1 leads"))
    assert desk.path.stopped is not None and "sync failed" in desk.path.stopped
    refuses = False
    await until(lambda: desk.path.stopped is None)
    assert desk.path.journal.synced == desk.end
    desk.loop.close()
