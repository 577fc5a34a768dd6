"""A checkpoint whose report never reaches the broker: readers see the same before, after, and behind a successor."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from cairnmq.errors import Corrupt
from cairnmq.storage.check.verify import check
from cairnmq.storage.checkpoint.checkpoint import CheckpointLog, load_checkpoint
from cairnmq.storage.checkpoint.split_report import QueueSplit, Round
from cairnmq.storage.files.fault_point import arm
from cairnmq.storage.files.format import CHECKPOINTS, JOURNAL_SUFFIX, NO_SEGMENTS, CheckpointRows, StartMoved, numbered
from cairnmq.storage.splitter.progress import Unreported
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.compaction.test_pack_extraction import scattered
from unit.storage.compaction_harness import Room
from unit.storage.splitter_harness import NOW, Broker

Lose = Callable[[Broker], None]


def dies(broker: Broker) -> None:
    """The process ends between publish and report."""
    broker.splitter.checkpoint(NOW)
    broker.succeed()


def fails(broker: Broker) -> None:
    """Something behind the publish fails, and the same process tries again."""

    def refuse() -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    arm("checkpoint-report", refuse)
    with pytest.raises(OSError, match="not permitted"):
        broker.splitter.checkpoint(NOW)
    arm("", refuse)
    broker.try_again()


def cannot_be_synced(broker: Broker) -> None:
    """The publish itself says that it failed, and stands there all the same."""

    def refuse(disk: SimDisk) -> None:
        if disk.last_operation.startswith(f"sync {CHECKPOINTS}"):
            raise OSError(errno.EIO, "Input/output error")

    broker.splitter.checkpoints.settle()
    broker.read_disk.observe = refuse
    with pytest.raises(OSError, match="Input/output"):
        broker.splitter.checkpoint(NOW)
    broker.read_disk.observe = None
    broker.try_again()


@pytest.fixture(params=[dies, fails, cannot_be_synced], ids=lambda way: way.__name__)
def lose(request: pytest.FixtureRequest) -> Lose:
    way: Lose = request.param
    return way


def findings(broker: Broker) -> list[str]:
    return [str(f) for f in check(broker.read_disk, broker.journal_disk) if not f.is_note]


def demoted(**config: int) -> Broker:
    """Queue 1, with an aborted transaction, has just been put into a pack; a checkpoint must follow."""
    broker = Broker("dedicated", **config)
    broker.put(2, 2, 2)
    broker.abort(1, 7)
    broker.put(1)
    broker.split()
    broker.checkpoint()
    broker.configure(1, model="shared")
    broker.maintenance.look(NOW)
    broker.maintenance.look(NOW)
    assert broker.maintenance.demote()
    return broker


def test_aborted_records_are_not_served_after_a_demotion(lose: Lose) -> None:
    broker = demoted()
    aborted, committed = broker.aborted(1), broker.committed(1)
    assert (len(aborted), committed) == (1, [2])
    lose(broker)
    assert broker.engine.queues[1].segments_from == NO_SEGMENTS
    assert (broker.aborted(1), broker.committed(1)) == (aborted, committed)
    broker.put(1)
    broker.split()  # a round that says "in packs"
    assert (broker.aborted(1), broker.committed(1)) == (aborted, [2, 3])
    broker.checkpoint()
    assert broker.read_disk.list("queues") == ["t-2"] and findings(broker) == []
    assert (broker.aborted(1), broker.committed(1)) == (aborted, [2, 3])
    broker.start(2)
    assert (broker.aborted(1), broker.committed(1)) == (aborted, [2, 3])


def test_a_file_that_cannot_be_removed_behind_the_publish() -> None:
    """Found by an attack on storage: read_committed got the records of an aborted transaction."""
    broker = demoted(segment_bytes=120)
    aborted = broker.aborted(1)
    broker.engine.paths[0].stage_fact(broker.engine.queues[2], StartMoved(2), NOW)
    broker.flush()
    broker.split()

    def refuse(disk: SimDisk) -> None:
        if disk.last_operation.startswith("remove queues/t-2"):
            raise OSError(errno.EPERM, "Operation not permitted")

    broker.read_disk.observe = refuse
    with pytest.raises(OSError):
        broker.splitter.checkpoint(NOW)
    broker.read_disk.observe = None
    broker.try_again()
    broker.put(1)
    broker.split()
    assert (broker.aborted(1), broker.committed(1)) == (aborted, [2, 3])


def test_a_round_moves_no_queue_from_segments_to_packs() -> None:
    broker = Broker("dedicated")
    broker.abort(1, 7)
    broker.split()
    broker.engine.on_round(Round(0, broker.engine.split[0], 0, [QueueSplit(1, 2, NO_SEGMENTS, -1)]))
    assert broker.engine.queues[1].segments_from == 0 and len(broker.aborted(1)) == 1


def test_merged_packs_are_read(lose: Lose) -> None:
    broker = Broker("shared")
    for _ in range(2):
        broker.put(1, 2)
        broker.split()
    broker.checkpoint()
    while broker.maintenance.step():
        pass
    assert broker.splitter.has_merge
    lose(broker)
    assert broker.engine.pack_set.numbers == load_checkpoint(broker.read_disk).packs == [3]
    assert broker.read_disk.list("packs") == ["00000000000000000003.pack"]
    assert broker.offsets(1) == broker.offsets(2) == [0, 1]
    broker.put(1)
    broker.split()
    broker.checkpoint()
    assert broker.offsets(1) == [0, 1, 2] and findings(broker) == []


def test_a_promotion_that_a_round_has_told_stays(lose: Lose) -> None:
    broker = Broker("shared")
    aborted = [broker.abort(1, 7)]
    broker.split()
    broker.checkpoint()
    broker.configure(1, model="dedicated")
    aborted.append(broker.abort(1, 7))
    broker.split()
    lose(broker)
    assert broker.engine.queues[1].segments_from == 2 and broker.aborted(1) == aborted
    aborted.append(broker.abort(1, 7))
    broker.split()
    broker.checkpoint()
    assert broker.aborted(1) == aborted and findings(broker) == []


def test_compacted_segments_are_read(lose: Lose) -> None:
    room = Room()
    room.fill(12)
    state = room.state()  # a reader with old files open
    room.maintenance.look(NOW)
    while room.maintenance.compact(NOW):
        pass
    lose(room)
    assert room.state() == state
    room.fill(1)  # the successor opens the log, and its checkpoint tells of the swap
    room.checkpoint()
    assert load_checkpoint(room.read_disk).queues[1].compaction.swaps == ()
    assert room.state() == {key: "0" for key in state} and room.findings() == []


@pytest.mark.parametrize("step", range(1, 5))
def test_gathered_segments_are_read(lose: Lose, step: int) -> None:
    """Gathering takes three checkpoints; the report of any of them may be lost."""
    room = scattered(dirty_ratio_min=1.0)
    before, aborted = room.batches(), room.aborted(1)
    for number in range(1, 8):
        while room.maintenance.compact(room.now):
            pass
        if number == step:
            lose(room)
            room.maintenance.look(room.now)
        else:
            room.checkpoint()
        assert (room.batches(), room.aborted(1)) == (before, aborted)
    assert room.engine.queues[1].segments_from == 0 and room.findings() == []


def test_deleted_records_stay_deleted(lose: Lose) -> None:
    broker = Broker("dedicated", segment_bytes=120)
    broker.put(1, 1, 1)
    broker.split()
    broker.checkpoint()
    broker.engine.paths[0].stage_fact(broker.engine.queues[1], StartMoved(2), NOW)
    broker.flush()
    broker.split()
    lose(broker)
    assert broker.offsets(1) == [2]
    broker.put(1)
    broker.split()
    broker.checkpoint()
    assert broker.offsets(1) == [2, 3] and findings(broker) == []
    assert [n for n in broker.read_disk.list("queues/t-1") if n.endswith(".log")][0] == f"{2:020}.log"


def test_journals_stay_until_a_checkpoint_is_reported(lose: Lose) -> None:
    """The one that was found may be in the cache alone: a power loss would bring back the one before it."""
    broker = Broker("dedicated")
    broker.checkpoint()
    for _ in range(10):
        broker.put(1, 2)
    broker.split()
    before = broker.journal_disk.list("0")
    lose(broker)
    assert broker.journal_disk.list("0") == before and len(before) > 2
    assert broker.engine.checkpointed == broker.engine.split
    broker.checkpoint()
    assert len(numbered(broker.journal_disk.list("0"), JOURNAL_SUFFIX)) == 1


def test_a_splitter_does_not_go_on_behind_a_checkpoint_that_the_broker_does_not_know() -> None:
    broker = Broker()
    broker.put(1)
    broker.split()
    broker.splitter.checkpoint(NOW)
    with pytest.raises(Unreported, match="published, and not reported"):
        broker.make_splitter(broker.engine.resume())


def test_a_checkpoint_that_the_broker_knows_changes_nothing() -> None:
    broker = Broker()
    broker.put(1)
    broker.split()
    broker.checkpoint()
    broker.put(1)
    broker.split()
    assert broker.engine.scan_split() is None
    assert broker.engine.resume().positions == broker.engine.split


def test_an_older_checkpoint_is_refused_while_the_broker_runs() -> None:
    broker = Broker()
    broker.put(1)
    broker.split()
    broker.checkpoint()
    old = broker.read_disk.kill()
    broker.checkpoint()
    broker.engine.read_disk = old
    with pytest.raises(Corrupt, match="older"):
        broker.engine.scan_split()


def test_checkpoints_are_numbered_over_starts_and_rewrites() -> None:
    broker = Broker()
    for number in range(1, 4):
        broker.put(1)
        broker.split()
        broker.checkpoint()
        assert load_checkpoint(broker.read_disk).serial == broker.engine.serial == number
    broker.start(2)
    assert broker.engine.serial == 3
    log = CheckpointLog(broker.read_disk, load_checkpoint(broker.read_disk))
    log.settle()
    assert load_checkpoint(broker.read_disk).serial == 3, "the same checkpoint, in a new file"
    log.publish(CheckpointRows())
    assert load_checkpoint(broker.read_disk).serial == 4
