"""A lost checkpoint is rebuilt: whatever the broker was doing when it stopped, and wherever a repair is stopped."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from cairnmq.errors import Corrupt, Outdated, TooNew
from cairnmq.storage.checkpoint.checkpoint import checkpoint_name, load_checkpoint
from cairnmq.storage.checkpoint_repair.checkpoint_repair import Metadata, Plan, carry_out, find_problem, make_plan
from cairnmq.storage.files.format import (
    CHECKPOINT_SUFFIX,
    CHECKPOINTS,
    NO_SEGMENTS,
    PREVIOUS_SUFFIX,
    Keyed,
    StartMoved,
    numbered,
    pack_name,
)
from cairnmq.storage.recovery.lost_disk import accepted
from cairnmq.storage.recovery.owner import Owner, write_owner
from cairnmq.testing.sim_checks import check_verify
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from cairnmq.types import Counters
from unit.storage.compaction.test_pack_extraction import newest, scattered
from unit.storage.compaction_harness import DAY, Room, Stop, settle, strikes
from unit.storage.splitter_harness import NOW, Broker

UNDECIDED = "transaction"


def metadata(broker: Broker) -> Metadata:
    return Metadata(list(broker.specs.values()), Counters(1 << 20, 100, 0, 0), (UNDECIDED,))


def planned(broker: Broker) -> Plan:
    problem = find_problem(broker.journal_disk, broker.read_disk, broker.specs.values())
    assert problem is not None
    return make_plan(broker.journal_disk, broker.read_disk, metadata(broker), problem, now_ms=NOW, text_of=str)


def repaired(broker: Broker, epoch: int) -> Plan:
    plan = planned(broker)
    carry_out(broker.read_disk, plan)
    assert find_problem(broker.journal_disk, broker.read_disk, broker.specs.values()) is None
    broker.start(epoch)
    return plan


def lose(broker: Broker, *suffixes: str) -> None:
    for suffix in suffixes:
        for name in [name for name in broker.read_disk.list(CHECKPOINTS) if name.endswith(suffix)]:
            broker.read_disk.remove(f"{CHECKPOINTS}/{name}")
    broker.read_disk.sync_dir(CHECKPOINTS)


def lose_newest(broker: Broker, rng: Random) -> None:
    lose(broker, CHECKPOINT_SUFFIX)


def lose_both(broker: Broker, rng: Random) -> None:
    lose(broker, CHECKPOINT_SUFFIX, PREVIOUS_SUFFIX)


def change(broker: Broker, how: Callable[[bytearray], object]) -> None:
    (number,) = numbered(broker.read_disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX)
    file = broker.read_disk.open(checkpoint_name(number))
    data = bytearray(file.read(0, file.size()))
    how(data)
    broker.read_disk.replace(checkpoint_name(number), bytes(data))


def flip(broker: Broker, rng: Random) -> None:
    def one(data: bytearray) -> None:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)

    change(broker, one)


def cut(broker: Broker, rng: Random) -> None:
    def end(data: bytearray) -> None:
        del data[rng.randrange(len(data)) :]

    change(broker, end)


def zero(broker: Broker, rng: Random) -> None:
    def page(data: bytearray) -> None:
        data[:] = bytes(len(data))

    change(broker, page)


HURTS = [lose_newest, lose_both, flip, cut, zero]


def trim(broker: Broker, number: int, offset: int) -> None:
    broker.engine.paths[0].stage_fact(broker.engine.queues[number], StartMoved(offset), NOW)
    broker.flush()


def commit(broker: Broker, key: bytes, value: bytes | None, space: str = "offset") -> None:
    broker.engine.paths[0].stage_fact(None, Keyed(space, key, value), NOW)
    broker.flush()


def seen(broker: Broker) -> dict[int, tuple[list[int], list[int], int, list[int]]]:
    """Of each queue: what readers of all and of committed records get, its end, and producers that have records."""
    return {
        number: (broker.offsets(number), broker.committed(number), queue.end, producers(broker, number))
        for number, queue in broker.engine.queues.items()
    }


def producers(broker: Broker, number: int) -> list[int]:
    state = broker.engine.queues[number].state
    rows = (row for row in state.producers.values() if row.batches)
    return sorted(row.producer_id for row in rows if row.batches[-1][2] >= state.log_start)


def goes_on(broker: Broker) -> None:
    """Writes, splits, checkpoints, starts again; verify finds nothing."""
    before = seen(broker)
    broker.put(1, 2, 3)
    for epoch in (1000, 1001):
        broker.split()
        broker.checkpoint()
        settle_all(broker)
        after = seen(broker)
        assert {n: row[0] for n, row in after.items()} == {n: [*row[0], row[2]] for n, row in before.items()}
        check_verify(broker.journal_disk, broker.read_disk, broker.specs)
        broker.start(epoch)


def settle_all(broker: Broker) -> None:
    """Merges and demotions have their turn."""
    broker.maintenance.look(NOW)
    while broker.maintenance.step():
        pass
    broker.checkpoint()


# ------------------------------------------------------------------------------------------- whatever has happened


def live(broker: Broker, rng: Random, steps: int) -> None:
    """Records, transactions, deletions; splits, checkpoints, merges, promotions and demotions."""
    for _ in range(steps):
        act = rng.randrange(10)
        number = rng.randrange(1, 4)
        if act < 3:
            broker.put(*rng.choices((1, 2, 3), k=rng.randrange(1, 6)))
        elif act == 3:
            broker.send(number, 5 + number, count=rng.randrange(1, 3))
            broker.mark(number, 5 + number, commit=rng.random() < 0.5)
        elif act == 4:
            queue = broker.engine.queues[number]
            trim(broker, number, rng.randrange(queue.log_start, min(queue.high_watermark, queue.log_start + 4) + 1))
        elif act < 7:
            broker.split()
        elif act < 9:
            broker.split()
            broker.checkpoint()
        else:
            broker.split()
            broker.checkpoint()
            settle_all(broker)


@pytest.mark.parametrize("hurt", HURTS)
@pytest.mark.parametrize("model", ["auto", "shared", "dedicated"])
def test_every_record_is_there_after_a_repair(model: str, hurt: Callable[[Broker, Random], None]) -> None:
    """The broker is stopped in the middle of anything: killed, or by a loss of power."""
    repairs = 0
    for seed in range(40):
        rng = Random(f"{model} {seed}")
        broker = Broker(model, segment_bytes=400)
        live(broker, rng, 12)
        if rng.random() < 0.5:
            broker.start(2)
            live(broker, rng, 10)
        known = {number: (queue.log_start, queue.end) for number, queue in broker.engine.queues.items()}
        power = rng.random() < 0.5
        left = rng.randrange(1, 40)

        def observe(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Stop

        before = seen(broker)
        broker.read_disk.observe = observe
        try:
            broker.split()
            broker.checkpoint()
            settle_all(broker)
        except Stop:
            pass
        broker.read_disk.observe = None
        broker.journal_disk, broker.read_disk = (
            disk.crash(rng) if power else disk.kill(rng) for disk in (broker.journal_disk, broker.read_disk)
        )
        if not numbered(broker.read_disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX):
            continue
        hurt(broker, rng)
        if find_problem(broker.journal_disk, broker.read_disk, broker.specs.values()) is None:
            continue
        repairs += 1
        plan = repaired(broker, 3)
        after = seen(broker)
        what = f"{model} seed {seed}: {plan.losses.lines}"
        lost = {each.partition for each in plan.losses.queues if (each.start, each.end) == (0, None)}
        for number, (offsets, committed, end, known_producers) in before.items():
            got = after[number]
            start = known[number][0]
            if number in lost:
                assert not offsets, f"{what}: nothing of it is in any file"
                continue
            assert got[2] >= end, f"{what}: queue {number} ended at {end}, now at {got[2]}"
            assert [each for each in got[0] if each >= start] == [each for each in offsets if each >= start], (
                f"{what}: queue {number}"
            )
            assert [each for each in got[1] if each >= start] == [each for each in committed if each >= start], (
                f"{what}: queue {number}, committed"
            )
            assert set(known_producers) <= set(got[3]), f"{what}: queue {number}"
            if not plan.losses.lines:
                assert got == before[number], f"{what}: queue {number}: nothing was said to be lost"
        assert len(lost) == len(plan.losses.queues), what
        goes_on(broker)
    assert repairs >= 8


def test_what_the_previous_checkpoint_knew_stays() -> None:
    """A deletion, an offset, a producer whose records are deleted; and what came later is in the journal, or told."""
    broker = Broker("shared")
    for _ in range(4):
        broker.put(1, 2, 3)
    broker.send(3, 7)
    broker.mark(3, 7, commit=True)
    commit(broker, b"group", b"old")
    commit(broker, b"id", b"prepared", UNDECIDED)
    trim(broker, 1, 2)
    trim(broker, 3, broker.engine.queues[3].end)
    broker.split()
    broker.checkpoint()
    broker.start(2)  # the checkpoint is written again: this one is the previous one from now on
    for _ in range(12):
        broker.put(1, 2)
        broker.split()
        broker.checkpoint()
    trim(broker, 2, 1)
    commit(broker, b"other", b"new")
    assert len(broker.journal_disk.list("0")) < 8, "the journal does not reach back to the previous checkpoint"
    before = seen(broker)
    lose(broker, CHECKPOINT_SUFFIX)
    plan = repaired(broker, 3)
    assert seen(broker) == before
    assert broker.engine.queues[1].log_start == 2 and broker.engine.queues[2].log_start == 1
    assert broker.engine.queues[3].end == before[3][2], "offsets are not given again"
    assert broker.engine.keyed["offset", b"group"] == b"old" and broker.engine.keyed["offset", b"other"] == b"new"
    assert (UNDECIDED, b"id") not in broker.engine.keyed, "it may be older than its records"
    said = "\n".join(plan.lines())
    for text in ("committed offsets", "DeleteRecords", "transactional ids", "previous"):
        assert text in said
    (remembered,) = accepted(broker.engine.keyed.items())
    assert remembered["what"] == plan.losses.what
    goes_on(broker)


def test_nothing_is_lost_where_the_journals_reach_back() -> None:
    broker = Broker("shared")
    broker.put(1, 2, 3)
    commit(broker, b"group", b"1")
    commit(broker, b"id", b"ongoing", UNDECIDED)
    broker.split()
    broker.checkpoint()
    broker.start(2)
    broker.put(1)
    trim(broker, 1, 1)
    commit(broker, b"group", b"2")
    broker.split()
    broker.checkpoint()
    before, keyed = seen(broker), dict(broker.engine.keyed)
    lose(broker, CHECKPOINT_SUFFIX)
    plan = repaired(broker, 3)
    assert plan.losses.lines == [] and "nothing is lost" in list(plan.lines())
    assert seen(broker) == before and broker.engine.keyed == keyed | {("offset", b"group"): b"2"}
    goes_on(broker)


def test_both_checkpoints_are_gone() -> None:
    """What was deleted long ago may come back, and that is said."""
    broker = Broker("dedicated", segment_bytes=300)
    for _ in range(12):
        broker.put(1, 2)
        broker.split()
        broker.checkpoint()
    before = seen(broker)
    lose_both(broker, Random(1))
    plan = repaired(broker, 2)
    assert {number: row[:3] for number, row in seen(broker).items()} == {n: row[:3] for n, row in before.items()}
    assert [str(each) for each in plan.losses.queues] == ["t-3: offsets 0 on, as many as there were"]
    assert not plan.used and "journal 0: positions 0 to" in plan.losses.what[0]
    goes_on(broker)


# -------------------------------------------------------------------------------------------------- compacted queues


def compacted() -> Room:
    """Its keys are compacted, one is deleted, and its tombstone is gone."""
    room = Room()
    room.send(("gone", "1"))
    room.fill(12)
    room.send(("gone", None))
    room.fill(12)
    room.compact()
    room.now += 2 * DAY
    room.fill(12)
    room.compact()
    room.fill(6)
    assert "gone" not in [key for _, key, _ in room.records()]
    return room


@pytest.mark.parametrize("hurt", HURTS)
def test_a_compacted_queue_stays_compacted(hurt: Callable[[Broker, Random], None]) -> None:
    room = compacted()
    records = room.records()
    hurt(room, Random(3))
    repaired(room, 2)
    assert room.records() == records
    row = load_checkpoint(room.read_disk).queues[1]
    assert row.compaction.rewritten_end == row.end and not row.compaction.clean_end
    assert room.findings() == []
    state = room.state()
    room.compact()
    assert room.state() == state and room.findings() == []


@pytest.mark.parametrize("made", [compacted, scattered])
@pytest.mark.parametrize("hurt", [lose_newest, lose_both])
def test_a_pass_that_was_stopped_anywhere(made: Callable[[], Room], hurt: Callable[[Broker, Random], None]) -> None:
    """Swapped segments, gathered ones and packs are not served twice, and no key comes back."""
    stops = 0
    for countdown in range(1, 200, 3):
        room = made()
        if made is compacted:
            room.fill(12)
        state = newest(room)
        if not strikes(room, countdown, pass_over):
            break
        stops += 1
        room.stop(Random(countdown), power=False)
        hurt(room, Random(countdown))
        repaired(room, 2)
        assert newest(room) == state, f"stopped at {countdown}"
        assert room.findings() == [], f"stopped at {countdown}"
        for _ in range(4):
            room.tend()
        assert newest(room) == state and room.findings() == [], f"stopped at {countdown}"
    assert stops > 10


def pass_over(room: Room) -> None:
    for _ in range(4):
        room.maintenance.look(room.now)
        room.tend()
    settle(room)


# ------------------------------------------------------------------------------------------ a repair that is stopped


def two_starts() -> Broker:
    broker = Broker("auto", segment_bytes=400)
    live(broker, Random(7), 25)
    broker.start(2)
    live(broker, Random(8), 25)
    broker.split()
    broker.checkpoint()
    return broker


@pytest.mark.parametrize("hurt", [lose_newest, zero])
@pytest.mark.parametrize("power", [False, True])
def test_stopped_anywhere_it_is_done_again_with_the_same_outcome(
    power: bool, hurt: Callable[[Broker, Random], None]
) -> None:
    at = 0
    while True:
        at += 1
        broker = two_starts()
        before = seen(broker)
        broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.kill()
        hurt(broker, Random(at))
        # a pack that no checkpoint names
        broker.read_disk.replace(pack_name(999), b"half a pack")
        plan = planned(broker)
        assert plan.aside == [pack_name(999)]
        broker.read_disk.crash_at = broker.read_disk.operations + at
        try:
            carry_out(broker.read_disk, plan)
            break
        except SimCrash:
            pass
        disk = broker.read_disk
        broker.read_disk = disk.crash(Random(at)) if power else disk.kill()
        if find_problem(broker.journal_disk, broker.read_disk, broker.specs.values()) is not None:
            again = planned(broker)
            assert again.image.queues == plan.image.queues and again.image.packs == plan.image.packs
            assert again.losses.lines == plan.losses.lines
            carry_out(broker.read_disk, again)
        kept = [name for name in broker.read_disk.list("lost") if name.startswith("repair-")]
        assert kept, "the old files are somewhere"
        broker.start(3)
        assert seen(broker) == before
        goes_on(broker)
    assert at > 5


def test_the_old_files_are_kept() -> None:
    broker = two_starts()
    broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.kill()
    flip(broker, Random(2))
    (number,) = numbered(broker.read_disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX)
    file = broker.read_disk.open(checkpoint_name(number))
    damaged = file.read(0, file.size())
    plan = repaired(broker, 3)
    assert plan.damaged == checkpoint_name(number) and plan.place == "lost/repair-1"
    kept = broker.read_disk.open(f"{plan.place}/{checkpoint_name(number)}")
    assert kept.read(0, kept.size()) == damaged
    zero(broker, Random(2))
    assert planned(broker).place == "lost/repair-2"


# ------------------------------------------------------------------------------------------------- more damage still


def test_a_damaged_segment_beside_it_costs_its_own_records() -> None:
    broker = Broker("dedicated", segment_bytes=300)
    for _ in range(12):
        broker.put(1, 2)
        broker.split()
        broker.checkpoint()
    broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.kill()
    before = broker.offsets(2)
    bases = numbered(broker.read_disk.list("queues/t-1"), ".log")
    broker.read_disk.damage(f"queues/t-1/{bases[1]:020d}.log", 70)
    lose_both(broker, Random(1))
    plan = repaired(broker, 2)
    assert str(plan.losses.queues[0]) == f"t-1: offsets {bases[1]} to {bases[1]}"
    assert broker.offsets(2) == before
    assert broker.engine.queues[1].end == 12


def test_a_lost_journal_file_beside_it_is_told() -> None:
    """The records of it that are in queue logs are there."""
    broker = Broker("dedicated")
    for _ in range(6):
        broker.put(1)
    broker.split()
    broker.checkpoint()
    for _ in range(12):
        broker.put(1)
    broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.kill()
    bases = numbered(broker.journal_disk.list("0"), ".jnl")
    for base in bases[:3]:
        broker.journal_disk.remove(f"0/{base:020d}.jnl")
    plan = repaired(broker, 2)
    (lost,) = [each for each in plan.losses.queues if each.partition == 1]
    assert lost.start == 6 and lost.end is not None and 6 < lost.end < 18
    assert broker.engine.queues[1].end == 18


# ---------------------------------------------------------------------------------------------------------- refusals


def test_a_sound_checkpoint_is_left_alone() -> None:
    broker = two_starts()
    assert find_problem(broker.journal_disk, broker.read_disk, broker.specs.values()) is None
    fresh = Broker("shared")
    assert find_problem(fresh.journal_disk, fresh.read_disk, fresh.specs.values()) is None


def test_a_failed_sync_is_dealt_with_first() -> None:
    broker = two_starts()
    lose_newest(broker, Random(1))
    broker.read_disk.replace("doubt", b"")
    with pytest.raises(Corrupt, match="a sync failed.*Unmount the disk or restart the machine.*nothing was changed"):
        planned(broker)


def test_without_files_there_is_nothing_to_rebuild_from() -> None:
    broker = two_starts()
    broker.read_disk = SimDisk(Random(1))
    with pytest.raises(Corrupt, match="no queue logs, no packs.*--accept-loss.*nothing was changed"):
        planned(broker)


def test_older_metadata_are_refused() -> None:
    broker = two_starts()
    lose_newest(broker, Random(1))
    write_owner(broker.journal_disk, Owner("c", 1, Counters(1 << 21, 5, 0, 3)))
    with pytest.raises(Outdated, match="older than the records.*Restore the newest meta.db first.*Nothing was changed"):
        planned(broker)


def test_a_checkpoint_of_a_newer_version_is_refused() -> None:
    broker = two_starts()

    def newer(data: bytearray) -> None:
        data[2] = 9
        data[20] ^= 1

    change(broker, newer)
    with pytest.raises(TooNew, match="newer version of CairnMQ"):
        make_plan(broker.journal_disk, broker.read_disk, metadata(broker), "?", now_ms=NOW, text_of=str)


def test_demoted_and_promoted_queues_have_one_place() -> None:
    broker = two_starts()
    lose_both(broker, Random(1))
    plan = planned(broker)
    for row in plan.image.queues.values():
        place = (
            plan.image.packs if row.segments_from == NO_SEGMENTS else broker.read_disk.list(f"queues/t-{row.queue_id}")
        )
        assert place or row.log_start == row.end
