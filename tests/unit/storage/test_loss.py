"""Disks that are gone: what the other one tells of them, what is accepted, and a machine that stops while it is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from cairnmq.errors import Corrupt
from cairnmq.storage.format import CHECKPOINTS, PACKS, QUEUES, journal_segment
from cairnmq.storage.loss import Loss, accept, accepted, find_loss, find_metadata_loss
from cairnmq.testing.sim_checks import check_verify
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from unit.storage.split_room import NOW, Broker

Lose = Callable[[SimDisk, SimDisk], None]


def stocked() -> Broker:
    """Six records of queue 1 and three of queue 2 are checkpointed, four of each lie behind; queue 3 is empty."""
    broker = Broker("shared")
    for _ in range(3):
        broker.put(1, 1, 2)
    broker.split()
    broker.checkpoint()
    for _ in range(4):
        broker.put(1)
        broker.put(2)
    return broker


def lose_write_disk(journals: SimDisk, read: SimDisk) -> None:
    journals.remove_tree("0")
    journals.sync_dir("")


def lose_read_disk(journals: SimDisk, read: SimDisk) -> None:
    for name in (QUEUES, PACKS, CHECKPOINTS):
        read.remove_tree(name)
    read.sync_dir("")


def lose_a_segment(journals: SimDisk, read: SimDisk) -> None:
    """All but the last ones."""
    names = [name for name in journals.list("0") if name.endswith(".jnl")]
    assert len(names) > 3
    for name in names[:-2]:
        journals.remove(f"0/{name}")
    journals.sync_dir("0")


def found(broker: Broker) -> Loss:
    loss = find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())
    assert loss is not None
    return loss


def go_on(broker: Broker, loss: Loss, epoch: int) -> None:
    accept(broker.journal_disk, broker.read_disk, loss, epoch=epoch, seed=6, now_ms=NOW)
    broker.start(epoch)


def is_whole(broker: Broker) -> None:
    """It takes records, splits, checkpoints, starts again, and verify finds nothing."""
    ends = {number: queue.end for number, queue in broker.engine.queues.items()}
    before = {number: broker.offsets(number) for number in ends}
    broker.put(1, 2, 3)
    for epoch in (8, 9):
        broker.split()
        broker.checkpoint()
        assert {n: broker.offsets(n) for n in ends} == {n: [*before[n], ends[n]] for n in ends}
        check_verify(broker.journal_disk, broker.read_disk, broker.specs)
        broker.start(epoch)


def test_nothing_is_lost_of_disks_that_agree() -> None:
    broker = stocked()
    assert find_loss(broker.journal_disk, broker.read_disk, broker.specs.values()) is None
    fresh = Broker("shared")
    assert find_loss(fresh.journal_disk, fresh.read_disk, fresh.specs.values()) is None
    assert find_metadata_loss(SimDisk(Random(1)), SimDisk(Random(2))) is None


def test_write_disk() -> None:
    broker = stocked()
    lose_write_disk(broker.journal_disk, broker.read_disk)
    with pytest.raises(Corrupt):
        broker.start(2)
    loss = found(broker)
    assert [str(queue) for queue in loss.queues] == [
        "t-1: offsets 6 on, as many as there were",
        "t-2: offsets 3 on, as many as there were",
        "t-3: offsets 0 on, as many as there were",
    ]
    go_on(broker, loss, 3)
    assert [broker.offsets(number) for number in (1, 2, 3)] == [list(range(6)), list(range(3)), []]
    (remembered,) = accepted(broker.engine.keyed.items())
    assert remembered["epoch"] == 3 and remembered["queues"] == [str(queue) for queue in loss.queues]
    is_whole(broker)


def test_read_disk() -> None:
    broker = stocked()
    lose_read_disk(broker.journal_disk, broker.read_disk)
    with pytest.raises(Corrupt):
        broker.start(2)
    loss = found(broker)
    lost = {queue.partition: (queue.start, queue.end) for queue in loss.queues}
    go_on(broker, loss, 3)
    for number, everything in ((1, range(10)), (2, range(7))):
        start, end = lost[number]
        assert start == 0 and end is not None
        assert broker.offsets(number) == list(everything)[end:], "what the journal holds, where it was"
    assert lost[3] == (0, None)
    is_whole(broker)


def test_a_piece_of_the_journal() -> None:
    """Records before the gap are given up too: offsets of a queue are dense."""
    broker = stocked()
    lose_a_segment(broker.journal_disk, broker.read_disk)
    with pytest.raises(Corrupt):
        broker.start(2)
    loss = found(broker)
    assert "bytes before are gone" in loss.what[0]
    go_on(broker, loss, 3)
    assert broker.offsets(1)[-1] == 9, "offsets do not go back"
    is_whole(broker)


def test_metadata() -> None:
    broker = stocked()
    loss = find_metadata_loss(broker.journal_disk, broker.read_disk)
    assert loss is not None and (loss.epoch_max, loss.queue_id_max) == (1, 2)
    kept = {name for name in broker.journal_disk.list("0") if name.endswith(".jnl")}
    end = broker.engine.paths[0].journal.end
    broker.specs = {}
    go_on(broker, loss, 2)
    assert kept <= set(broker.journal_disk.list("lost/2/0")), "nothing is deleted"
    assert broker.journal_disk.list("0") == [journal_segment(0, end).partition("/")[2]]
    check_verify(broker.journal_disk, broker.read_disk, broker.specs)


@pytest.mark.parametrize("lose", [lose_write_disk, lose_read_disk, lose_a_segment])
def test_stopped_anywhere_in_between_the_next_start_does_it_again(lose: Lose) -> None:
    at, finished = 0, False
    while not finished:
        broker = stocked()
        lose(broker.journal_disk, broker.read_disk)
        loss = found(broker)
        disks = (broker.journal_disk, broker.read_disk)
        which, at = at % 2, at + 1
        disks[which].crash_at = disks[which].operations + at // 2 + 1
        try:
            accept(*disks, loss, epoch=3, seed=6, now_ms=NOW)
            finished = which == 1
        except SimCrash:
            pass
        broker.journal_disk, broker.read_disk = (disk.crash(Random(at)) for disk in disks)
        again = find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())
        if again is None:
            broker.start(4)
        else:
            go_on(broker, again, 4)
        is_whole(broker)
    assert at > 4
