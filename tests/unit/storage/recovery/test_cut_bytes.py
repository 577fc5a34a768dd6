"""Bytes of a damaged replica are kept before it is cut, whatever happens in between."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.storage.files.set_aside import LOST
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.recovery.cut_bytes import keep_aside
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from unit.storage.cluster_harness import Cluster, Machine, content


def damaged(share: float) -> tuple[Cluster, int]:
    """A cluster whose first broker, killed, has a damaged byte in its journal; and where."""
    cluster = Cluster()
    machine = cluster.leader
    for _ in range(12):
        machine.put(1)
        cluster.spread()
    cluster.elect(2, 6)
    cluster.spread()
    at = int(machine.end() * share)
    base = max(segment.base for segment in machine.engine.paths[4].journal.segments if segment.base <= at)
    machine.disks[0].damage(f"4/{base:020d}.jnl", at - base)
    return cluster, at


def read(disk: SimDisk, name: str) -> bytes:
    file = disk.open(name)
    return file.read(0, file.size())


def files(disk: SimDisk, directory: str) -> dict[str, bytes]:
    return {name: read(disk, f"{directory}/{name}") for name in disk.list(directory) if ".jnl" in name}


def whole(disk: SimDisk) -> bytes:
    return b"".join(part for _, part in sorted(files(disk, "4").items()))


def kept(disk: SimDisk, machine: Machine) -> bytes:
    """Of the start before this one, in the order of positions."""
    return b"".join(part for _, part in sorted(files(disk, f"{LOST}/{machine.life}/4").items()))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_they_are_kept_to_the_last_byte(share: float) -> None:
    cluster, at = damaged(share)
    machine = cluster.machines[1]
    before = whole(machine.disks[0])
    machine.killed(has_others=True)
    end = machine.end()
    assert end <= at and whole(machine.disks[0]) == before[:end]
    assert kept(machine.disks[0], machine) == before[end:]
    cluster.spread()
    assert content(machine.engine, 4, 0) == content(cluster.leader.engine, 4, 0)


@pytest.mark.parametrize("power", [False, True])
def test_a_start_that_is_stopped_in_the_middle_loses_none_of_them(power: bool) -> None:
    cluster, _ = damaged(0.4)
    machine = cluster.machines[1]
    before = whole(machine.disks[0])
    original = (machine.disks[0].kill(), machine.disks[1].kill())
    stopped, operation = 0, 1
    while True:
        disks = (original[0].kill(), original[1].kill())
        disks[0].crash_at = disks[0].operations + operation
        machine.disks = disks
        try:
            machine.start(has_others=True)
        except SimCrash:
            stopped += 1
        else:
            break
        first, second = (disk.crash(Random(operation)) if power else disk.kill() for disk in machine.disks)
        machine.disks = (first, second)
        machine.start(has_others=True)
        disk = machine.disks[0]
        lost = b"".join(part for life in disk.list(LOST) for part in files(disk, f"{LOST}/{life}/4").values())
        end = machine.end()
        for position in range(end, len(before), 50):
            assert before[position : position + 50] in lost, f"stopped in operation {operation}: {position} is missing"
        operation += 1
    assert stopped > 5


def test_a_full_disk_keeps_nothing_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    cluster, at = damaged(0.3)
    disk = cluster.machines[1].disks[0].kill()
    before = whole(disk)
    disk.capacity = 1 << 30
    disk.capacity -= disk.free_bytes()
    reader = JournalReader(disk, 4)
    keep_aside(disk, reader, at, 99)
    assert "could not be kept" in caplog.text and whole(disk) == before
    assert not any(part for part in files(disk, f"{LOST}/99/4").values())
