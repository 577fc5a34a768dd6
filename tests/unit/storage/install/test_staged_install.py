"""What arrives is checked, goes into packs, and says nothing of the leader's files."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.codec.batch import empty_batch, read_header, set_offset_and_epoch
from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.files.checkpoint_frame import checkpoint_frame
from cairnmq.storage.files.format import (
    PACKED,
    PART,
    SEGMENTED,
    Aborted,
    CheckpointRows,
    CompactionRow,
    JournalMark,
    KeyedRow,
    QueueRow,
    pack_name,
)
from cairnmq.storage.install import staged_install
from cairnmq.storage.install.install_files import install_directory, read_install
from cairnmq.storage.install.staged_install import StagedInstall
from cairnmq.storage.packs.pack import PackReader
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.replica_harness import batch

MARK = JournalMark(4, 70, 70, 3, 9)
ROW = QueueRow(1, 0, 4, homes=SEGMENTED, packed_bytes=7, compaction=CompactionRow(2, 2), row_sums=((0, (1, 1)),))
OTHER = QueueRow(2, 0, 2)


def records(first: int, count: int = 1) -> bytes:
    data = bytearray(batch(count))
    data[:8] = first.to_bytes(8, "big")
    return bytes(data)


def begun(disk: SimDisk, **settings: int) -> StagedInstall:
    staged = StagedInstall(disk, 4, 0, **settings)
    rows = CheckpointRows(queues=[ROW, OTHER], keyed=[KeyedRow(50, "offsets", b"g", b"v")])
    staged.add_rows(checkpoint_frame(PART, rows))
    return staged


def extents(disk: SimDisk, number: int) -> list[tuple[int, int, int]]:
    reader = PackReader(disk.open(pack_name(number, install_directory(4))), number)
    return [(extent.queue_id, extent.base_offset, extent.end_offset) for extent in reader]


def test_rows_say_nothing_of_the_files_of_the_leader() -> None:
    disk = SimDisk(Random(1))
    staged = begun(disk)
    assert staged.add_run(1, 0, records(0, 2) + records(2, 2), rewritable=False) == 4
    staged.end_queue(1, 0, [Aborted(8, 0, 1, 2), Aborted(8, 3, 9, 9)])
    assert staged.add_run(2, 0, records(0, 2), rewritable=False) == 2
    staged.end_queue(2, 0, [])
    staged.complete(MARK, 5)
    image = read_install(disk, 4)
    assert image is not None
    row = image.queues[1]
    assert row.homes == PACKED and row.compaction == CompactionRow() and row.row_sums == ()
    assert row.aborted == (Aborted(8, 0, 1, 2),) and row.packed_bytes > 100
    assert image.keyed == {("offsets", b"g"): KeyedRow(50, "offsets", b"g", b"v")}
    assert extents(disk, image.packs[0]) == [(1, 0, 4), (2, 0, 2)]


def test_batches_behind_the_end_of_the_row_are_left_out() -> None:
    staged = begun(SimDisk(Random(1)))
    assert staged.add_run(2, 0, records(0, 2) + records(2, 2), rewritable=False) == 2


def test_a_log_start_that_has_moved_is_taken_over() -> None:
    staged = begun(SimDisk(Random(1)))
    staged.add_run(1, 2, records(2, 2), rewritable=False)
    staged.end_queue(1, 3, [Aborted(8, 0, 1, 2)])
    assert staged.image.queues[1].log_start == 3 and staged.image.queues[1].aborted == ()
    staged.end_queue(2, 99, [])
    assert staged.image.queues[2].log_start == 2


@pytest.mark.parametrize("position", [0, 16, 30, 60])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    data = bytearray(records(0, 2))
    data[position] ^= 1
    with pytest.raises(Corrupt):
        begun(SimDisk(Random(1))).add_run(1, 0, data, rewritable=False)


def test_batches_that_do_not_go_on_are_noticed() -> None:
    with pytest.raises(Corrupt):
        begun(SimDisk(Random(1))).add_run(1, 0, records(0) + records(2), rewritable=False)


def test_damaged_rows_are_noticed() -> None:
    frame = bytearray(checkpoint_frame(PART, CheckpointRows(queues=[ROW])))
    frame[-1] ^= 1
    with pytest.raises(Corrupt):
        StagedInstall(SimDisk(Random(1)), 4, 0).add_rows(frame)


def test_packs_are_bounded() -> None:
    disk = SimDisk(Random(1))
    staged = begun(disk, pack_bytes=100)
    offset = 0
    while offset < 4:
        offset = staged.add_run(1, offset, records(offset), rewritable=False)
    staged.complete(MARK, 5)
    image = read_install(disk, 4)
    assert image is not None and [extents(disk, number) for number in image.packs] == [
        [(1, at, at + 1)] for at in range(4)
    ]


@pytest.mark.parametrize("spool_bytes", [1 << 20, 10])
def test_a_compacted_queue_that_begins_again_is_there_once(spool_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_install, "SPOOL_BYTES", spool_bytes)
    disk = SimDisk(Random(1))
    staged = begun(disk)
    staged.add_run(1, 0, records(0, 2), rewritable=True)
    staged.restart(1)
    assert staged.add_run(1, 0, records(0, 3), rewritable=True) == 3
    assert staged.add_run(1, 3, records(3), rewritable=True) == 4
    staged.end_queue(1, 0, [])
    staged.add_run(2, 0, records(0, 2), rewritable=False)
    staged.complete(MARK, 5)
    image = read_install(disk, 4)
    assert image is not None
    found = [extent for number in image.packs for extent in extents(disk, number)]
    assert [extent for extent in found if extent[0] == 2] == [(2, 0, 2)]
    own = [extent for extent in found if extent[0] == 1]
    assert own[0][1] == 0 and own[-1][2] == 4 and all(a[2] == b[1] for a, b in zip(own, own[1:], strict=False))


def test_a_queue_that_was_deleted_has_no_row() -> None:
    disk = SimDisk(Random(1))
    staged = begun(disk)
    staged.drop_queue(2)
    staged.complete(MARK, 5)
    image = read_install(disk, 4)
    assert image is not None and set(image.queues) == {1}


def test_what_is_abandoned_leaves_nothing() -> None:
    disk = SimDisk(Random(1))
    staged = begun(disk)
    staged.add_run(1, 0, records(0, 2), rewritable=False)
    staged.abandon()
    assert disk.list(install_directory(4)) == []


def test_an_empty_batch_across_the_end_is_cut_there() -> None:
    """Compaction put it in the place of batches on both sides, after the leader's checkpoint."""
    disk = SimDisk(Random(1))
    staged = begun(disk)
    empty = empty_batch(2, 9, 70)
    set_offset_and_epoch(empty, 2, 3)
    assert staged.add_run(1, 0, records(0, 2) + bytes(empty), rewritable=True) == 4
    staged.end_queue(1, 0, [])
    staged.complete(MARK, 5)
    image = read_install(disk, 4)
    assert image is not None and extents(disk, image.packs[0]) == [(1, 0, 4)]
    reader = PackReader(disk.open(pack_name(image.packs[0], install_directory(4))), image.packs[0])
    data = reader.data(next(iter(reader)))
    last = read_header(data, len(records(0, 2)))
    assert (last.base_offset, last.last_offset, last.leader_epoch, last.count) == (2, 3, 3, 0)


def test_records_across_the_end_are_refused() -> None:
    with pytest.raises(Corrupt, match="goes beyond 2"):
        begun(SimDisk(Random(1))).add_run(2, 0, records(0, 3), rewritable=True)


def test_a_queue_that_becomes_a_compacted_one_ends_the_install() -> None:
    """Its first batches are in a pack with others, and cannot be left out of it."""
    staged = begun(SimDisk(Random(1)))
    staged.add_run(1, 0, records(0, 2), rewritable=False)
    with pytest.raises(Fault, match="became a compacted one"):
        staged.restart(1)


def test_what_must_stay_free_on_the_disk_stays_free() -> None:
    disk = SimDisk(Random(1))
    staged = begun(disk, free_min=1 << 20)
    other = disk.create("other")
    disk.capacity = (1 << 20) + 4000
    with pytest.raises(Fault, match="1048576 must stay free"):
        for _ in range(100):
            staged.add_run(1, 0, records(0, 4), rewritable=True)
            staged.restart(1)
            other.append([bytes(1000)])
