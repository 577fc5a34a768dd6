"""One segment's aborted transactions: lookups by bisection, cuts, damage."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.format import Aborted, txn_index_bytes
from cairnmq.storage.queue.transactions import overlapping
from cairnmq.storage.segments.segment import TXN_INDEX, segment_name
from cairnmq.storage.segments.txn_index import ROW, Overlap, overlap, read_rows, sound_rows
from cairnmq.testing.sim_disk import SimDisk

DIRECTORY = "queues/t-0"
ROWS = [Aborted(n % 7, 10 * n, 10 * n + 9, 10 * n + 10) for n in range(300)]


def disk_with(data: bytes) -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_dir(DIRECTORY)
    disk.create(segment_name(DIRECTORY, 0, TXN_INDEX)).append([data])
    return disk


def test_the_bytes_are_kafkas() -> None:
    """Version, producer id, first offset, last offset, last stable offset."""
    row = txn_index_bytes([Aborted(5, 1, 3, 2)])
    assert row.hex() == "0000" + "0000000000000005" + "0000000000000001" + "0000000000000003" + "0000000000000002"


def test_without_a_file_there_are_none() -> None:
    assert read_rows(SimDisk(Random(1)), DIRECTORY, 0) == sound_rows(SimDisk(Random(1)), DIRECTORY, 0, 99) == []


@pytest.mark.parametrize(
    ("start", "end", "found", "complete"),
    [
        (0, 10, ROWS[:1], True),
        (0, 11, ROWS[:2], True),
        (9, 10, ROWS[:1], True),
        (10, 11, ROWS[1:2], True),
        (1505, 1521, ROWS[150:153], True),
        (2990, 3000, ROWS[299:], True),
        (2995, 3001, ROWS[299:], False),
        (3000, 3100, [], False),
        (0, 3000, ROWS, True),
    ],
)
def test_lookups(start: int, end: int, found: list[Aborted], complete: bool) -> None:
    file = disk_with(txn_index_bytes(ROWS)).open(segment_name(DIRECTORY, 0, TXN_INDEX))
    assert overlap(file, start, end, 1 << 60, closed=True, cached=False) == Overlap(found, complete)
    assert overlapping(ROWS, start, end) == found


def test_markers_that_are_not_split_yet_do_not_count() -> None:
    file = disk_with(txn_index_bytes(ROWS)).open(segment_name(DIRECTORY, 0, TXN_INDEX))
    assert overlap(file, 0, 3000, 29, closed=True, cached=False) == Overlap(ROWS[:2], False)


def test_a_row_that_is_being_written_does_not_count() -> None:
    file = disk_with(txn_index_bytes(ROWS)[:-1]).open(segment_name(DIRECTORY, 0, TXN_INDEX))
    assert overlap(file, 2980, 3000, 1 << 60, closed=True, cached=False) == Overlap(ROWS[298:299], False)


def test_a_cold_file_is_read_elsewhere() -> None:
    disk = disk_with(txn_index_bytes(ROWS))
    disk.cold = 1.0
    warm = overlap(disk.open(segment_name(DIRECTORY, 0, TXN_INDEX)), 0, 10, 1 << 60, closed=True, cached=True)
    assert isinstance(warm, NotCached)
    warm.load()


@pytest.mark.parametrize("row", [Aborted(1, 0, 0, 1), Aborted(1, 5, 3, 4), Aborted(-1, 0, 5, 6), Aborted(1, 0, 5, 9)])
def test_what_cannot_be_a_row_is_damage(row: Aborted) -> None:
    disk = disk_with(txn_index_bytes([*ROWS[:2], row]))
    with pytest.raises(Damage) as raised:
        read_rows(disk, DIRECTORY, 0)
    assert (raised.value.place.file, raised.value.place.position) == (segment_name(DIRECTORY, 0, TXN_INDEX), 2 * ROW)
    assert sound_rows(disk, DIRECTORY, 0, 1 << 60) == ROWS[:2]


def test_another_version_is_damage() -> None:
    with pytest.raises(Damage):
        read_rows(disk_with(b"\0\1" + txn_index_bytes(ROWS[:1])[2:]), DIRECTORY, 0)


def test_rows_behind_a_crash_are_left_out() -> None:
    assert sound_rows(disk_with(txn_index_bytes(ROWS)), DIRECTORY, 0, 29) == ROWS[:2]


def test_a_torn_end_of_an_open_segment_does_not_count() -> None:
    torn = txn_index_bytes(ROWS[:20]) + bytes(3 * ROW)
    file = disk_with(torn).open(segment_name(DIRECTORY, 0, TXN_INDEX))
    assert overlap(file, 0, 5000, 1 << 60, closed=False, cached=False) == Overlap(ROWS[:20], False)
    assert overlap(file, 195, 5000, 1 << 60, closed=False, cached=False) == Overlap(ROWS[19:20], False)
    with pytest.raises(Damage):
        overlap(file, 195, 5000, 1 << 60, closed=True, cached=False)


@pytest.mark.parametrize("closed", [True, False])
def test_a_bad_row_before_a_good_one_is_damage(closed: bool) -> None:
    data = txn_index_bytes(ROWS[:9]) + bytes(ROW) + txn_index_bytes(ROWS[10:20])
    file = disk_with(data).open(segment_name(DIRECTORY, 0, TXN_INDEX))
    for start in (0, 95):
        with pytest.raises(Damage) as raised:
            overlap(file, start, 5000, 1 << 60, closed=closed, cached=False)
        assert raised.value.place.position == 9 * ROW
