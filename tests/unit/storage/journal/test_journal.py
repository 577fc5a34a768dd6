"""One journal: positions, rolls, failed writes, deletion, and reading it back."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.files.format import BATCH, FACT, SEGMENT, SEGMENT_ENTRY_SIZE, Keyed, Leader
from cairnmq.storage.journal.journal import Group, Journal, JournalReader
from cairnmq.storage.recovery.journal_search import look_behind
from cairnmq.testing.sim_disk import SimDisk


def batch(size: int = 10) -> memoryview:
    return memoryview(bytearray(build_batch([Record(offset=0, timestamp=1, key=None, value=b"v" * size)])))


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Random(3))
    disk.make_dir("0")
    disk.sync_dir("")
    return disk


@pytest.fixture
def journal(disk: SimDisk) -> Journal:
    return Journal(disk, 0, epoch=1, leader=Leader(1, 1), seed=9, segments=[], end=0, segment_bytes=400)


def put(journal: Journal, *sizes: int) -> Group:
    for size in sizes or (10,):
        journal.stage_batch(5, batch(size), 0, 1000)
    group = journal.take()
    assert group is not None
    journal.write(group)
    journal.written(group)
    return group


def test_positions_are_those_of_the_batch_bytes(journal: Journal) -> None:
    data = batch()
    position = journal.stage_batch(5, data, 0, 1000)
    end = journal.stage_facts(0, [Keyed("s", b"k", b"v")], 1000)
    group = journal.take()
    assert group is not None and group.end == end
    journal.write(group)
    journal.written(group)
    file, at = journal.locate(position)
    assert file.read(at, len(data)) == bytes(data)


def test_it_reads_back(journal: Journal, disk: SimDisk) -> None:
    put(journal, 10, 100)
    journal.stage_facts(0, [Keyed("s", b"k", b"v")], 1000)
    put(journal, 300)
    reader = JournalReader(disk, 0)
    for chunk in (64, 10_000):
        entries = list(reader.entries(0, reader.end(), chunk_bytes=chunk))
        assert [entry.kind for entry in entries] == [SEGMENT, BATCH, BATCH, FACT, BATCH]
        assert entries[-1].end == journal.end
    assert [entry.kind for entry in reader.entries(0, entries[1].end)] == [SEGMENT, BATCH]
    assert reader.find_seed() == 9


def test_it_rolls_between_groups(journal: Journal, disk: SimDisk) -> None:
    put(journal, 100, 100, 100)
    first = journal.end
    put(journal, 10)
    assert JournalReader(disk, 0).bases == [0, first]
    assert journal.end == journal.segments[-1].end


def test_sync_covers_what_was_written_before_it(journal: Journal, disk: SimDisk) -> None:
    put(journal, 100, 100, 100)
    put(journal, 10)
    end = journal.sync()
    journal.synced_to(end)
    assert journal.synced == journal.end
    for seed in range(10):
        assert JournalReader(disk.crash(Random(seed)), 0).end() == end


def test_a_group_carries_the_synced_end(journal: Journal, disk: SimDisk) -> None:
    put(journal)
    journal.synced_to(journal.sync())
    synced = journal.end
    put(journal)
    entries = list(JournalReader(disk, 0).entries(0, 10_000))
    assert [entry.synced for entry in entries] == [0, 0, synced]


@pytest.mark.parametrize("rolls", [False, True])
def test_a_failed_write_leaves_nothing(journal: Journal, disk: SimDisk, rolls: bool) -> None:
    put(journal, 400 if rolls else 10)
    before = journal.end
    journal.stage_batch(5, batch(500), 0, 1000)
    group = journal.take()
    assert group is not None and group.rolls == rolls
    journal.stage_batch(5, batch(), 0, 1000)
    disk.faults[disk.operations + (2 if rolls else 1)] = errno.ENOSPC
    with pytest.raises(OSError):
        journal.write(group)
    journal.taken_back(group)
    assert journal.take() is None and journal.staged_end == before
    assert JournalReader(disk, 0).end() == before
    put(journal, 20)
    assert [entry.kind for entry in JournalReader(disk, 0).entries(before, 10_000)] == [SEGMENT, BATCH]


def test_what_was_cut_off_stays_away_after_the_next_sync(journal: Journal, disk: SimDisk) -> None:
    """Else a file could come back from deletion longer than it was, and look damaged."""
    put(journal, 10)
    journal.synced_to(journal.sync())
    before = journal.end
    journal.stage_batch(5, batch(200), 0, 1000)
    group = journal.take()
    assert group is not None
    disk.faults[disk.operations + 1] = errno.EIO
    with pytest.raises(OSError):
        journal.write(group)
    journal.taken_back(group)
    put(journal, 20)
    journal.synced_to(journal.sync())
    sizes = {disk.crash(Random(seed)).open("0/00000000000000000000.jnl").size() for seed in range(20)}
    assert sizes == {before}


def test_a_leftover_of_a_failed_write_is_no_obstacle(journal: Journal, disk: SimDisk) -> None:
    disk.create("0/00000000000000000000.jnl").append([b"half"])
    put(journal)
    assert len(list(JournalReader(disk, 0).entries(0, 10_000))) == 2


def test_a_prepared_file_becomes_the_next_segment(journal: Journal, disk: SimDisk) -> None:
    put(journal, 100)
    assert journal.wants_next() and not journal.wants_next(), "asked for once"
    journal.prepare()
    assert disk.exists("0/next.new")
    put(journal, 300)
    first = journal.end
    disk.create(f"0/{first:020}.jnl").append([b"left by a failed write"])
    put(journal)
    assert not disk.exists("0/next.new") and JournalReader(disk, 0).bases == [0, first]
    assert [entry.kind for entry in JournalReader(disk, 0).entries(first, journal.end)] == [SEGMENT, BATCH]
    journal.sync()
    assert {JournalReader(disk.crash(Random(seed)), 0).end() for seed in range(20)} == {journal.end}


def test_without_the_prepared_file_another_one_is_made(journal: Journal, disk: SimDisk) -> None:
    put(journal, 400)
    journal.prepare()
    disk.faults[disk.operations + 1] = errno.ENOENT  # the rename's
    put(journal)
    put(journal, 400)
    assert len(JournalReader(disk, 0).bases) == 2
    journal.prepare()
    file = journal.unprepare()
    assert file is not None and journal.unprepare() is None
    put(journal)
    assert disk.exists("0/next.new")
    journal.remove_next(file)
    assert len(disk.list("0")) == len(JournalReader(disk, 0).bases) == 3
    assert len(list(JournalReader(disk, 0).entries(0, journal.end))) == 7


def test_a_disk_with_little_room_gets_no_prepared_file(disk: SimDisk) -> None:
    journal = Journal(disk, 0, epoch=1, leader=Leader(1, 1), seed=9, segments=[], end=0, segment_bytes=400)
    disk.capacity = 1500
    journal.prepare()
    assert disk.list("0") == []


def test_deletion_stops_at_the_checkpoint(journal: Journal, disk: SimDisk) -> None:
    ends = [put(journal, 400).end for _ in range(4)]
    journal.synced_to(journal.sync())
    assert journal.remove_below(ends[1] - 1) == ends[0]
    assert JournalReader(disk, 0).bases == ends[:3]
    journal.remove_below(ends[3])
    assert JournalReader(disk, 0).bases == [ends[2]]
    with pytest.raises(Fault, match="no longer holds"):
        journal.locate(0)


def test_a_segment_stays_until_its_successor_is_synced(journal: Journal, disk: SimDisk) -> None:
    """Else a power loss could leave no segment at all, which looks like a missing disk."""
    first = put(journal, 400).end
    journal.synced_to(journal.sync())
    put(journal, 400)
    assert journal.remove_below(first) == 0
    journal.synced_to(journal.sync())
    assert journal.remove_below(first) == first


def test_a_segment_that_cannot_be_removed_is_tried_again(journal: Journal, disk: SimDisk) -> None:
    """Found by chaos: it was forgotten at once, and the error cost the splitter's other reports."""
    ends = [put(journal, 400).end for _ in range(4)]
    journal.synced_to(journal.sync())
    disk.faults[disk.operations + 1] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        journal.remove_below(ends[2])
    disk.faults.clear()
    assert JournalReader(disk, 0).bases == [0, *ends[:3]]
    assert journal.remove_below(ends[2]) == ends[2]
    assert JournalReader(disk, 0).bases == [ends[2]]


