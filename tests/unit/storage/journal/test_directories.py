"""What lies beside the journals is never taken for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from cairnmq.errors import Corrupt
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.check.verify import check
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import JournalMark, segment_entry
from cairnmq.storage.journal.directories import find_foreign, find_journals, read_journal
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.lost_disk import find_loss
from cairnmq.testing.sim_disk import SimDisk

SPECS = [QueueSpec(1, "t", 0, bytes(16), LogConfig())]


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def hold(disk: SimDisk, name: str, number: int) -> None:
    disk.make_dir(name)
    disk.create(f"{name}/00000000000000000000.jnl").append([segment_entry(number, 5, 1, 0, 0)])


def opened(disk: SimDisk, journals: Sequence[int] = (0,)) -> Engine:
    disks = disk, SimDisk(Random(2))
    return Engine.open(*disks, SPECS, journals=journals, begin=lambda _: 2, seed=5, config=EngineConfig(), now_ms=0)


@pytest.mark.parametrize("name", ["30", "20261118", "007", "²", "12"])
def test_a_stray_directory_makes_no_journals(name: str, disk: SimDisk) -> None:
    """Each journal has a reserve of 4 MB and is synced by itself."""
    disk.make_dir(name)
    disk.create(f"{name}/note.txt")
    engine = opened(disk)
    assert len(engine.paths) == 1
    assert disk.list("") == sorted(["0", name])
    assert find_loss(disk, SimDisk(Random(2)), SPECS) is None


@pytest.mark.parametrize("name, number", [("65536", 65536), ("007", 7), ("7", 0)])
def test_neither_does_a_copy_of_a_journal(name: str, number: int, disk: SimDisk) -> None:
    hold(disk, name, number)
    assert len(opened(disk).paths) == 1 and find_foreign(disk, [0]) == [name]
    said = [finding for finding in check(SimDisk(Random(2)), disk) if finding.file == f"journal/{name}"]
    assert len(said) == 1 and said[0].is_note


def test_a_file_with_a_number_for_a_name(disk: SimDisk) -> None:
    disk.create("3")
    disk.create("99999")
    assert find_journals(disk, [0]) == [0] and find_foreign(disk, [0]) == ["99999"]
    assert len(opened(disk).paths) == 1


def test_journals_that_hold_something_are_kept_when_fewer_are_asked_for(disk: SimDisk) -> None:
    hold(disk, "2", 2)
    assert list(opened(disk).paths) == [0, 2], "and none between them is made"
    assert find_journals(disk, {5}) == [2, 5] and find_foreign(disk, [2]) == []


def test_one_whose_heads_cannot_be_read_is_left_to_recovery(disk: SimDisk) -> None:
    disk.make_dir("1")
    disk.create("1/00000000000000000000.jnl").append([b"nothing that reads back"])
    assert find_journals(disk, ()) == [1]


def marked(number: int, seed: int) -> JournalMark:
    return JournalMark(number, 0, 0, 1, seed)


def test_segments_of_another_journal_are_refused(disk: SimDisk) -> None:
    hold(disk, "0", 0)
    for mark in (marked(0, 5), marked(0, 0), None):  # 0: nobody knows the seed
        assert read_journal(disk, 0, mark).find_seed() == 5
    assert read_journal(disk, 1, marked(1, 5)).bases == []
    with pytest.raises(Corrupt, match="of another cluster"):
        read_journal(disk, 0, marked(0, 6))
    hold(disk, "1", 0)
    with pytest.raises(Corrupt, match="journal 1: file 1/0+.jnl is of journal 0"):
        opened(disk, (0, 1))
    assert disk.open("1/00000000000000000000.jnl").size() > 0, "nothing was cut"


def test_a_head_that_cannot_be_read_proves_nothing(disk: SimDisk) -> None:
    hold(disk, "0", 0)
    disk.damage("0/00000000000000000000.jnl", 8)
    assert read_journal(disk, 0, marked(0, 6)).bases == [0]
