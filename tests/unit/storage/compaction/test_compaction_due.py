"""When a queue is compacted: the dirty share, lags, and what makes somebody look at it again."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.compaction.plan import Due, Stretch, due, fits, next_look
from unit.storage.compaction_harness import Room
from unit.storage.splitter_harness import NOW, Broker


def test_settings_that_change_before_a_checkpoint_count_after_it() -> None:
    """Only what a checkpoint counts can be compacted; whoever looked too early looks again."""
    room = Room(dirty_ratio_min=1.0)
    for turn in range(40):
        room.send(("k", f"{turn}" + "." * 20))
    room.split()
    spec = room.engine.queues[1].spec
    room.splitter.configure(replace(spec, config=replace(spec.config, dirty_ratio_min=0.0)))
    assert not room.maintenance.compact(room.now)
    room.checkpoint()
    while room.maintenance.compact(room.now):
        pass
    assert room.maintenance.compactor.tally.passes == 1


def test_what_falls_due_during_a_swap_is_compacted_after_it() -> None:
    room = Room()
    room.fill(12)
    while room.maintenance.compact(room.now):
        pass
    room.fill(12)  # its checkpoint counts the swap, and more that is dirty
    for _ in range(3):
        room.tend()
    assert room.maintenance.compactor.tally.passes == 2
    keys = [key for _, key, _ in room.closed()]
    assert len(keys) == len(set(keys)) <= 5


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
    assert room.maintenance.compactor.tally.passes == 0 and room.maintenance.compactor.next_look_ms == room.now + 1
    room.now += 1
    room.tend()
    assert room.maintenance.compactor.tally.passes == 1


def test_the_end_of_a_transaction_makes_a_queue_due() -> None:
    room = Room()
    Broker.send(room, 1, 9)
    room.fill(12)
    room.tend()
    log = room.splitter.queues[1].log
    assert log is not None and room.maintenance.compactor.tally.passes == 0
    last = log.bases[-1]
    room.mark(1, 9, commit=True)
    room.split()
    room.checkpoint()
    room.tend()
    assert log.bases[-1] == last and room.maintenance.compactor.tally.passes == 1


@pytest.mark.parametrize("seed", range(20))
def test_looks_find_nothing_that_was_forgotten(seed: int) -> None:
    """Whatever changes: between two looks at all queues each one that is due has its pass."""
    rng = Random(seed)
    ratios, lags = (0.0, 0.5, 0.9), (0, 0, 50)
    room = Room(compaction_lag_max_ms=rng.choice((200, 2**63 - 1)))
    room.maintenance.compactor.keys_max = rng.choice((3, 100))
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
        room.maintenance.compact(room.now)
        room.now += rng.choice((0, 1, 30))

    for _ in range(80):
        rng.choice((send, send, send, send, transact, configure, work, work, room.split, room.checkpoint))()
        room.maintenance.compactor.step(room.now, 1)
    if room.engine.queues[1].open_transactions:
        transact()
    room.split()
    for _ in range(60):
        room.now += 10
        room.tend()
    assert room.maintenance.compactor.tally.passes > 0
    room.maintenance.look(room.now)
    assert room.maintenance.compactor.dirty_ratio == 0
    assert room.findings() == []


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
    tally, written = room.maintenance.compactor.tally, room.maintenance.compactor.tally.written_bytes
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
