"""Packs: written in one go, looked up by queue, offset and time, merged; every damaged byte is noticed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.codec.batch import set_offset_and_epoch
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt
from cairnmq.storage.batches.batch_run import NotCached, Part, Wanted
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.format import BATCH, EXTENT, PACK_HEAD_SIZE, Entry, PackLabel, pack_name
from cairnmq.storage.maintenance.pack_merge import MergeJob, PackSize, plan
from cairnmq.storage.packs import pack as pack_module
from cairnmq.storage.packs import pack_set
from cairnmq.storage.packs.pack import PackReader, PackWriter
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.testing.sim_disk import SimDisk

MB = 1 << 20


def batch(offset: int, count: int = 1, timestamp: int = 0, size: int = 10) -> Entry:
    records = [Record(offset=n, timestamp=timestamp, key=None, value=bytes(size)) for n in range(count)]
    data = bytearray(build_batch(records))
    set_offset_and_epoch(memoryview(data), offset, 1)
    last = offset + count - 1
    return Entry(0, 0, BATCH, 1, 0, 0, memoryview(data), offset, last, max_timestamp=timestamp)


def write(disk: SimDisk, number: int, queues: dict[int, list[Entry]]) -> None:
    writer = PackWriter(disk, PackLabel(number, 7))
    for queue_id in sorted(queues):
        writer.add_batches(queue_id, queues[queue_id])
    writer.finish()
    writer.file.sync()


def read_all(live_packs: PackSet, queue_id: int, start: int, end: int, size: int = 1000) -> bytes:
    found = b""
    while start < end:
        part = live_packs.read(queue_id, Wanted(start, end, 1, size), whole=True, cached=False)
        assert isinstance(part, Part) and len(part.data)
        found += bytes(part.data)
        start = part.next_offset
    return found


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def test_finds_by_offset(disk: SimDisk) -> None:
    write(disk, 1, {3: [batch(0, 2), batch(2, 3)], 9: [batch(7)]})
    pack = PackReader.open(disk, 1)
    found = pack.find(3, 4)
    assert not isinstance(found, bool)
    assert (found.base_offset, found.end_offset, found.batches) == (0, 5, 2)
    assert [pack.find(3, 5), pack.find(4, 0), pack.find(9, 6), pack.find(1, 0), pack.find(10, 0)] == [False] * 5
    assert pack.find(9, 7) is not False


def test_a_large_run_is_several_extents(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_module, "EXTENT_BYTES", 200)
    entries = [batch(n) for n in range(500)]
    write(disk, 1, {2: [batch(0)], 5: entries, 6: [batch(3)]})
    pack = PackReader.open(disk, 1)
    assert len(pack.of_queue(5)) == 167  # more than one entry of the sparse table
    for offset in (0, 1, 250, 499):
        found = pack.find(5, offset)
        assert not isinstance(found, bool) and found.base_offset <= offset < found.end_offset
    assert [e.base_offset for e in pack.of_queue(6)] == [3] and [e.base_offset for e in pack.of_queue(2)] == [0]
    live_packs = PackSet(disk, [1])
    assert read_all(live_packs, 5, 0, 500) == b"".join(bytes(e.payload) for e in entries)


def test_a_fetch_into_the_middle_gets_the_whole_batch(disk: SimDisk) -> None:
    entries = [batch(0, 3), batch(3, 3)]
    write(disk, 1, {1: entries})
    part = PackSet(disk, [1]).read(1, Wanted(4, 6, 1, 1), whole=True, cached=False)
    assert isinstance(part, Part)
    assert bytes(part.data) == bytes(entries[1].payload) and part.next_offset == 6


def test_what_does_not_fit_is_left_out_unless_it_is_the_first(disk: SimDisk) -> None:
    entries = [batch(0), batch(1)]
    write(disk, 1, {1: entries})
    size = len(entries[0].payload)
    part = PackSet(disk, [1]).read(1, Wanted(0, 2, 1, size + 10), whole=False, cached=False)
    assert isinstance(part, Part) and len(part.data) == size
    part = PackSet(disk, [1]).read(1, Wanted(0, 2, 1, size - 1), whole=False, cached=False)
    assert isinstance(part, Part) and not len(part.data)


def test_a_cached_read_never_waits(disk: SimDisk) -> None:
    write(disk, 1, {1: [batch(0), batch(1)]})
    live_packs = PackSet(disk, [1])
    disk.cold = 1.0
    warm = live_packs.read(1, Wanted(0, 2, 1, 1000), whole=True, cached=True)
    assert isinstance(warm, NotCached)
    warm.load()
    disk.cold = 0.0
    assert isinstance(live_packs.read(1, Wanted(0, 2, 1, 1000), whole=True, cached=True), Part)


def test_finds_by_time(disk: SimDisk) -> None:
    write(disk, 1, {1: [batch(0, timestamp=10), batch(1, timestamp=30)]})
    write(disk, 2, {1: [batch(2, timestamp=20), batch(3, timestamp=40)]})
    live_packs = PackSet(disk, [1, 2])

    def found(timestamp: int, start: int = 0, limit: int = 4) -> int | None:
        place = live_packs.find_time(1, timestamp, start, limit)
        return place.base_offset if place is not None else None

    assert [found(t) for t in (0, 10, 11, 31, 41)] == [0, 0, 1, 3, None]
    assert found(5, start=2) == 2 and found(35, limit=3) is None
    assert live_packs.largest_timestamp(1, 0) == 40 and live_packs.largest_timestamp(2, 0) == -1


def test_an_offset_no_pack_holds_is_damage(disk: SimDisk) -> None:
    write(disk, 1, {1: [batch(0)]})
    with pytest.raises(Corrupt, match="no pack holds offset 1 of queue 1"):
        PackSet(disk, [1]).read(1, Wanted(1, 2, 1, 100), whole=True, cached=False)


def test_every_byte_is_covered(disk: SimDisk) -> None:
    write(disk, 1, {1: [batch(0, 2)], 2: [batch(5)]})
    size = disk.open(pack_name(1)).size()
    for position in range(size):
        other = SimDisk(Random(1))
        write(other, 1, {1: [batch(0, 2)], 2: [batch(5)]})
        other.damage(pack_name(1), position)
        with pytest.raises(Corrupt):
            pack = PackReader.open(other, 1)
            for extent in pack:
                pack.data(extent)


def test_a_table_that_rots_while_the_pack_is_open_is_noticed(disk: SimDisk) -> None:
    """A row says whose records they are: believed as it is, one queue's would be served as another's."""
    write(disk, 1, {4: [batch(0, 2)], 5: [batch(0, 2)]})
    write(disk, 2, {5: [batch(2)]})
    for position in range(PackReader.open(disk, 1).table, PackReader.open(disk, 1).table + 2 * EXTENT.size):
        live_packs = PackSet(disk, [1, 2])
        pack = live_packs.packs[0]
        disk.damage(pack.name, position)
        for act in (partial(pack.find, 4, 0), partial(pack.of_queue, 5), partial(list, pack)):
            with pytest.raises(Damage, match="table of extents"):
                act()
        with pytest.raises(Damage) as told:
            live_packs.read(4, Wanted(0, 2, 1, 1000), whole=True, cached=False)
        assert told.value.place == Place(pack.name, pack.table, "4", 0)
        assert read_all(live_packs, 5, 2, 3), "the other pack is as good as ever"
        job = MergeJob(disk, live_packs.packs, PackLabel(3, 7), lambda queue_id: 0)
        with pytest.raises(Damage):
            job.step(MB)
        job.abandon()
        assert live_packs.check(2) is not None and live_packs.check(1) is None and list(live_packs.broken) == [1]
        disk.damage(pack.name, position)


def test_a_pack_that_was_cut_is_damage(disk: SimDisk) -> None:
    write(disk, 1, {1: [batch(0)]})
    file = disk.open(pack_name(1), write=True)
    for size in range(file.size() - 1, -1, -7):
        file.truncate(size)
        with pytest.raises(Corrupt):
            PackReader.open(disk, 1)


def test_a_new_pack_that_cannot_be_opened_costs_only_its_own_records(disk: SimDisk) -> None:
    write(disk, 1, {7: [batch(0)]})
    write(disk, 2, {7: [batch(1)]})
    name = pack_name(2)
    whole = disk.open(name).size()
    disk.open(name, write=True).truncate(whole - 1)
    live_packs = PackSet(disk, [1])
    live_packs.add(2)
    assert (live_packs.numbers, list(live_packs.broken)) == ([1, 2], [2])
    assert read_all(live_packs, 7, 0, 1) == batch(0).payload
    with pytest.raises(Damage):
        read_all(live_packs, 7, 1, 2)


# -------------------------------------------------------------------------------------------------------- merging


def sizes(*packs: tuple[int, int]) -> list[PackSize]:
    return [PackSize(number, size, dead) for number, (size, dead) in enumerate(packs, 1)]


def test_plan_merges_neighbours_of_a_size() -> None:
    small = (MB // 2, 0)
    assert plan(sizes(*[small] * 7)) == []
    assert plan(sizes(*[small] * 8)) == list(range(1, 9))
    # a large one between them parts the run
    assert plan(sizes(*[small] * 4, (100 * MB, 0), *[small] * 4)) == []
    # small ones first, whatever larger ones there are
    assert plan(sizes(*[(20 * MB, 0)] * 8, *[small] * 8)) == list(range(9, 17))
    assert plan(sizes(*[(20 * MB, 0)] * 8, small)) == list(range(1, 9))


def test_plan_makes_nothing_larger_than_the_limit() -> None:
    assert plan(sizes(*[(300 * MB, 0)] * 20)) == []
    assert plan(sizes(*[(100 * MB, 0)] * 10), bytes_max=1000 * MB) == list(range(1, 9))


def test_plan_writes_mostly_dead_packs_again() -> None:
    assert plan(sizes((10 * MB, 6 * MB), (10 * MB, 0))) == [1]
    assert plan(sizes((10 * MB, 4 * MB))) == []


def merge(disk: SimDisk, live_packs: PackSet, count: int, number: int, starts: dict[int, int | None]) -> MergeJob:
    job = MergeJob(disk, live_packs.packs[:count], PackLabel(number, 7), lambda queue_id: starts.get(queue_id, 0))
    while not job.step(300):
        pass
    return job


def test_a_merge_leaves_the_dead_behind(disk: SimDisk) -> None:
    write(disk, 1, {1: [batch(0)], 2: [batch(0)], 3: [batch(0)]})
    write(disk, 2, {1: [batch(1)], 2: [batch(1)], 3: [batch(1)]})
    job = merge(disk, PackSet(disk, [1, 2]), 2, 3, {2: None, 3: 1})
    assert job.inputs == [1, 2] and job.output == 3
    held = [(e.queue_id, e.base_offset, e.end_offset) for e in PackReader.open(disk, 3)]
    assert held == [(1, 0, 2), (3, 1, 2)]


def test_a_merge_of_nothing_alive_makes_no_pack(disk: SimDisk) -> None:
    write(disk, 1, {1: [batch(0)]})
    job = merge(disk, PackSet(disk, [1]), 1, 2, {1: None})
    assert job.output is None and not disk.exists(pack_name(2))


def test_a_merge_stops_at_damage(disk: SimDisk) -> None:
    write(disk, 1, {1: [batch(0)]})
    live_packs = PackSet(disk, [1])
    disk.damage(pack_name(1), PACK_HEAD_SIZE + 30)
    with pytest.raises(Corrupt, match="offset 0 of queue 1"):
        merge(disk, live_packs, 1, 2, {})


@given(st.data())
@settings(max_examples=60)
def test_what_was_packed_reads_back_however_it_is_merged(data: st.DataObject) -> None:
    disk = SimDisk(Random(1))
    held: dict[int, list[Entry]] = {}
    numbers: list[int] = []
    next_number = 1
    for _ in range(data.draw(st.integers(1, 6))):
        queues: dict[int, list[Entry]] = {}
        for queue_id in data.draw(st.sets(st.integers(1, 4), min_size=1)):
            for _ in range(data.draw(st.integers(1, 3))):
                before = held.setdefault(queue_id, [])
                entry = batch(before[-1].last_offset + 1 if before else 0, data.draw(st.integers(1, 3)))
                before.append(entry)
                queues.setdefault(queue_id, []).append(entry)
        write(disk, next_number, queues)
        numbers.append(next_number)
        next_number += 1
        if len(numbers) > 1 and data.draw(st.booleans()):
            first = data.draw(st.integers(0, len(numbers) - 2))
            last = data.draw(st.integers(first + 2, len(numbers)))
            live_packs = PackSet(disk, numbers[first:last])
            job = merge(disk, live_packs, last - first, next_number, {})
            assert job.output == next_number
            numbers[first:last] = [next_number]
            next_number += 1
    live_packs = PackSet(disk, numbers)
    for queue_id, entries in held.items():
        rest = entries[data.draw(st.integers(0, len(entries) - 1)) :]
        offset = data.draw(st.integers(rest[0].base_offset, rest[0].last_offset))
        want = b"".join(bytes(entry.payload) for entry in rest)
        size = data.draw(st.sampled_from((1, 100, 10_000)))
        assert read_all(live_packs, queue_id, offset, entries[-1].last_offset + 1, size) == want


def test_packs_come_and_go_while_readers_remember_places(disk: SimDisk) -> None:
    """Cold reads have threads of their own."""
    write(disk, 1, {1: [batch(0)]})
    live_packs = PackSet(disk, [1])
    (pack,) = live_packs.packs
    ended = threading.Event()

    def remember() -> None:
        offset = 0
        while not ended.is_set():
            offset += 1
            live_packs._keep(1, offset, (pack, 0, 0, 0))

    thread = threading.Thread(target=remember)
    thread.start()
    try:
        for _ in range(300):
            live_packs.replace([1])
    finally:
        ended.set()
        thread.join()


def test_what_is_remembered_of_very_many_queues_is_bounded_while_others_look_too(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(dict[int, int]):
        """Another thread puts something in whenever this one looks for the oldest."""

        def __iter__(self) -> Iterator[int]:
            oldest = super().__iter__()
            if len(self) < 8:
                self[-len(self)] = 0
            return oldest

    write(disk, 1, {queue_id: [batch(0)] for queue_id in range(1, 41)})
    monkeypatch.setattr(pack_set, "PLACES_KEPT", 4)
    live_packs = PackSet(disk, [1])
    live_packs._last = Busy()
    for queue_id in range(1, 41):
        assert live_packs._remember(queue_id, 0) is not None
    assert len(live_packs._last) <= 4
