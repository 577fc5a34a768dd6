"""A journal keeps few files open, however many it has."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import Leader
from cairnmq.storage.journal.file_ranges import FILES_MAX, epoch_starts, file_ranges
from cairnmq.storage.journal.journal import Journal, JournalReader
from cairnmq.storage.journal.segment_files import OPEN_MAX
from cairnmq.storage.live.follow_path import FILES_AT_ONCE, FollowPath
from cairnmq.storage.live.journal_fold import JournalFold
from cairnmq.testing.sim_disk import SimDisk

NOW = 1000


def journal_on(disk: RealDisk | SimDisk) -> Journal:
    disk.make_dir("0")
    disk.sync_dir("")
    return Journal(disk, 0, epoch=0, leader=Leader(1, 1), seed=7, segments=[], end=0, segment_bytes=1 << 20)  # type: ignore[arg-type]


def begin(journal: Journal, epoch: int) -> None:
    journal.begin_epoch(epoch, NOW)
    group = journal.take()
    assert group is not None
    journal.write(group)
    journal.written(group)
    journal.synced_to(journal.sync())


def open_files(journal: Journal) -> int:
    return sum(segment._file is not None for segment in journal.segments)


def test_synced_files_are_closed_and_opened_again_for_readers() -> None:
    journal = journal_on(SimDisk(Random(1)))
    for epoch in range(1, 51):
        begin(journal, epoch)
    assert len(journal.segments) == 50 and open_files(journal) == OPEN_MAX + 1
    for segment in journal.segments:
        assert journal.locate(segment.base)[0].size() == segment.size
    assert open_files(journal) <= OPEN_MAX + 1
    assert epoch_starts(journal) == [(epoch, journal.segments[epoch - 1].base) for epoch in range(1, 51)]


def test_files_that_are_not_synced_stay_open() -> None:
    journal = journal_on(SimDisk(Random(1)))
    for epoch in range(1, 31):
        journal.begin_epoch(epoch, NOW)
        group = journal.take()
        assert group is not None
        journal.write(group)
        journal.written(group)
    journal.segments.close_some()
    assert open_files(journal) == 30 and journal.segments.are_many
    journal.synced_to(journal.sync())
    assert open_files(journal) == OPEN_MAX + 1 and not journal.segments.are_many


def test_a_removed_file_is_not_held_open() -> None:
    journal = journal_on(SimDisk(Random(1)))
    for epoch in range(1, 6):
        begin(journal, epoch)
    first = journal.segments[0]
    assert journal.remove_below(journal.segments[1].base) == first.size
    assert first._file is None


def copy(leader: Journal, follower: FollowPath) -> None:
    """All that the leader has, as followers ask for it."""
    own = follower.journal
    while own.end < leader.end:
        ranges = file_ranges(leader, own.end, 1 << 20)
        assert 0 < len(ranges) <= FILES_MAX
        data = b"".join(each.file.read(each.offset, each.size) for each in ranges if each.file is not None)
        taken = follower.take(memoryview(data), leader.epoch, NOW)
        assert taken is not None and len(taken.groups) <= FILES_AT_ONCE
        follower.write(taken)
        follower.written(taken)
        if own.segments.are_many:
            follower.synced_to(follower.sync())


def many_epochs(directory: str, epochs: int) -> None:
    leader = journal_on(RealDisk(os.path.join(directory, "leader")))
    for epoch in range(1, epochs + 1):
        begin(leader, epoch)
    own = journal_on(RealDisk(os.path.join(directory, "follower")))
    follower = FollowPath(own, JournalFold(0, {}, {}, 0))
    copy(leader, follower)
    follower.synced_to(follower.sync())
    assert own.end == leader.end and len(own.segments) == len(leader.segments) == epochs
    for journal in (leader, own):
        assert [epoch for epoch, _ in epoch_starts(journal)] == list(range(1, epochs + 1))
        reader = JournalReader(journal.disk, 0)
        assert sum(1 for _ in reader.entries(0, journal.end)) == epochs
        assert all(reader.head(base) is not None for base in reader.bases)


@pytest.mark.parametrize(("epochs", "files"), [(200, 64), pytest.param(2_000, 256, marks=pytest.mark.long)])
def test_many_epochs_in_a_process_with_few_files(tmp_path: Path, epochs: int, files: int) -> None:
    """A process of its own: the limit would hold for the other tests too."""
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path), str(epochs), str(files)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    names = os.listdir(tmp_path / "follower" / "0")
    assert sum(name.endswith(".jnl") for name in names) == epochs


if __name__ == "__main__":
    place, count, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    many_epochs(place, count)
