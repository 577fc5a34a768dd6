"""Bugs of installs, planted one at a time: the simulation with lost disks must find each within a hundred seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.replication.follower import Append, FollowerStep, Install, JournalFollower
from cairnmq.replication.history import EpochHistory
from cairnmq.replication.leader import JournalLeader
from cairnmq.replication.messages import FetchPosition, FetchReply
from cairnmq.replication.records import ClusterView
from cairnmq.testing.replicas.broker_process import Hosted
from cairnmq.testing.replicas.install_world import InstallingProcess, InstallWorld
from cairnmq.testing.replicas.machine import ModelEntry, ModelJournal

Plant = Callable[[pytest.MonkeyPatch], None]


def an_install_is_left_when_another_leads(patch: pytest.MonkeyPatch) -> None:
    """The replica follows again, and the next start puts in place what is older by now."""

    def end(process: InstallingProcess, hosted: Hosted) -> None:
        del process.installing[hosted.number]

    patch.setattr(InstallingProcess, "end_install", end)


def the_snapshot_is_taken_at_the_end_of_the_journal(patch: pytest.MonkeyPatch) -> None:
    """And not at the checkpoint, below which no election cuts."""

    def snapshot(process: InstallingProcess, journal: int, follower: int, epoch: int) -> list[ModelEntry] | None:
        hosted = process.hosted[journal]
        return list(hosted.disk.entries) if hosted.leader is not None else None

    patch.setattr(InstallingProcess, "snapshot", snapshot)


def the_clean_stop_survives_the_disk(patch: pytest.MonkeyPatch) -> None:
    """The emptied replica keeps its place in the ISR."""
    wipe = InstallWorld.wipe

    def clean(world: InstallWorld) -> None:
        lives = {broker: world.shared.processes[broker].me for broker in world.machines}
        before = world.counts["wipes"]
        held = {broker: set(machine.damaged) for broker, machine in world.machines.items()}
        wipe(world)
        for broker, machine in world.machines.items():
            me = lives[broker]
            if world.counts["wipes"] > before and machine.damaged != held[broker] and me is not None:
                machine.clean, machine.damaged = me.broker_epoch, set()

    patch.setattr(InstallWorld, "wipe", clean)


def positions_that_are_gone_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """The follower goes on behind the hole."""
    replied = JournalFollower.replied

    def skip(follower: JournalFollower, asked: FetchPosition, reply: FetchReply) -> FollowerStep:
        step = replied(follower, asked, reply)
        if isinstance(step, Install):
            follower.history.extend(max(step.first, follower.history.end))
            return Append(sync=False)
        return step

    patch.setattr(JournalFollower, "replied", skip)


def what_is_gone_is_taken_for_the_same(patch: pytest.MonkeyPatch) -> None:
    """A follower whose epoch the leader does not know any more is let go on where the journal begins."""

    def parting(history: EpochHistory, last_epoch: int, end: int) -> object:
        known = history.end_of(last_epoch)
        return None if known.epoch in (0, last_epoch) and end <= max(known.end, end) else known

    fetched = JournalLeader.fetched

    def lenient(leader: JournalLeader, asked: FetchPosition, view: ClusterView, now_ms: int) -> FetchReply:
        first, leader.first = leader.first, 0
        try:
            return fetched(leader, asked, view, now_ms)
        finally:
            leader.first = first

    patch.setattr(EpochHistory, "parting", parting)
    patch.setattr(JournalLeader, "fetched", lenient)


def the_checkpoint_does_not_tell_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """Then a replica that was just installed is told again that its position is gone, without end."""

    def history(journal: ModelJournal) -> EpochHistory:
        found = EpochHistory()
        for entry in journal.entries:
            if entry.end > journal.first:
                found.begin(entry.epoch, entry.start)
                found.extend(entry.end)
        if not found.end and journal.entries:
            found.extend(journal.end)
        return found

    patch.setattr(ModelJournal, "history", history)
