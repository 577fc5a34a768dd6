"""What of an install counts, and what is found of one."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.storage.files.format import JournalMark
from cairnmq.storage.install.install_files import found_installs, read_install, remove_install, rows_name
from cairnmq.storage.install.staged_install import StagedInstall
from cairnmq.testing.sim_disk import SimDisk

MARK = JournalMark(4, 70, 70, 3, 9)


def staged(disk: SimDisk) -> None:
    StagedInstall(disk, 4, 0).complete(MARK, 5)


def test_rows_mark_and_epoch_are_read_back() -> None:
    disk = SimDisk(Random(1))
    assert found_installs(disk) == []
    staged(disk)
    image = read_install(disk, 4)
    assert found_installs(disk) == [4] and image is not None
    assert image.marks == {4: MARK} and image.serial == 5


def test_without_rows_nothing_counts() -> None:
    disk = SimDisk(Random(1))
    StagedInstall(disk, 4, 0)
    assert found_installs(disk) == [4] and read_install(disk, 4) is None


def test_rows_of_another_journal_do_not_count() -> None:
    disk = SimDisk(Random(1))
    staged(disk)
    disk.make_dir("installs/5")
    disk.rename(rows_name(4), rows_name(5))
    assert read_install(disk, 5) is None


def test_rows_that_end_early_do_not_count() -> None:
    disk = SimDisk(Random(1))
    staged(disk)
    file = disk.open(rows_name(4), write=True)
    file.truncate(file.size() - 1)
    assert read_install(disk, 4) is None


def test_what_is_removed_does_not_come_back_with_the_power() -> None:
    for seed in range(20):
        disk = SimDisk(Random(seed))
        staged(disk)
        remove_install(disk, 4)
        assert read_install(disk.crash(Random(seed)), 4) is None


def test_a_removal_that_is_tried_again_is_durable_too() -> None:
    """The first attempt removed the rows, and the disk refused to make that durable."""
    for seed in range(20):
        disk = SimDisk(Random(seed))
        staged(disk)
        disk.faults = {disk.operations + 2: errno.EIO}
        with pytest.raises(OSError, match="rror"):
            remove_install(disk, 4)
        assert not disk.exists(rows_name(4)) and found_installs(disk) == [4]
        remove_install(disk, 4)
        assert found_installs(disk) == [] and read_install(disk.crash(Random(seed)), 4) is None
