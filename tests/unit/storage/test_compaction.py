"""Compaction of queue logs on simulated disks: what remains, how it takes its place, and what it never touches."""

from __future__ import annotations

import errno
from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import Corrupt
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint import load_checkpoint
from cairnmq.storage.compaction_plan import Due, Stretch, due, fits, next_look
from cairnmq.storage.engine import Fetched
from cairnmq.storage.mending import Mender
from cairnmq.storage.pack_compaction import DirtyQueue, packs_to_compact
from cairnmq.storage.pack_merge import MergeJob
from cairnmq.storage.queue_segment import CLEANED
from cairnmq.storage.verify import check
from unit.storage.split_room import NOW, Broker

DAY = 24 * 3600 * 1000


class Room(Broker):
    """One compacted queue with small segments."""

    def __init__(self, model: str = "dedicated", **config: object) -> None:
        settings = {"segment_bytes": 500, "dirty_ratio_min": 0.0, "retention_ms": -1, "compact": True, **config}
        super().__init__(model, **settings)  # type: ignore[arg-type]
        self.now = NOW

    def send(self, *pairs: tuple[str, str | None], timestamp: int = NOW, **options: object) -> None:
        """A batch for queue 1."""
        records = [
            Record(0, timestamp, key.encode(), value.encode() if value is not None else None) for key, value in pairs
        ]
        batch = memoryview(bytearray(build_batch(records, **options)))  # type: ignore[arg-type]
        placed = self.engine.paths[0].stage(self.engine.queues[1], batch, -1, timestamp)
        assert not hasattr(placed, "code"), placed
        self.flush()

    def fill(self, turns: int, keys: int = 5, pad: int = 12) -> None:
        for turn in range(turns):
            self.send(*((f"k{key}", f"{turn}" + "." * pad) for key in range(keys)))
        self.split()
        self.checkpoint()

    def compact(self) -> None:
        self.upkeep.look(self.now)
        while self.upkeep.compact(self.now):
            pass
        self.checkpoint()
        self.checkpoint()  # the one that forgets the swaps

    def tend(self) -> None:
        """What the splitter's process does between two looks."""
        while self.upkeep.compact(self.now):
            pass
        self.checkpoint()

    def batches(self, start: int | None = None) -> list[bytes]:
        queue = self.engine.queues[1]
        offset, found = queue.log_start if start is None else start, []
        while offset < queue.visible:
            fetched = self.engine.read(queue, offset, 1, whole=True, cached=False)
            assert isinstance(fetched, Fetched)
            found.append(bytes(fetched.buffers[0]))
            offset = fetched.next_offset
        return found

    def records(self) -> list[tuple[int, str, str | None]]:
        return [
            (r.offset, (r.key or b"").decode(), r.value.decode().rstrip(".") if r.value is not None else None)
            for batch in self.batches()
            for r in decode_batch(batch)
        ]

    def state(self) -> dict[str, str]:
        """What a reader who starts at the beginning ends up with."""
        found: dict[str, str] = {}
        for _, key, value in self.records():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def closed(self) -> list[tuple[int, str, str | None]]:
        """Records outside of the segment that is written to."""
        log = self.splitter.queues[1].log
        assert log is not None
        return [row for row in self.records() if row[0] < log.bases[-1]]

    def segments(self) -> list[str]:
        return [name for name in self.read_disk.list("queues/t-1") if name.endswith(".log")]

    def findings(self) -> list[str]:
        return [str(f) for f in check(self.read_disk, self.journal_disk) if not f.is_note]


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
    for start in range(room.engine.queues[1].visible):
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
        found = room.engine.find_time(queue, time, room.engine.find_in_log(queue, time))
        expected = next((r for r in left if r.timestamp >= time), None)
        assert (found.offset if found else None) == (expected.offset if expected else None)
    assert room.engine.largest_in_log(queue) == NOW + 19


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
    passes = room.upkeep.compactor.tally.passes
    room.compact()
    assert room.upkeep.compactor.tally.passes == passes == 1


def test_settings_that_change_before_a_checkpoint_count_after_it() -> None:
    """Only what a checkpoint counts can be compacted; whoever looked too early looks again."""
    room = Room(dirty_ratio_min=1.0)
    for turn in range(40):
        room.send(("k", f"{turn}" + "." * 20))
    room.split()
    spec = room.engine.queues[1].spec
    room.splitter.configure(replace(spec, config=replace(spec.config, dirty_ratio_min=0.0)))
    assert not room.upkeep.compact(room.now)
    room.checkpoint()
    while room.upkeep.compact(room.now):
        pass
    assert room.upkeep.compactor.tally.passes == 1