def test_claims_are_found_behind_damage(journal: Journal, disk: SimDisk) -> None:
    put(journal, 50)
    journal.synced_to(journal.sync())
    synced = journal.synced
    put(journal, 50)
    disk.remove("0/synced")
    disk.damage("0/00000000000000000000.jnl", SEGMENT_ENTRY_SIZE + 40)
    reader = JournalReader(disk, 0)
    assert [entry.kind for entry in reader.entries(0, 10_000)] == [SEGMENT]
    assert look_behind(reader, SEGMENT_ENTRY_SIZE).synced == synced
    assert look_behind(reader, synced).synced == 0


def test_mending_writes_again_what_a_failed_sync_left_in_doubt(journal: Journal, disk: SimDisk) -> None:
    put(journal, 400)
    journal.synced_to(journal.sync())
    ends = [put(journal, 400).end for _ in range(3)]
    disk.faults[disk.operations + 1] = errno.EIO
    with pytest.raises(OSError):
        journal.sync()
    assert "doubt" in disk.list("0")
    assert journal.rewrite_unsynced() == ends[-1]
    assert "doubt" not in disk.list("0") and len(JournalReader(disk, 0).bases) == 4
    for seed in range(20):
        reader = JournalReader(disk.crash(Random(seed)), 0)
        assert [entry.end for entry in reader.entries(0, 10_000)][-1] == ends[-1]
    file, at = journal.locate(ends[0])
    assert file.read(at, 10) == disk.open(f"0/{ends[0]:020d}.jnl").read(0, 10)


