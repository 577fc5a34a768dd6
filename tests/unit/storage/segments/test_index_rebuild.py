"""Lookups around damage, and indexes made again."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.batches.batch_run import BatchPlace, walk
from cairnmq.storage.files.damage import KEPT, Damage, DamageList, Place
from cairnmq.storage.files.disk import Unreadable
from cairnmq.storage.files.format import TIME_INDEX_ENTRY
from cairnmq.storage.segments.index_rebuild import index_bytes, indexes_lie, rebuild_indexes
from cairnmq.storage.segments.segment import TIME_INDEX, find_offset, find_time
from cairnmq.testing.sim_disk import SimDisk, SimFile

DIRECTORY = "queues/t-0"
LOG = f"{DIRECTORY}/{0:020d}.log"
COUNT = 40


@pytest.fixture
def disk() -> SimDisk:
    """One segment with 40 batches of 2 records, and its indexes."""
    disk = SimDisk(Random(1))
    disk.make_dir(DIRECTORY)
    file = disk.create(LOG)
    for number in range(COUNT):
        records = [Record(0, 1000 + 2 * number + i, b"k", b"v" * 50) for i in range(2)]
        file.append([build_batch(records, base_offset=2 * number)])
    rebuild_indexes(disk, DIRECTORY, 0, 500)
    return disk


def places(disk: SimDisk) -> list[BatchPlace]:
    return list(walk(disk.open(LOG), 0))


def find(disk: SimDisk, offset: int) -> BatchPlace | None:
    return find_offset(disk, DIRECTORY, 0, disk.open(LOG), offset)


@pytest.mark.parametrize(
    ("byte", "flip"),
    [(0, 1), (7, 1), (8, 0x40), (10, 1), (11, 2), (16, 1), (23, 0x40), (26, 2), (26, 1)],
    ids=[
        "offset up",
        "offset by one",
        "length huge",
        "length up",
        "length by two",
        "magic",
        "delta",
        "delta up",
        "delta down",
    ],
)
def test_a_bad_header_hides_only_its_neighbourhood(disk: SimDisk, byte: int, flip: int) -> None:
    original = places(disk)
    bad = original[10]
    disk.damage(LOG, bad.position + byte, flip)
    hidden = []
    for place in original:
        try:
            found = find(disk, place.last_offset)
        except Damage as damage:
            hidden.append(place.base_offset)
            assert damage.place.file == LOG and damage.place.position <= bad.position + bad.size
            assert damage.place.first <= place.last_offset < damage.place.end
            continue
        if place != bad:
            assert found is not None and found.position == place.position
    assert hidden and set(hidden) <= {place.base_offset for place in original[9:15]}, hidden


def test_a_lookup_by_time_does_not_step_over_damage(disk: SimDisk) -> None:
    bad = places(disk)[20]
    disk.damage(LOG, bad.position + 70)
    file = disk.open(LOG)
    found = find_time(disk, DIRECTORY, 0, file, 1010, 80)
    assert found is not None and found.base_offset == 10
    with pytest.raises(Damage, match=f"damaged at {bad.position}: offsets 40 to 41"):
        find_time(disk, DIRECTORY, 0, file, 1040, 80)


def test_a_lookup_by_time_goes_without_an_index_that_cannot_be_read(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the entries that lead to the place are still in memory."""
    read = SimFile.read

    def fail(file: SimFile, position: int, size: int) -> bytes:
        if file.name.endswith(TIME_INDEX) and size > TIME_INDEX_ENTRY.size:
            raise Unreadable(errno.EIO, "Input/output error", file.name)
        return read(file, position, size)

    monkeypatch.setattr(SimFile, "read", fail)
    found = find_time(disk, DIRECTORY, 0, disk.open(LOG), 1040, 80)
    assert found is not None and found.base_offset == 40


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_any_bit_of_an_index_is_noticed_and_it_is_made_again(disk: SimDisk, suffix: str) -> None:
    name = f"{DIRECTORY}/{0:020d}.{suffix}"
    file = disk.open(name)
    original = file.read(0, file.size())
    assert not indexes_lie(disk, DIRECTORY, 0, 500, closed=True)
    for position in range(len(original)):
        disk.damage(name, position, 1 << position % 8)
        assert indexes_lie(disk, DIRECTORY, 0, 500, closed=True), position
        rebuild_indexes(disk, DIRECTORY, 0, 500)
        assert disk.open(name).read(0, len(original) + 1) == original
    for size in (0, len(original) // 2, len(original) - 1):
        disk.open(name, write=True).truncate(size)
        assert indexes_lie(disk, DIRECTORY, 0, 500, closed=True), size
        rebuild_indexes(disk, DIRECTORY, 0, 500)
    disk.remove(name)
    assert indexes_lie(disk, DIRECTORY, 0, 500, closed=True)


def test_an_index_of_no_batches_is_empty() -> None:
    assert index_bytes([], 0, 100) == (b"", b"")


def test_the_list_of_damage_is_bounded_and_each_place_counts_once() -> None:
    damages = DamageList()
    for number in range(KEPT + 10):
        assert damages.add(Place("f", number))
    assert not damages.add(Place("f", KEPT + 9))
    assert damages.count == KEPT + 10 and len(damages.places) == KEPT
    damages.repaired("f")
    assert not damages.places and damages.count == KEPT + 10
