"""A replica is taken over by another broker, over real links."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster import installer
from cairnmq.broker.cluster.install_steps import InstallSteps
from cairnmq.broker.cluster.installer import Installer
from cairnmq.broker.cluster.journal_copying import JournalCopying
from cairnmq.broker.cluster.replica_state import ReplicaState
from cairnmq.replication.records import Member
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.files.format import JournalMark
from cairnmq.storage.install.install_files import found_installs, read_install
from cairnmq.storage.install.staged_install import StagedInstall
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimDisk
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, Desk
from unit.broker.cluster.rig import ClusterRig, OneBroker, cluster
from unit.broker.rig import scenario, until

SETTINGS = {"cairn_journal_segment_bytes": "65536", "cairn_journal_retention_bytes": "0"}


def split(one: OneBroker) -> None:
    """All that may be split, and a checkpoint that lets journals go."""
    engine = one.store.engine
    splitter = Splitter(
        next(iter(engine.paths.values())).journal.disk,
        engine.read_disk,
        load_checkpoint(engine.read_disk),
        lambda ids: [engine.queues[each].spec for each in ids if each in engine.queues],
        journals=engine.paths,
    )
    for journal in engine.paths:
        while done := splitter.split(journal, engine.splittable(journal), 5):
            engine.on_round(done)
    engine.on_checkpoint(splitter.checkpoint(5))
    splitter.close()


async def lagging(rig: ClusterRig) -> tuple[int, OneBroker, int]:
    """A journal, its leader, and a broker that is down and lacks what is gone on the leader."""
    journal = await rig.journal()
    leader = await rig.leader(journal)
    away = next(one.number for one in rig.brokers.values() if one is not leader)
    await rig.produce(leader, b"before")
    await rig.drop(away)
    for number in range(8):
        await rig.produce(leader, b"%d" % number * 20_000)
    await until(lambda: leader.replica(journal).leader.durable_end == leader.end(journal))  # type: ignore[union-attr]
    split(leader)
    assert leader.store.engine.paths[journal].journal.start > 0
    return journal, leader, away


@pytest.mark.parametrize("wiped", [(), ("journal",), ("queues", "packs", "checkpoints"), ("",)])
@scenario
async def test_a_replica_that_lost_its_place_comes_back(tmp_path: Path, wiped: tuple[str, ...]) -> None:
    async with cluster(tmp_path, **SETTINGS) as rig:
        journal, leader, away = await lagging(rig)
        data = leader.data.parent / f"broker{away}"
        for name in wiped:
            shutil.rmtree(data / name, ignore_errors=True)
        one, installed = await rig.start(away), list[int]()
        while journal not in installed:  # once for each journal
            await until(lambda one=one: one.restarts > 0)  # type: ignore[misc]
            assert any("starts again" in (each.state.told_trouble or "") for each in one.replicas.by_journal.values())
            await rig.stop(away)
            one = await rig.start(away)
            installed += one.store.engine.hosting.installed
        await until(lambda: len(leader.record(journal).isr) == 3)
        await rig.produce(leader, b"after")
        await until(lambda: one.end(journal) == leader.end(journal))
        queue, theirs = rig.queue(one), rig.queue(leader)
        await until(lambda: queue.end == theirs.end == 10)
        assert queue.log_start == 0 and queue.state.epochs == theirs.state.epochs


@scenario
async def test_another_leader_ends_it_and_nothing_is_left(tmp_path: Path) -> None:
    async with cluster(tmp_path, **SETTINGS) as rig:
        journal, leader, away = await lagging(rig)
        one = await rig.start(away, follower_replication_throttled_rate="1000")
        await until(lambda: one.replicas.installer.steps is not None and one.replicas.installer.steps.taken > 0)
        assert found_installs(one.store.engine.read_disk) == [journal]
        await until(lambda: one.leadership.installs.get(journal, 0) > 0)
        assert "being taken over" in (one.replica(journal).state.told_trouble or "")
        other = next(each for each in rig.brokers.values() if each not in (one, leader))
        leader.replica(journal).resign()
        await rig.leader(journal, but=[leader.number])
        await until(lambda: one.end(journal) == other.end(journal))
        assert not one.restarts and found_installs(one.store.engine.read_disk) == []


@scenario
async def test_one_that_fails_does_not_keep_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "LINK_SECONDS", 0.01)
    monkeypatch.setattr(installer, "LOOK_SECONDS", 0.01)
    async with Desk() as desk:
        asked: list[int] = []
        one = Installer(
            desk.store,
            link_to=asked.append,
            must_restart=desk.must_restart,
            rate=lambda: 1 << 30,
            now_ms=desk.now_ms,
        )
        first, me = desk.copying, Member(1, 11)
        second = JournalCopying(ReplicaState(9, desk.store, first.state.known, first.state.history), desk)
        one.want(first, me, replace(RECORD, leader=Member(2, 12)))
        await until(lambda: "broker 2 is not reached" in first.state.installing)
        assert one._wanted[JOURNAL].due > asyncio.get_running_loop().time() and set(asked) == {2}
        one.want(second, me, replace(RECORD, journal=9, leader=Member(3, 13)))
        await until(lambda: "broker 3 is not reached" in second.state.installing)
        assert one._wanted[JOURNAL].pause > installer.RETRY_SECONDS
        await one.close()


MARK = JournalMark(JOURNAL, 70, 70, 3, 9)


def installer_of(desk: Desk) -> Installer:
    return Installer(
        desk.store, link_to=lambda _: None, must_restart=desk.must_restart, rate=lambda: 1 << 30, now_ms=desk.now_ms
    )


def refuse_removals(monkeypatch: pytest.MonkeyPatch, disk: SimDisk, times: int) -> None:
    """The next ones."""
    left, remove = [OSError(errno.EIO, "refused")] * times, disk.remove

    def refused(name: str) -> None:
        if left:
            raise left.pop()
        remove(name)

    monkeypatch.setattr(disk, "remove", refused)


@scenario
async def test_one_that_cannot_be_removed_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the replica would follow, and the next start replace what it has acknowledged since."""
    async with Desk() as desk:
        one, disk = installer_of(desk), desk.machine.disks[1]
        staged = one._whole[JOURNAL] = StagedInstall(disk, JOURNAL, 0)
        staged.complete(MARK, 5)
        refuse_removals(monkeypatch, disk, 2)
        for _ in range(2):
            with pytest.raises(OSError, match="refused"):
                await one.end(JOURNAL)
            assert read_install(disk, JOURNAL) is not None
        await one.end(JOURNAL)
        assert found_installs(disk) == [] and not one.shares() and not one._whole


@scenario
async def test_one_that_is_whole_as_it_ends_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that made it is cancelled, and cannot remove it: nobody is told by that task."""
    began, goes_on = threading.Event(), threading.Event()

    async def take(*_: object) -> None:
        """All has come."""

    def complete(steps: InstallSteps) -> None:
        steps.staged.complete(MARK, 5)
        began.set()
        goes_on.wait(20)

    monkeypatch.setattr(Installer, "_take", take)
    monkeypatch.setattr(InstallSteps, "complete", complete)
    async with Desk() as desk:
        one, disk = installer_of(desk), desk.machine.disks[1]
        one.want(desk.copying, Member(1, 11), replace(RECORD, leader=Member(2, 12)))
        await until(began.is_set)
        refuse_removals(monkeypatch, disk, 2)
        ending = asyncio.create_task(one.end(JOURNAL))
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(OSError, match="refused"):
            await ending
        assert read_install(disk, JOURNAL) is not None
        await one.end(JOURNAL)
        assert found_installs(disk) == []
        await one.close()
