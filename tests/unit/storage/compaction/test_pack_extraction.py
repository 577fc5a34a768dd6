"""A queue whose first records lie in packs gets segments of all of it before it is compacted."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.storage.files.format import StartMoved
from unit.storage.compaction_harness import DAY, Room, settle, strikes
from unit.storage.splitter_harness import NOW, Broker


def scattered(**config: object) -> Room:
    """Its first records are in packs, the others in segments."""
    room = Room("shared", **config)
    Broker.send(room, 1, 9)
    room.mark(1, 9, commit=False)
    room.send(("old", "1"))
    room.fill(3)
    room.configure(1, model="dedicated")
    room.send(("old", None))
    room.fill(12)
    assert 0 < room.splitter.queues[1].segments_from < room.engine.queues[1].split_end
    return room


def newest(room: Room) -> dict[str, str]:
    """Without what was aborted, and its marker."""
    return {key: value for key, value in room.state().items() if key[:1] in ("k", "o")}


def gather(room: Room) -> None:
    for _ in range(4):
        room.tend()


def test_packs_become_segments_before_a_pass() -> None:
    room = scattered()
    state = newest(room)
    gather(room)
    assert room.splitter.queues[1].segments_from == room.engine.queues[1].segments_from == 0
    for _ in range(3):
        room.tend()
    keys = [key for _, key, _ in room.closed()]
    assert len(keys) == len(set(keys)) and newest(room) == state
    assert room.findings() == []
    for _ in range(3):
        settle(room)
    assert room.read_disk.list("packs") == [], "nobody reads them any more"
    room.start(2)
    assert newest(room) == state and room.findings() == []


def test_what_is_gathered_reads_as_before() -> None:
    room = scattered(dirty_ratio_min=1.0)
    before, aborted = room.batches(), room.aborted(1)
    assert len(aborted) == 1
    for _ in range(5):
        assert (room.batches(), room.aborted(1)) == (before, aborted)
        room.tend()
    assert room.engine.queues[1].segments_from == 0 and not room.engine.queues[1].state.aborted
    assert room.maintenance.compactor.tally.passes == 0
    assert (room.batches(), room.aborted(1)) == (before, aborted)
    assert room.findings() == []


def test_a_tombstone_goes_when_the_packs_are_gathered() -> None:
    room = scattered(delete_retention_ms=DAY)
    for _ in range(2):
        gather(room)
    assert ("old", None) in [row[1:] for row in room.closed()]
    room.now += DAY
    room.fill(6)
    gather(room)
    assert "old" not in [key for _, key, _ in room.records()]


def twice_in_packs() -> Room:
    """A value and its tombstone in packs, other keys in segments; a splitter that has just started."""
    room = Room("shared", delete_retention_ms=DAY)
    room.send(("old", "1"))
    room.send(("old", None))
    room.fill(4)
    room.configure(1, model="dedicated")
    room.fill(12)
    assert room.splitter.queues[1].segments_from > 1
    room.splitter = room.make_splitter()
    return room


def never_returns(room: Room) -> None:
    """The deleted key, when its tombstone goes."""
    for _ in range(6):
        room.tend()
    assert room.splitter.queues[1].segments_from == 0
    keys = [key for _, key, _ in room.closed()]
    assert len(keys) == len(set(keys))
    room.now += DAY + 1
    room.fill(12)
    for _ in range(3):
        room.maintenance.look(room.now)
        room.tend()
    assert "old" not in [key for _, key, _ in room.records()]


def test_a_merge_before_it_makes_no_clean_end_of_what_is_gathered() -> None:
    room = twice_in_packs()
    room.maintenance.look(room.now)
    while room.maintenance.step():
        pass
    assert room.splitter.has_merge and room.splitter.queues[1].compaction.clean_end > 1
    never_returns(room)


def test_a_pass_over_the_segments_makes_no_clean_end_of_what_is_gathered() -> None:
    room = twice_in_packs()
    room.configure(1, model="shared")
    room.compact()
    queue = room.splitter.queues[1]
    assert queue.compaction.clean_end > queue.segments_from > 1
    room.configure(1, model="dedicated")
    room.maintenance.look(room.now)
    never_returns(room)


def test_a_damaged_pack_is_left_alone() -> None:
    room = scattered()
    pack = room.read_disk.list("packs")[0]
    file = room.read_disk.open(f"packs/{pack}", write=True)
    data = bytearray(file.read(0, file.size()))
    data[100] ^= 1
    room.read_disk.replace(f"packs/{pack}", bytes(data))
    room.splitter = room.make_splitter()
    room.maintenance.look(room.now)
    for _ in range(3):
        gather(room)
    assert room.splitter.queues[1].segments_from > 0
    assert [place.file for _, place in room.splitter.damages] == [f"packs/{pack}"]
    room.now += 61_000
    gather(room)
    assert room.maintenance.compactor.tally.passes == 1, "the segments are compacted by themselves"


def test_everything_is_deleted_while_it_is_gathered() -> None:
    room = scattered()
    while room.maintenance.compact(room.now):
        pass
    room.checkpoint()
    queue = room.engine.queues[1]
    room.engine.paths[0].stage_fact(queue, StartMoved(queue.end), NOW)
    room.flush()
    room.split()
    for _ in range(3):
        room.checkpoint()
    room.fill(12)
    gather(room)
    assert newest(room) == {f"k{key}": "11" for key in range(5)} and room.findings() == []
    room.start(2)
    assert room.findings() == []
    room.fill(2)
    assert newest(room) == {f"k{key}": "1" for key in range(5)}


@pytest.mark.parametrize("power", [False, True])
def test_gathering_is_stopped_at_every_point(power: bool) -> None:
    countdown, finished = 0, False
    while not finished:
        countdown += 1
        room = scattered()
        state = newest(room)
        finished = not strikes(room, countdown, gather)
        room.stop(Random(countdown), power=power)
        assert room.findings() == [], countdown
        room.start(2)
        assert newest(room) == state, countdown
        assert len(room.aborted(1)) <= 1, countdown
        room.fill(6)
        for _ in range(3):
            gather(room)
        assert newest(room) == {**state, **{f"k{key}": "5" for key in range(5)}}, countdown
        assert room.splitter.queues[1].segments_from == 0, countdown
        keys = [key for _, key, _ in room.closed()]
        assert len(keys) == len(set(keys)), countdown
        assert room.findings() == [], countdown
    assert countdown > 30
