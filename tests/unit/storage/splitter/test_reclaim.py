"""What is deleted goes after the checkpoint that says so."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.files.format import StartMoved
from cairnmq.storage.splitter.leaving import OutOfOrder, RetiredDirectory, Step
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from unit.storage.splitter_harness import NOW, Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_deleted_queues_are_skipped_and_forgotten(broker: Broker) -> None:
    broker.put(1, 2)
    broker.split()
    broker.checkpoint()
    broker.put(1, 2)
    spec = broker.specs.pop(1)
    broker.engine.drop_queues([1])
    broker.splitter.drop([(1, spec.directory)])
    broker.split()
    assert "t-1" not in broker.read_disk.list("queues")
    broker.checkpoint()
    assert broker.read_disk.list("queues") == ["t-2"]
    assert set(load_checkpoint(broker.read_disk).queues) == {2}
    assert broker.offsets(2) == [0, 1]


def test_a_successor_learns_of_deleted_queues_itself(broker: Broker) -> None:
    broker.put(1, 2)
    broker.split()
    broker.checkpoint()
    broker.specs.pop(1)
    broker.engine.drop_queues([1])
    broker.splitter = broker.make_splitter()
    broker.maintenance.look(NOW)
    broker.checkpoint()
    assert broker.read_disk.list("queues") == ["t-2"]
    assert set(load_checkpoint(broker.read_disk).queues) == {2}


def test_deleted_records_leave_the_disk_after_the_checkpoint(broker: Broker) -> None:
    broker = Broker(segment_bytes=120)
    broker.put(1, 1, 1)
    broker.split()
    broker.checkpoint()
    queue = broker.engine.queues[1]
    broker.engine.paths[0].stage_fact(queue, StartMoved(2), NOW)
    broker.flush()
    broker.split()
    assert len([n for n in broker.read_disk.list("queues/t-1") if n.endswith(".log")]) == 3
    broker.checkpoint()
    assert [n for n in broker.read_disk.list("queues/t-1") if n.endswith(".log")] == ["00000000000000000002.log"]
    assert broker.offsets(1) == [2]


def test_a_queue_emptied_by_deletion_keeps_its_end(broker: Broker) -> None:
    broker.put(1, 1, 1)
    broker.split()
    broker.engine.paths[0].stage_fact(broker.engine.queues[1], StartMoved(3), NOW)
    broker.flush()
    broker.split()
    broker.checkpoint()
    assert [n for n in broker.read_disk.list("queues/t-1") if n.endswith(".log")] == []
    broker.start(2)
    queue = broker.engine.queues[1]
    assert (queue.log_start, queue.end) == (3, 3)
    broker.put(1)
    broker.split()
    assert broker.offsets(1) == [3]


def stop_in_checkpoint_sync(disk: SimDisk) -> None:
    if disk.last_operation.startswith("sync checkpoints/"):
        raise SimCrash


def test_nothing_is_deleted_on_the_word_of_a_checkpoint_that_may_be_lost() -> None:
    """Killed between the checkpoint's write and its sync, started again, and then the power goes."""
    for seed in range(20):
        broker = Broker(segment_bytes=150)
        broker.put(1, 1, 1)
        broker.split()
        broker.checkpoint()
        broker.engine.paths[0].stage_fact(broker.engine.queues[1], StartMoved(2), NOW)
        broker.flush()
        broker.split()
        broker.read_disk.observe = stop_in_checkpoint_sync
        with pytest.raises(SimCrash):
            broker.checkpoint()
        broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.kill()
        broker.start(2)
        broker.put(1)
        broker.split()
        rng = Random(seed)
        broker.journal_disk, broker.read_disk = broker.journal_disk.crash(rng), broker.read_disk.crash(rng)
        broker.start(3)
        broker.split()
        broker.checkpoint()
        assert broker.offsets(1) == [2, 3]


def test_nothing_goes_before_the_broker_has_seen_the_checkpoint() -> None:
    broker = Broker("shared")
    for _ in range(2):
        broker.put(1, 2)
        broker.split()
        broker.checkpoint()
    splitter, packs = broker.splitter, broker.read_disk.list("packs")
    while broker.maintenance.step():
        pass
    assert splitter.has_merge and splitter.uncheckpointed
    merged = [name for name in broker.read_disk.list("packs") if name not in packs]
    splitter.seen(1 << 30)
    assert broker.read_disk.list("packs") == [*packs, *merged], "no checkpoint counts the merged one"
    published = splitter.checkpoint(NOW)
    splitter.seen(published.serial - 1)
    assert broker.read_disk.list("packs") == [*packs, *merged], "readers go by the checkpoint before"
    splitter.seen(published.serial)
    assert broker.read_disk.list("packs") == merged and len(packs) == 2
    assert not splitter.uncheckpointed


def test_a_removal_out_of_order_is_refused(broker: Broker) -> None:
    broker.put(1)
    broker.split()
    record = broker.splitter.reclaim.departures.begin(RetiredDirectory("queues/t-1"))
    with pytest.raises(OutOfOrder):
        record.take(Step.REMOVE)
    broker.splitter.reclaim.remove_unread(1 << 30)
    assert "t-1" in broker.read_disk.list("queues")
