"""What a replica knows, stored beside its journal."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.storage.journal.replica_note import UNREADABLE, ReplicaNote, ReplicaNoteFile, read_replica_note
from cairnmq.testing.sim_disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_dir("4")
    disk.sync_dir("")
    return disk


def test_it_is_durable_when_it_is_stored(disk: SimDisk) -> None:
    assert read_replica_note(disk, 4) == ReplicaNote()
    ReplicaNoteFile(disk, 4).put(ReplicaNote(90, 70, 5), synced=100)
    assert read_replica_note(disk.crash(), 4) == ReplicaNote(90, 70, 5)


def test_only_what_the_own_disk_has_is_noted(disk: SimDisk) -> None:
    note = ReplicaNoteFile(disk, 4)
    note.put(ReplicaNote(90, 70, 5), synced=80)
    assert note.kept == ReplicaNote(80, 70, 5)


def test_a_cut_lowers_it_and_is_remembered(disk: SimDisk) -> None:
    note = ReplicaNoteFile(disk, 4)
    note.put(ReplicaNote(90, 70, 5), synced=90)
    note.cut(60, 7)
    assert read_replica_note(disk.crash(), 4) == ReplicaNote(60, 60, 5, 7) == note.kept
    note.cut(50, 6)
    assert note.kept.cut_in == 7
    note.put(ReplicaNote(200, 200, 8), synced=300)
    assert note.kept == ReplicaNote(200, 200, 8, 7), "it stays"


def test_what_was_learned_before_a_cut_says_nothing_about_what_comes_after(disk: SimDisk) -> None:
    note = ReplicaNoteFile(disk, 4)
    note.cut(60, 7)
    note.put(ReplicaNote(90, 70, 6), synced=300)
    assert note.kept == ReplicaNote(0, 0, 6, 7)
    note.put(ReplicaNote(90, 70, 7), synced=300)
    assert note.kept == ReplicaNote(90, 70, 7, 7)


def test_the_same_is_not_written_again(disk: SimDisk) -> None:
    note = ReplicaNoteFile(disk, 4)
    note.put(ReplicaNote(90, 70, 5), synced=90)
    before = disk.operations
    note.put(ReplicaNote(90, 70, 5), synced=95)
    assert disk.operations == before


def test_a_disk_that_refuses_leaves_what_was_there(disk: SimDisk) -> None:
    note = ReplicaNoteFile(disk, 4)
    note.put(ReplicaNote(90, 70, 5), synced=90)
    disk.faults[disk.operations + 1] = errno.ENOSPC
    with pytest.raises(OSError):
        note.cut(60, 7)
    disk.faults.clear()
    assert note.kept == read_replica_note(disk, 4) == ReplicaNote(90, 70, 5)


def test_damaged_one_knows_nothing_and_believes_no_claim(disk: SimDisk) -> None:
    ReplicaNoteFile(disk, 4).put(ReplicaNote(90, 70, 5), synced=90)
    disk.damage("4/replica.json", 12)
    assert read_replica_note(disk, 4) == UNREADABLE and UNREADABLE.replicated == 0
