"""Compaction of queue logs on simulated disks: what remains, how it takes its place, and what it never touches."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.compaction import job as compaction_job
from cairnmq.storage.compaction.compactor import FAILED_REST_MS
from cairnmq.storage.compaction.pack_compaction import DirtyQueue, packs_to_compact
from cairnmq.storage.compaction.queue_job import CannotCompact
from cairnmq.storage.compaction.sieve import Sieve
from cairnmq.storage.files.disk import Unreadable
from cairnmq.storage.files.format import IDENTITY_FILE, QueueIdentity
from cairnmq.storage.live.write_path import Placed
from cairnmq.storage.maintenance.pack_merge import MergeJob
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.segments.segment import CLEANED
from cairnmq.testing.sim_disk import SimFile
from cairnmq.types import Buffer
from unit.storage.compaction_harness import DAY, Room, settle, strikes
from unit.storage.splitter_harness import NOW


def test_the_newest_of_each_key_stays() -> None:
    room = Room()
    room.fill(12)
    before, state = len(room.segments()), room.state()
    room.compact()
    assert room.state() == state == {f"k{key}": "11" for key in range(5)}
    keys = [key for _, key, _ in room.closed()]
    assert len(keys) == len(set(keys)) <= 5
    assert len(room.segments()) < before
    assert room.findings() == []
    assert [name for name in room.read_disk.list("queues/t-1") if name.endswith(CLEANED)] == []
    row = load_checkpoint(room.read_disk).queues[1].compaction
    assert row.clean_end == row.rewritten_end == int(room.segments()[-1][:20])


def test_a_reader_in_a_gap_gets_the_next_record() -> None:
    room = Room()
    room.fill(12)
    room.compact()
    offsets = [offset for offset, _, _ in room.records()]
    for start in range(room.engine.queues[1].high_watermark):
        batches = room.batches(start)
        first = read_header(batches[0])
        assert first.base_offset <= start <= first.last_offset
        found = [r.offset for batch in batches for r in decode_batch(batch) if r.offset >= start]
        assert found == [offset for offset in offsets if offset >= start]


def test_lookups_by_time_find_what_is_left() -> None:
    room = Room()
    for turn in range(20):
        room.send(("k", f"{turn}" + "." * 60), timestamp=NOW + turn)
    room.split()
    room.checkpoint()
    room.compact()
    left = [r for batch in room.batches() for r in decode_batch(batch)]
    assert len(left) < 8
    queue = room.engine.queues[1]
    for time in range(NOW - 1, NOW + 21):
        found = room.engine.reads.find_time(queue, time, room.engine.reads.find_in_log(queue, time))
        expected = next((r for r in left if r.timestamp >= time), None)
        assert (found.offset if found else None) == (expected.offset if expected else None)
    newest = room.engine.reads.newest_in_log(queue)()
    assert newest is not None and newest.timestamp == NOW + 19


def test_it_goes_on_where_it_stopped_also_after_a_restart() -> None:
    room = Room()
    room.fill(10)
    room.compact()
    for epoch in (2, 3):
        room.start(epoch)
        room.fill(10)
        room.compact()
        assert room.state() == {f"k{key}": "9" for key in range(5)}
        keys = [key for _, key, _ in room.closed()]
        assert len(keys) == len(set(keys)), "some key is there twice"
        assert room.findings() == []


def test_nothing_is_done_twice() -> None:
    room = Room()
    room.fill(12)
    room.compact()
    passes = room.maintenance.compactor.tally.passes
    room.compact()
    assert room.maintenance.compactor.tally.passes == passes == 1


def test_a_checkpoint_in_the_middle_of_a_pass_does_not_end_it() -> None:
    """What was given by then takes its place; the rest follows."""
    room = Room()
    for turn in range(3):
        for key in range(0, 40, 2):
            room.send((f"k{key}", f"{turn}" + "." * 30), (f"k{key + 1}", f"{turn}" + "." * 30))
            room.send(("often", f"{turn} {key}"))
    room.split()
    room.checkpoint()
    state, counted = room.state(), 0
    room.maintenance.look(room.now)
    while room.maintenance.compactor.step(room.now, 1):
        room.checkpoint()
        counted = max(counted, load_checkpoint(room.read_disk).queues[1].compaction.rewritten_end)
    assert room.maintenance.compactor.tally.passes == 1
    room.checkpoint()
    done = load_checkpoint(room.read_disk).queues[1].compaction
    assert 0 < counted < done.rewritten_end == done.clean_end
    keys = [key for _, key, _ in room.closed()]
    assert len(keys) == len(set(keys)) and room.state() == state
    assert room.findings() == []


def test_a_small_map_takes_several_passes() -> None:
    room = Room()
    room.maintenance.compactor.keys_max = 7
    for turn in range(4):
        for key in range(20):
            room.send((f"k{key}", f"{turn}" + "." * 30))
    room.split()
    room.checkpoint()
    for _ in range(60):
        room.tend()
    assert room.maintenance.compactor.tally.passes > 5
    assert room.maintenance.compactor.tally.keys_peak <= 7
    assert room.state() == {f"k{key}": "3" for key in range(20)}
    keys = [key for _, key, _ in room.closed()]
    assert len(keys) == len(set(keys))


def test_a_tombstone_goes_after_its_time() -> None:
    room = Room(delete_retention_ms=DAY)
    room.fill(3)
    room.send(("k1", None), ("k2", "new" + "." * 50))
    room.fill(6, keys=1)
    room.compact()
    assert ("k1", None) in [row[1:] for row in room.closed()]
    assert "k1" not in room.state()
    room.now += DAY - 1
    room.fill(6, keys=1)
    room.compact()
    assert ("k1", None) in [row[1:] for row in room.closed()]
    room.now += 1
    room.fill(6, keys=1)
    room.compact()
    assert "k1" not in [row[1] for row in room.records()]
    assert room.state()["k2"] == "new"


def test_producers_keep_their_sequence() -> None:
    room = Room()
    for sequence in range(12):
        room.send(("k", f"{sequence}" + "." * 60), producer_id=5, producer_epoch=0, base_sequence=sequence)
    room.fill(6)
    room.compact()
    room.compact()
    ours = [read_header(batch) for batch in room.batches() if read_header(batch).producer_id == 5]
    assert ours[-1].base_sequence == 11
    assert room.findings() == []
    room.start(2)
    room.send(("k", "12"), producer_id=5, producer_epoch=0, base_sequence=12)
    assert room.state()["k"] == "12"


def test_readers_that_hold_old_files_go_on() -> None:
    """A pass is published while a reader is in the middle; old files go only when the broker has said so."""
    room = Room()
    room.fill(12)
    queue = room.engine.queues[1]
    state = room.state()
    room.maintenance.look(NOW)
    while room.maintenance.compact(NOW):
        pass
    published = room.splitter.checkpoint(NOW)
    assert room.state() == state  # with the reader of before
    assert [(place.queue_id, place.segments_from) for place in published.moved] == [(1, 0)]
    reader = queue.reader
    room.engine.on_checkpoint(published)
    assert queue.reader is not reader
    assert room.state() == state
    room.splitter.seen(published.serial)
    assert room.state() == state
    assert load_checkpoint(room.read_disk).queues[1].compaction.swaps != ()
    room.checkpoint()
    assert load_checkpoint(room.read_disk).queues[1].compaction.swaps == ()
    room.start(2)
    assert room.state() == state


def test_any_of_the_old_segments_may_be_left() -> None:
    """A power loss undoes some removals, and not those before or behind them."""
    room = Room()
    room.fill(24)
    state = room.state()
    while room.maintenance.compact(NOW):
        pass
    room.splitter.checkpoint(NOW)
    swap = max(load_checkpoint(room.read_disk).queues[1].compaction.swaps, key=len)
    assert len(swap) > 2
    for base in swap[2:]:
        room.read_disk.remove(f"queues/t-1/{base:020d}.log")
    room.start(2)
    assert room.state() == state
    room.fill(1)
    assert room.findings() == []


@pytest.mark.parametrize("power", [False, True])
def test_stopped_at_every_point(power: bool) -> None:
    """The machine stops in the middle of each disk operation of a pass; nothing is lost, and it is done in the end."""
    countdown = 0
    finished = False
    while not finished:
        countdown += 1
        room = Room()
        room.fill(8)
        room.send(("k1", None))
        room.fill(6, keys=1)
        state = room.state()
        finished = not strikes(room, countdown)
        room.stop(Random(countdown), power=power)
        assert room.findings() == [], countdown
        room.start(2)
        assert room.state() == state, countdown
        room.fill(6, keys=1)
        for _ in range(2):
            room.compact()
        assert room.state() == {**state, "k0": "5"}, countdown
        room.checkpoint()
        keys = [key for _, key, _ in room.closed()]
        assert len(keys) == len(set(keys)), countdown
        assert room.findings() == [], countdown
        orphaned_offsets = [name for name in room.read_disk.list("queues/t-1") if name.endswith(CLEANED)]
        assert orphaned_offsets == [], countdown
    assert countdown > 30


def test_a_deleted_queue_ends_its_pass() -> None:
    room = Room()
    room.fill(12)
    room.maintenance.look(NOW)
    room.maintenance.compactor.step(NOW, 1)
    spec = room.specs.pop(1)
    room.engine.drop_queues([1])
    room.splitter.drop([(1, spec.directory)])
    while room.maintenance.compact(NOW):
        pass
    room.checkpoint()
    assert room.read_disk.list("queues") == []


def test_a_topic_that_is_no_longer_compacted_ends_its_pass() -> None:
    room = Room()
    room.fill(12)
    before = room.records()
    room.maintenance.look(NOW)
    room.maintenance.compactor.step(NOW, 1)
    room.configure(1, compact=False)
    while room.maintenance.compact(NOW):
        pass
    room.checkpoint()
    assert room.records() == before


def test_damage_stops_the_pass_and_is_named() -> None:
    room = Room()
    room.fill(12)
    name = f"queues/t-1/{room.segments()[2]}"
    file = room.read_disk.open(name, write=True)
    data = bytearray(file.read(0, file.size()))
    data[100] ^= 1
    room.read_disk.replace(name, bytes(data))
    room.maintenance.look(NOW)
    while room.maintenance.compact(NOW):
        pass
    assert [place.file for _, place in room.splitter.damages] == [name]
    assert room.maintenance.compactor.tally.passes == 0


def test_what_was_compacted_is_never_mended_from_journals() -> None:
    """The journals still hold everything, but not what is left of it."""
    room = Room()
    room.fill(12)
    room.compact()
    repairer = Repairer(room.splitter)
    first, last = (f"queues/t-1/{name}" for name in (room.segments()[0], room.segments()[-1]))
    with pytest.raises(Corrupt, match="was compacted"):
        repairer.repair_segment(1, first)
    repairer.repair_segment(1, last)
    assert room.findings() == []


def test_a_full_disk_only_delays_it() -> None:
    room = Room()
    room.fill(12)
    state = room.state()
    room.maintenance.look(NOW)
    room.read_disk.faults[room.read_disk.operations + 3] = errno.ENOSPC
    while room.maintenance.compact(NOW):
        pass
    assert room.maintenance.compactor.tally.passes == 0
    assert [name for name in room.read_disk.list("queues/t-1") if name.endswith(CLEANED)] == []
    room.compact()
    assert room.maintenance.compactor.tally.passes == 0, "it rests for a while"
    room.now += 60_000
    room.tend()
    assert room.maintenance.compactor.tally.passes == 1
    assert room.state() == state


def no_strain(sieve: Sieve, batch: Buffer) -> Buffer | None:
    raise RuntimeError("a defect")


def test_a_pass_that_fails_ends_for_its_queue_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    room.fill(12)
    state = room.state()
    room.maintenance.look(room.now)
    monkeypatch.setattr(Sieve, "strain", no_strain)
    with pytest.raises(CannotCompact, match="queues/t-1 .*RuntimeError"):
        room.compact()
    assert [name for name in room.read_disk.list("queues/t-1") if name.endswith(CLEANED)] == []
    monkeypatch.undo()
    room.now += FAILED_REST_MS - 1
    room.compact()
    assert room.maintenance.compactor.tally.passes == 0, "it rests for a while"
    room.now += 1
    room.tend()
    assert room.maintenance.compactor.tally.passes == 1
    assert room.state() == state


def tombstones() -> Room:
    room = Room(segment_bytes=1000, delete_retention_ms=1 << 50)
    for number in range(15):
        room.send(*((f"k{number}-{key}", None) for key in range(10)))
    room.split()
    room.checkpoint()
    return room


def test_a_pass_ends_before_a_segment_is_too_large_for_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    room = tombstones()
    room.compact()
    size = max(room.read_disk.open(f"queues/t-1/{name}").size() for name in room.segments()[:-1])
    assert size > 1000, "they grow by their horizons"
    monkeypatch.setattr(compaction_job, "SEGMENT_BYTES_MAX", size)
    room = tombstones()
    records, files = room.records(), sorted(room.read_disk.list("queues/t-1"))
    room.compact()
    assert room.maintenance.compactor.tally.passes == 1
    monkeypatch.setattr(compaction_job, "SEGMENT_BYTES_MAX", size - 1)
    room = tombstones()
    with pytest.raises(CannotCompact, match="queues/t-1 .* segment at offset"):
        room.compact()
    assert sorted(room.read_disk.list("queues/t-1")) == files, "nothing half made is left"
    assert room.records() == records and room.findings() == []


# -------------------------------------------------------------------------------------------------------------- packs


def test_a_merge_compacts_queues_in_packs() -> None:
    room = Room("shared")
    for _ in range(6):
        room.fill(3)
        settle(room)
    state = room.state()
    for _ in range(20):
        settle(room)
    assert room.state() == state == {f"k{key}": "2" for key in range(5)}
    assert len(room.read_disk.list("packs")) == 1
    assert [key for _, key, _ in room.records()] == [f"k{key}" for key in range(5)]
    assert room.findings() == []
    assert room.read_disk.list("queues") == []
    row = load_checkpoint(room.read_disk).queues[1]
    assert row.compaction.clean_end == row.compaction.rewritten_end == row.end
    merges = room.maintenance.merged_bytes
    settle(room)
    assert room.maintenance.merged_bytes == merges, "nothing is left to do"
    room.start(2)
    assert room.state() == state


def test_what_cannot_be_compacted_in_packs_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room("shared")
    for _ in range(2):
        room.fill(3)
    before = room.records()
    monkeypatch.setattr(Sieve, "strain", no_strain)
    with pytest.raises(CannotCompact, match="a defect"):
        settle(room)
    for _ in range(4):
        settle(room)
    assert room.records() == before and len(room.read_disk.list("packs")) == 1
    monkeypatch.undo()
    settle(room)
    assert room.records() == before
    room.now += FAILED_REST_MS
    for _ in range(2):
        settle(room)
    assert [key for _, key, _ in room.records()] == [f"k{key}" for key in range(5)]
    assert room.findings() == []


def test_other_queues_of_the_pack_stay_as_they_are() -> None:
    room = Room("shared")
    room.configure(2, compact=False)
    for _ in range(4):
        room.put(2)
        room.fill(2)
    before = room.offsets(2)
    for _ in range(12):
        settle(room)
    assert room.offsets(2) == before == [0, 1, 2, 3]
    assert len(room.records()) == 5


def test_a_tombstone_in_packs_goes_only_with_everything_older() -> None:
    room = Room("shared", delete_retention_ms=DAY, dirty_ratio_min=1.0)
    room.fill(1)
    room.send(("k1", None))
    room.split()
    room.fill(2, keys=1)
    packs = room.splitter.pack_set.packs
    assert len(packs) >= 3
    room.maintenance.look(NOW)
    for now in (NOW, NOW + 2 * DAY):
        room.maintenance.look(now)
        job = MergeJob(room.read_disk, packs[1:], room.splitter.take_label(), lambda _: 0, room.maintenance._cleaning)
        while not job.step(1):
            pass
        assert not job.cleaned[0].covers_all
        room.splitter.replace_packs(job.inputs, job.output)
        room.checkpoint()
        packs = room.splitter.pack_set.packs
        assert ("k1", None) in [row[1:] for row in room.records()]
        room.send(("k2", "later"))
        room.split()
        room.checkpoint()
        packs = room.splitter.pack_set.packs
    assert "k1" not in room.state()
    room.configure(1, dirty_ratio_min=0.0)
    for turn in range(4):
        room.now = NOW + turn * 2 * DAY
        room.send(("k2", f"{turn}"))
        room.split()
        room.checkpoint()
        settle(room)
    assert "k1" not in [row[1] for row in room.records()]
    assert room.findings() == []


def ends_in_segments() -> Room:
    """K is committed, then written in a transaction; both lie in packs, and the transaction is aborted in segments."""
    room = Room("shared")
    room.send(("K", "committed"))
    records = [Record(0, NOW, b"K", b"aborted")]
    batch = build_batch(records, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    path, queue = room.engine.paths[0], room.engine.queues[1]
    assert isinstance(path.stage(queue, memoryview(bytearray(batch)), -1, NOW, in_transaction=True), Placed)
    room.flush()
    room.fill(4)
    room.configure(1, model="dedicated")
    room.mark(1, 9, commit=False)
    room.fill(1)
    assert room.splitter.queues[1].segments_from > 1 and room.aborted(1)[0].first == 1
    room.maintenance.look(NOW)
    return room


def merge(room: Room) -> list[tuple[int, str, str | None]]:
    """Of all packs, with what it leaves of K."""
    while room.maintenance.step():
        pass
    assert room.splitter.has_merge
    room.checkpoint()
    return [row for row in room.records() if row[1] == "K"]


def test_what_is_aborted_in_segments_does_not_count_in_packs() -> None:
    room = ends_in_segments()
    assert merge(room) == [(0, "K", "committed")]
    assert 0 in room.committed(1)


def test_packs_are_not_compacted_while_nobody_knows_what_is_aborted() -> None:
    room = ends_in_segments()
    name = next(name for name in room.read_disk.list("queues/t-1") if name.endswith(".txnindex"))
    room.read_disk.replace(f"queues/t-1/{name}", bytes(34))
    assert [value for _, _, value in merge(room)] == ["committed", "aborted"]
    assert [place.file for _, place in room.splitter.damages] == [f"queues/t-1/{name}"]


@pytest.mark.parametrize("what", ["txnindex", "directory"])
def test_packs_are_merged_where_segments_cannot_be_read(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """They are sound themselves. `directory`: it says that it belongs to another queue."""
    room = ends_in_segments()
    queue, name = room.splitter.queues[1], "queues/t-1"
    if what == "directory":
        identity = QueueIdentity(7, "t", 1, bytes(16).hex())
        room.read_disk.replace(f"{name}/{IDENTITY_FILE}", identity.sealed())
        queue.log = None
    else:
        name = next(f"{name}/{file}" for file in room.read_disk.list(name) if file.endswith(".txnindex"))
    read = SimFile.read

    def fail(file: SimFile, position: int, size: int) -> bytes:
        if file.name.endswith(".txnindex"):
            raise Unreadable(errno.EIO, "Input/output error", file.name)
        return read(file, position, size)

    with monkeypatch.context() as patch:
        patch.setattr(SimFile, "read", fail)
        while room.maintenance.step():
            pass
    assert room.splitter.has_merge and not room.maintenance._damaged
    assert [place.file for _, place in room.splitter.damages] == [name]


def test_which_packs_are_worth_it() -> None:
    def queue(first: int, last: int, dirty: int, *, overdue: bool = False) -> DirtyQueue:
        return DirtyQueue(1, first, last, dirty, overdue)

    sizes = [100, 100, 1000, 100]
    assert packs_to_compact([], sizes, 10_000) is None
    assert packs_to_compact([queue(0, 1, 20)], sizes, 10_000) == (0, 1)
    assert packs_to_compact([queue(2, 3, 20)], sizes, 10_000) is None
    assert packs_to_compact([queue(2, 3, 20, overdue=True)], sizes, 10_000) == (2, 3)
    assert packs_to_compact([queue(2, 3, 20, overdue=True)], sizes, 1000) is None
    assert packs_to_compact([queue(0, 0, 10), queue(1, 1, 90)], sizes, 10_000) == (1, 1)