def test_what_falls_due_during_a_swap_is_compacted_after_it() -> None:
    room = Room()
    room.fill(12)
    while room.upkeep.compact(room.now):
        pass
    room.fill(12)  # its checkpoint counts the swap, and more that is dirty
    for _ in range(3):
        room.tend()
    assert room.upkeep.compactor.tally.passes == 2
    keys = [key for _, key, _ in room.closed()]
    assert len(keys) == len(set(keys)) <= 5


def test_a_checkpoint_in_the_middle_of_a_pass_does_not_end_it() -> None:
    """What was given by then takes its place; the rest follows."""
    room = Room()
    room.fill(3, keys=40, pad=30)
    state, counted = room.state(), 0
    room.upkeep.look(room.now)
    while room.upkeep.compactor.step(room.now, 1):
        room.checkpoint()
        counted = max(counted, load_checkpoint(room.read_disk).queues[1].compaction.rewritten_end)
    assert room.upkeep.compactor.tally.passes == 1
    room.checkpoint()
    done = load_checkpoint(room.read_disk).queues[1].compaction
    assert 0 < counted < done.rewritten_end == done.clean_end
    keys = [key for _, key, _ in room.closed()]
    assert len(keys) == len(set(keys)) and room.state() == state
    assert room.findings() == []


@pytest.mark.parametrize(
    ("config", "wait"),
    [({"compaction_lag_min_ms": 100}, 100), ({"dirty_ratio_min": 1.0, "compaction_lag_max_ms": 100}, 101)],
)
def test_time_alone_makes_a_queue_due(config: dict[str, object], wait: int) -> None:
    room = Room(**config)
    room.fill(12)
    room.tend()
    room.now += wait - 1
    room.tend()
    assert room.upkeep.compactor.tally.passes == 0 and room.upkeep.compactor.next_look_ms == room.now + 1
    room.now += 1
    room.tend()
    assert room.upkeep.compactor.tally.passes == 1


def test_the_end_of_a_transaction_makes_a_queue_due() -> None:
    room = Room()
    Broker.send(room, 1, 9)
    room.fill(12)
    room.tend()
    log = room.splitter.queues[1].log
    assert log is not None and room.upkeep.compactor.tally.passes == 0
    last = log.bases[-1]
    room.mark(1, 9, commit=True)
    room.split()
    room.checkpoint()
    room.tend()
    assert log.bases[-1] == last and room.upkeep.compactor.tally.passes == 1


@pytest.mark.parametrize("seed", range(20))
def test_looks_find_nothing_that_was_forgotten(seed: int) -> None:
    """Whatever changes: between two looks at all queues each one that is due has its pass."""
    rng = Random(seed)
    ratios, lags = (0.0, 0.5, 0.9), (0, 0, 50)
    room = Room(compaction_lag_max_ms=rng.choice((200, 2**63 - 1)))
    room.upkeep.compactor.keys_max = rng.choice((3, 100))
    number = 0

    def send() -> None:
        nonlocal number
        number += 1
        room.send(*((f"k{rng.randrange(9)}", f"{number}" + "." * 40) for _ in range(2)), timestamp=room.now)

    def transact() -> None:
        if room.engine.queues[1].open_transactions:
            room.mark(1, 9, commit=rng.random() < 0.5)
        else:
            Broker.send(room, 1, 9)

    def configure() -> None:
        room.configure(1, dirty_ratio_min=rng.choice(ratios), compaction_lag_min_ms=rng.choice(lags))

    def work() -> None:
        room.upkeep.compact(room.now)
        room.now += rng.choice((0, 1, 30))

    for _ in range(80):
        rng.choice((send, send, send, send, transact, configure, work, work, room.split, room.checkpoint))()
        room.upkeep.compactor.step(room.now, 1)
    if room.engine.queues[1].open_transactions:
        transact()
    room.split()
    for _ in range(60):
        room.now += 10
        room.tend()
    assert room.upkeep.compactor.tally.passes > 0
    room.upkeep.look(room.now)
    assert room.upkeep.compactor.dirty_ratio == 0
    assert room.findings() == []


