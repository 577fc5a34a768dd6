"""Bytes of a journal as they lie in its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import Leader
from cairnmq.storage.journal.file_ranges import FileRange, epoch_starts, file_ranges
from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.journal.truncation import truncate
from unit.storage.replica_harness import Following, Leading


def read(ranges: list[FileRange]) -> bytes:
    return b"".join(each.content() for each in ranges)


@pytest.fixture
def leading() -> Leading:
    leading = Leading(segment_bytes=400)
    for _ in range(12):
        leading.put()
    assert len(leading.path.journal.segments) > 2
    return leading


def test_all_bytes_from_any_position_in_pieces_of_any_size(leading: Leading) -> None:
    journal, data = leading.path.journal, bytes(leading.content())
    for position in range(0, len(data) + 1, 37):
        for size in (1, 90, 700, 1 << 20):
            assert read(file_ranges(journal, position, size)) == data[position : position + size]
    assert file_ranges(journal, len(data), 100) == []


def test_nothing_that_is_not_written(leading: Leading) -> None:
    data = bytes(leading.content())
    leading.put(write=False)
    assert read(file_ranges(leading.path.journal, 0, 1 << 20)) == data


def test_what_was_removed_is_a_fault(leading: Leading) -> None:
    journal = leading.path.journal
    leading.path.synced_to(leading.path.sync())
    assert journal.remove_below(journal.end) > 0
    with pytest.raises(Fault, match="no longer holds position 0"):
        file_ranges(journal, 0, 100)


def test_files_stay_open_as_long_as_somebody_sends_from_them(tmp_path: Path) -> None:
    """Else the descriptor is soon another file's."""
    disk = RealDisk(str(tmp_path))
    disk.make_dir("0")
    journal = Journal(disk, 0, epoch=1, leader=Leader(1, 1), seed=9, segments=[], end=0, segment_bytes=100)
    for _ in range(2):
        journal.begin_epoch(journal.epoch, 1)
        group = journal.take()
        assert group is not None
        journal.write(group)
        journal.written(group)
    first, second = file_ranges(journal, 0, 1 << 20)
    journal.synced_to(journal.sync())
    before = read([first])
    truncate(journal, first.size)
    assert os.pread(first.fd, first.size, first.offset) == before
    assert os.fstat(second.fd).st_nlink == 0, "the file is gone, and not closed"
    del second
    journal.close()


def test_each_epoch_begins_where_its_first_head_is() -> None:
    leading, following = Leading(), Following()
    first = leading.put()
    following.copy(leading.content())
    following.restarted(following.disk.kill(), replicated=0)
    leading.put()
    following.copy(leading.content(following.end))
    end = following.end
    assert len(following.path.journal.segments) == 2, "a start begins a file, without a head"
    path = following.path.promoted(7, 1)
    assert path is not None
    write = path.take()
    assert write is not None
    path.write(write)
    path.written(write)
    assert first < end and epoch_starts(path.journal) == [(4, 0), (7, end)]


def test_a_first_file_without_a_head_has_its_epoch(leading: Leading) -> None:
    """The file before it was removed."""
    following = Following()
    following.copy(leading.content())
    following.restarted(following.disk.kill(), replicated=following.end)
    leading.put()
    following.copy(leading.content(following.end))
    journal = following.path.journal
    base = journal.segments[-1].base
    del journal.segments[:-1]
    assert epoch_starts(journal) == [(4, base)]


def test_what_does_not_read_back_is_named(leading: Leading) -> None:
    leading.disk.damage("0/00000000000000000000.jnl", 3)
    with pytest.raises(Corrupt, match="position 0 was written and cannot be read"):
        epoch_starts(leading.path.journal)
