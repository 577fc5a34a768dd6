"""A journal is cut at an entry: files, positions, and what a power loss brings back."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.files.format import Leader, journal_segment
from cairnmq.storage.journal.journal import Journal, JournalReader
from cairnmq.storage.journal.synced_end import read_synced_end
from cairnmq.storage.journal.truncation import truncate
from cairnmq.testing.sim_disk import SimDisk


@pytest.fixture
def journal() -> Journal:
    disk = SimDisk(Random(3))
    disk.make_dir("0")
    disk.sync_dir("")
    return Journal(disk, 0, epoch=1, leader=Leader(1, 1), seed=9, segments=[], end=0, segment_bytes=300)


def put(journal: Journal, count: int) -> list[int]:
    """Returns where each of these groups begins."""
    starts = []
    for _ in range(count):
        batch = build_batch([Record(offset=0, timestamp=1, key=None, value=b"v" * 50)])
        journal.stage_batch(5, memoryview(bytearray(batch)), 0, 1000)
        group = journal.take()
        assert group is not None
        journal.write(group)
        journal.written(group)
        starts.append(group.start)
    return starts


def sync(journal: Journal) -> None:
    journal.synced_to(journal.sync())


def test_what_follows_goes(journal: Journal) -> None:
    starts = put(journal, 8)
    assert len(journal.segments) == 4
    cut = starts[4]
    truncate(journal, cut)
    assert (journal.end, journal.staged_end, journal.synced) == (cut, cut, 0)
    reader = JournalReader(journal.disk, 0)
    assert [entry.end for entry in reader.entries(0, 1 << 30)][-1] == cut == reader.end()


def test_nothing_is_appended_to_a_file_that_was_cut(journal: Journal) -> None:
    starts = put(journal, 2)
    truncate(journal, starts[1])
    assert put(journal, 1) == [starts[1]]
    assert JournalReader(journal.disk, 0).bases == [0, starts[1]]


def test_the_synced_end_falls_with_it(journal: Journal) -> None:
    starts = put(journal, 8)
    sync(journal)
    truncate(journal, starts[4])
    assert journal.synced == starts[4]
    for seed in range(20):
        found = read_synced_end(journal.disk.crash(Random(seed)), 0)
        assert found is None or found.position == starts[4], "else a start would call what was cut lost"


def test_a_power_loss_does_not_take_a_cut_back(journal: Journal) -> None:
    starts = put(journal, 8)
    sync(journal)
    truncate(journal, starts[4])
    for seed in range(20):
        after = JournalReader(journal.disk.crash(Random(seed)), 0)
        assert after.end() == starts[4]


def test_everything_may_be_cut(journal: Journal) -> None:
    put(journal, 5)
    truncate(journal, 0)
    assert journal.segments == [] and journal.start == journal.end == 0
    assert put(journal, 1) == [0] and journal.disk.exists(journal_segment(0, 0))


@pytest.mark.parametrize("stop_at", range(1, 12))
def test_a_crash_in_the_middle_leaves_a_beginning(journal: Journal, stop_at: int) -> None:
    starts = put(journal, 8)
    sync(journal)
    before = [entry.position for entry in JournalReader(journal.disk, 0).entries(0, journal.end)]
    stopped: list[SimDisk] = []
    first = journal.disk.operations  # type: ignore[attr-defined]

    def observe(disk: SimDisk) -> None:
        if disk.operations == first + stop_at:
            stopped.extend(disk.crash(Random(seed)) for seed in range(20))

    journal.disk.observe = observe  # type: ignore[attr-defined]
    truncate(journal, starts[1])
    for disk in stopped:
        found = [entry.position for entry in JournalReader(disk, 0).entries(0, 1 << 30)]
        assert found == before[: len(found)] and len(found) >= 2


def put_one(journal: Journal, value: bytes) -> None:
    """A group with one record."""
    journal.stage_batch(5, memoryview(bytearray(build_batch([Record(0, 1, None, value)]))), 0, 1000)
    group = journal.take()
    assert group is not None
    try:
        journal.write(group)
    except OSError:
        journal.taken_back(group)
        journal.names_first = True  # as a leader that is not alone
        raise
    journal.written(group)


def test_a_failed_write_does_not_come_back_when_the_next_file_is_cut(journal: Journal) -> None:
    """It had the place of the entry that was written next, and that others may have copied."""
    (start,) = put(journal, 1)
    disk = journal.disk
    assert isinstance(disk, SimDisk)
    disk.capacity = 400
    with pytest.raises(OSError, match="No space"):
        put_one(journal, b"failed" * 60)
    disk.capacity = None
    cut = journal.end
    put_one(journal, b"written")
    assert JournalReader(disk, 0).bases == [start, cut] and journal.segments[0].cut
    stopped: list[SimDisk] = []
    disk.observe = lambda disk: stopped.extend(disk.crash(Random(seed)) for seed in range(40))
    truncate(journal, cut)
    assert len(stopped) > 100
    for found in stopped:
        reader = JournalReader(found, 0)
        if len(reader.bases) == 1:  # else what is behind the next file's beginning is not read
            assert reader.end() <= cut, "of what was cut nothing, and nothing of what failed"