def test_a_small_map_takes_several_passes() -> None:
    room = Room()
    room.upkeep.compactor.keys_max = 7
    for turn in range(4):
        for key in range(20):
            room.send((f"k{key}", f"{turn}" + "." * 30))
    room.split()
    room.checkpoint()
    for _ in range(60):
        room.tend()
    assert room.upkeep.compactor.tally.passes > 5
    assert room.upkeep.compactor.tally.keys_peak <= 7
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


@pytest.mark.parametrize(("lag", "cleaned"), [(10, True), (11, False)])
def test_young_records_are_left_alone(lag: int, cleaned: bool) -> None:
    room = Room(compaction_lag_min_ms=lag)
    room.fill(12)
    before = room.records()
    room.now = NOW + 10
    room.compact()
    assert (room.records() != before) == cleaned


def test_a_record_waits_no_longer_than_the_largest_lag() -> None:
    room = Room(dirty_ratio_min=1.0, compaction_lag_max_ms=100)
    room.fill(12)
    before = room.records()
    room.now = NOW + 100
    room.compact()
    assert room.records() == before
    room.now += 1
    room.compact()
    assert room.records() != before


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
    room.upkeep.look(NOW)
    while room.upkeep.compact(NOW):
        pass
    published = room.splitter.checkpoint(NOW)
    assert room.state() == state  # with the reader of before
    assert published.compacted == [1] * len(published.compacted) != []
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
        rng = Random(countdown)
        for name in ("journal_disk", "read_disk"):
            disk = getattr(room, name)
            setattr(room, name, disk.crash(rng) if power else disk.kill(rng))
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
        leftovers = [name for name in room.read_disk.list("queues/t-1") if name.endswith(CLEANED)]
        assert leftovers == [], countdown
    assert countdown > 30


class Stop(BaseException):
    """The machine stops."""