def test_an_entry_larger_than_the_chunk_is_mended(
    journal: Journal, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cairnmq.storage.journal.journal.SCAN_BYTES", 64)
    put(journal, 10)
    put(journal, 900)
    assert journal.rewrite_unsynced() == journal.end
    assert [entry.end for entry in JournalReader(disk.crash(), 0).entries(0, 10_000)][-1] == journal.end


def test_pages_that_were_dropped_from_the_cache_are_not_mended(journal: Journal, disk: SimDisk) -> None:
    """They read as they were before, and an entry that does not read back proves that nothing can be saved."""
    put(journal, 400)
    disk.faults[disk.operations + 1] = errno.EIO
    with pytest.raises(OSError):
        journal.sync()
    disk.damage("0/00000000000000000000.jnl", 100)
    with pytest.raises(Corrupt, match="does not read back after a failed sync"):
        journal.rewrite_unsynced()
    assert "doubt" in disk.list("0")


def test_the_end_can_be_asked_of_a_reader_whose_last_segment_was_deleted(journal: Journal, disk: SimDisk) -> None:
    first = put(journal, 400).end
    reader = JournalReader(disk, 0)
    reader.refresh()
    put(journal, 400)
    journal.synced_to(journal.sync())
    journal.remove_below(first)
    assert reader.end() == first


# ------------------------------------------------------------------------------------------------------- invariants


def test_synced_end_past_the_end_is_a_defect(journal: Journal) -> None:
    put(journal)
    with pytest.raises(AssertionError):
        journal.synced_to(journal.end + 1)


def test_removal_past_the_synced_end_is_a_defect(journal: Journal) -> None:
    put(journal)
    with pytest.raises(AssertionError):
        journal.remove_below(journal.end)
    journal.synced_to(journal.end)
    journal.remove_below(journal.end)


def test_taking_back_a_written_group_is_a_defect(journal: Journal) -> None:
    group = put(journal)
    with pytest.raises(AssertionError):
        journal.taken_back(group)