def strikes(room: Room, countdown: int) -> bool:
    left = countdown

    def observe(_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Stop

    room.read_disk.observe = observe
    try:
        room.compact()
        room.checkpoint()
    except Stop:
        return True
    finally:
        room.read_disk.observe = None
    return False


def test_a_deleted_queue_ends_its_pass() -> None:
    room = Room()
    room.fill(12)
    room.upkeep.look(NOW)
    room.upkeep.compactor.step(NOW, 1)
    spec = room.specs.pop(1)
    room.engine.drop_queues([1])
    room.splitter.drop([(1, spec.directory)])
    while room.upkeep.compact(NOW):
        pass
    room.checkpoint()
    assert room.read_disk.list("queues") == []


def test_a_topic_that_is_no_longer_compacted_ends_its_pass() -> None:
    room = Room()
    room.fill(12)
    before = room.records()
    room.upkeep.look(NOW)
    room.upkeep.compactor.step(NOW, 1)
    room.configure(1, compact=False)
    while room.upkeep.compact(NOW):
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
    room.upkeep.look(NOW)
    while room.upkeep.compact(NOW):
        pass
    assert [place.file for _, place in room.splitter.damages] == [name]
    assert room.upkeep.compactor.tally.passes == 0


def test_what_was_compacted_is_never_mended_from_journals() -> None:
    """The journals still hold everything, but not what is left of it."""
    room = Room()
    room.fill(12)
    room.compact()
    mender = Mender(room.splitter)
    first, last = (f"queues/t-1/{name}" for name in (room.segments()[0], room.segments()[-1]))
    with pytest.raises(Corrupt, match="was compacted"):
        mender.mend_segment(1, first)
    mender.mend_segment(1, last)
    assert room.findings() == []


def test_a_full_disk_only_delays_it() -> None:
    room = Room()
    room.fill(12)
    state = room.state()
    room.upkeep.look(NOW)
    room.read_disk.faults[room.read_disk.operations + 3] = errno.ENOSPC
    while room.upkeep.compact(NOW):
        pass
    assert room.upkeep.compactor.tally.passes == 0
    assert [name for name in room.read_disk.list("queues/t-1") if name.endswith(CLEANED)] == []
    room.compact()
    assert room.upkeep.compactor.tally.passes == 0, "it rests for a while"
    room.now += 60_000
    room.tend()
    assert room.upkeep.compactor.tally.passes == 1
    assert room.state() == state


# -------------------------------------------------------------------------------------------------------------- packs


def settle(room: Room) -> None:
    room.upkeep.look(room.now)
    while room.upkeep.step():
        pass
    room.checkpoint()


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
    merges = room.upkeep.merged_bytes
    settle(room)
    assert room.upkeep.merged_bytes == merges, "nothing is left to do"
    room.start(2)
    assert room.state() == state


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
    room.fill(2, keys=1)
    packs = room.splitter.shelf.packs
    assert len(packs) >= 3
    room.upkeep.look(NOW)
    for now in (NOW, NOW + 2 * DAY):
        room.upkeep.look(now)
        job = MergeJob(room.read_disk, packs[1:], room.splitter.take_pack_number(), lambda _: 0, room.upkeep._cleaning)
        while not job.step(1):
            pass
        assert not job.cleaned[0].covers_all
        room.splitter.replaced(job.inputs, job.output)
        room.checkpoint()
        packs = room.splitter.shelf.packs
        assert ("k1", None) in [row[1:] for row in room.records()]
        room.send(("k2", "later"))
        room.split()
        room.checkpoint()
        packs = room.splitter.shelf.packs
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


# ----------------------------------------------------------------------------------------------------------- the plan


CONFIG = LogConfig(compact=True, segment_bytes=100)


def stretch(base: int, size: int = 10, newest: int = 0, oldest: int = 0) -> Stretch:
    return Stretch(base, base + 10, size, oldest, newest)


def test_the_dirty_share_decides() -> None:
    log = [stretch(0, 50), stretch(10, 25), stretch(20, 25)]
    assert due(log, 10, CONFIG, 0) is None
    assert due(log, 0, CONFIG, 0) == Due(30, 1.0, 100, False)
    assert due(log, 10, replace(CONFIG, dirty_ratio_min=0.49), 0) == Due(30, 0.5, 50, False)
    assert due(log, 30, replace(CONFIG, dirty_ratio_min=0.0), 0) is None
    assert due([], 0, CONFIG, 0) is None


def test_lags() -> None:
    log = [stretch(0, newest=100), stretch(10, newest=300), stretch(20, newest=200)]
    assert due(log, 0, replace(CONFIG, compaction_lag_min_ms=50), 260) == Due(10, 1.0, 10, False)
    late = replace(CONFIG, dirty_ratio_min=1.0, compaction_lag_max_ms=50)
    assert due([stretch(0), stretch(10, oldest=10)], 10, late, 60) is None
    assert due([stretch(0), stretch(10, oldest=10)], 10, late, 61) == Due(20, 0.5, 10, True)


def test_when_time_may_make_a_log_due() -> None:
    log = [stretch(0, newest=100, oldest=90), stretch(10, newest=300, oldest=110), stretch(20, newest=200, oldest=290)]
    assert next_look(log, 0, CONFIG, 0) == 90 + CONFIG.compaction_lag_max_ms + 1
    young = replace(CONFIG, compaction_lag_min_ms=50)
    assert [next_look(log, 0, young, now) for now in (0, 149)] == [150, 150]
    assert next_look(log, 0, young, 150) == 350, "the third waits behind the second"
    late = replace(young, compaction_lag_max_ms=100)
    assert next_look(log, 0, late, 150) == 191
    assert next_look(log, 10, late, 150) == 350
    assert next_look(log, 30, late, 150) is None


def test_neighbours_share_a_segment() -> None:
    assert [fits(stretch(10, size), 0, 60, CONFIG) for size in (40, 41)] == [True, False]
    assert [fits(Stretch(10, end, 1, 0, 0), 0, 60, CONFIG) for end in (2**31, 2**31 + 1)] == [True, False]


def test_an_open_transaction_at_the_clean_end_makes_no_work() -> None:
    """Nothing behind it may be cleaned, so what is clean is not written again, however often somebody looks."""
    room = Room()
    for turn in range(20):
        room.send(*((f"k{turn}-{key}", "v") for key in range(5)))
    room.split()
    room.checkpoint()
    room.compact()
    Broker.send(room, 1, 9)
    room.fill(30)
    room.compact()
    tally, written = room.upkeep.compactor.tally, room.upkeep.compactor.tally.written_bytes
    queue = room.splitter.queues[1]
    for _ in range(3):
        room.now += 61_000
        room.compact()
    assert tally.written_bytes == written
    clean_end = queue.compaction.clean_end
    room.mark(1, 9, commit=True)
    room.split()
    room.now += 61_000
    room.compact()
    assert queue.compaction.clean_end > clean_end and tally.written_bytes > written
