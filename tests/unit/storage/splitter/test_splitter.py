"""Rounds, checkpoints, successors, retention and deletion."""

from __future__ import annotations

import errno
from random import Random
from typing import cast

import pytest

from cairnmq.codec.records import Record, build_batch, decode_batch, iter_batches
from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.checkpoint.split_report import StartProposal
from cairnmq.storage.files.disk import File
from cairnmq.storage.files.format import Keyed, StartMoved, journal_segment
from cairnmq.storage.live import reads
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.splitter import split_queues
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from cairnmq.types import Buffer
from unit.storage.splitter_harness import NOW, Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_round_moves_records_from_the_tail_to_the_log(broker: Broker) -> None:
    broker.put(1, 2, 1, 3, 1)
    assert broker.engine.queues[1].tail is not None
    broker.split()
    assert [broker.engine.queues[n].split_end for n in (1, 2, 3)] == [3, 1, 1]
    assert broker.engine.queues[1].tail is None
    assert broker.offsets(1) == [0, 1, 2]
    assert broker.engine.split[0] == broker.engine.paths[0].journal.end
    assert broker.engine.paths[0].unsplit_entries == 0


def test_the_way_back_to_the_checkpoint_needs_all_of_the_journal(broker: Broker) -> None:
    """Else records that were split since would be read from logs that are in doubt."""
    broker.put(1, 1)
    broker.split()
    name = "0/" + broker.journal_disk.list("0")[0]
    file = broker.journal_disk.open(name, write=True)
    file.truncate(broker.engine.split[0] - 1)
    with pytest.raises(Corrupt, match="journal 0 is damaged"):
        broker.engine.scan_split(in_doubt=True)


def test_nothing_to_do(broker: Broker) -> None:
    assert broker.splitter.split(0, 0, NOW) is None


def test_only_whole_entries_below_the_limit_are_split(broker: Broker) -> None:
    broker.put(1, 1)
    done = broker.splitter.split(0, broker.engine.splittable(0) - 1, NOW)
    assert done is not None and done.batches == 1 and done.queues[0].end == 1


def test_a_checkpoint_lets_the_journal_go(broker: Broker) -> None:
    for _ in range(10):
        broker.put(1, 2)
    broker.split()
    assert len(broker.journal_disk.list("0")) > 3
    broker.checkpoint()
    assert [name[-4:] for name in broker.journal_disk.list("0")] == [".jnl", "nced"]
    image = load_checkpoint(broker.read_disk)
    assert image.marks[0].split == broker.engine.split[0]
    assert image.queues[1].end == 10
    broker.start(2)
    assert broker.engine.scans[0].entries == 0
    assert broker.offsets(1) == list(range(10))


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


def test_keyed_facts_reach_the_checkpoint(broker: Broker) -> None:
    path = broker.engine.paths[0]
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)):
        path.stage_fact(None, Keyed("offsets", key, value), NOW)
    broker.flush()
    broker.split()
    broker.checkpoint()
    assert load_checkpoint(broker.read_disk).keyed == {("offsets", b"a"): b"3"}


def test_a_successor_goes_on_and_syncs_what_its_predecessor_wrote(broker: Broker) -> None:
    broker.put(1, 2)
    broker.split()
    broker.succeed()
    broker.checkpoint()
    for seed in range(20):
        broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.crash(Random(seed))
        broker.start(2 + seed)
        assert broker.engine.scans[0].entries == 0
        assert broker.offsets(1) == broker.offsets(2) == [0]


def test_a_successor_cuts_what_was_not_reported(broker: Broker) -> None:
    broker.put(1)
    broker.split()
    broker.put(1)
    broker.splitter.split(0, broker.engine.splittable(0), NOW)  # dies before its report
    broker.succeed()
    broker.split()
    assert broker.offsets(1) == [0, 1]
    size = broker.read_disk.open("queues/t-1/00000000000000000000.log").size()
    assert size % 2 == 0 and broker.engine.queues[1].split_end == 2


def test_after_a_failed_sync_nothing_is_checkpointed(broker: Broker) -> None:
    broker.put(1)
    broker.split()
    broker.read_disk.faults[broker.read_disk.operations + 1] = errno.EIO
    with pytest.raises(OSError):
        broker.splitter.checkpoint(NOW)
    with pytest.raises(Fault, match="split again"):
        broker.splitter.checkpoint(NOW)
    broker.put(1)
    with pytest.raises(Fault, match="split again"):
        broker.splitter.split(0, broker.engine.splittable(0), NOW)
    # the next start makes all of it again, so that no page that was lost is believed
    broker.start(2)
    broker.split()
    broker.checkpoint()
    for seed in range(20):
        broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.crash(Random(seed))
        broker.start(3 + seed)
        assert broker.offsets(1) == [0, 1]


def test_unreadable_journal_bytes_are_damage(broker: Broker) -> None:
    broker.put(1)
    broker.journal_disk.damage("0/00000000000000000000.jnl", 60)
    with pytest.raises(Corrupt, match="do not read back"):
        broker.splitter.split(0, broker.engine.splittable(0), NOW)
        broker.splitter.split(0, broker.engine.splittable(0), NOW)


class HalfWritten:
    """A file that fails after two whole entries, and then cannot be cut."""

    def __init__(self, file: File) -> None:
        self.file = file

    def append(self, buffers: list[Buffer]) -> int:
        self.file.append(buffers[:4])
        raise OSError(errno.EIO, "no")

    def truncate(self, size: int) -> None:
        raise OSError(errno.EIO, "no")


def stage(broker: Broker, *values: bytes) -> None:
    for value in values:
        batch = build_batch([Record(offset=0, timestamp=NOW, key=None, value=value)])
        broker.engine.paths[0].stage(broker.engine.queues[1], memoryview(bytearray(batch)), -1, NOW)


def values(broker: Broker) -> list[bytes | None]:
    queue = broker.engine.queues[1]
    fetched = broker.engine.reads.read(queue, queue.log_start, 10_000, whole=True, cached=False)
    assert isinstance(fetched, Batches)
    return [record.value for data in fetched.buffers for batch in iter_batches(data) for record in decode_batch(batch)]


def test_what_a_failed_write_left_behind_is_not_split(broker: Broker) -> None:
    path = broker.engine.paths[0]
    journal = path.journal
    stage(broker, b"first")
    broker.flush()
    broker.split()
    stage(broker, b"refused", b"refused too")
    write, last = path.take(), journal.segments[-1]
    assert write is not None
    file, last.file = last.file, cast(File, HalfWritten(last.file))
    with pytest.raises(OSError):
        path.write(write)
    path.failed(write, "no")
    last.file = file
    assert file.size() > last.size, "whole entries that were refused"
    stage(broker, b"acknowledged")
    broker.flush()
    broker.split()
    assert values(broker) == [b"first", b"acknowledged"]
    broker.checkpoint()
    broker.start(2)
    assert broker.engine.scans[0].damage is None and values(broker) == [b"first", b"acknowledged"]


def test_a_segment_that_came_to_nothing_does_not_stand_in_for_the_one_that_took_its_name(broker: Broker) -> None:
    stage(broker, b"first")
    broker.flush()
    name = journal_segment(0, broker.engine.paths[0].journal.end)
    broker.journal_disk.create(name).append([b"half a head"])
    broker.split()  # while that write is failing
    broker.journal_disk.remove(name)
    broker.engine.paths[0].journal.mended()
    stage(broker, b"second")
    broker.flush()
    broker.split()
    assert values(broker) == [b"first", b"second"]


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


def test_retention_proposes_starts(broker: Broker) -> None:
    broker = Broker(segment_bytes=120, retention_ms=1000)
    broker.put(1, 1, timestamp=NOW - 1001)
    broker.put(1, timestamp=NOW - 10)
    broker.put(2, timestamp=NOW - 10)
    broker.split()
    assert broker.maintenance.look(NOW) == [StartProposal(1, 2)]
    assert broker.maintenance.look(NOW - 500) == []


def test_retention_by_size(broker: Broker) -> None:
    broker = Broker(segment_bytes=120, retention_ms=-1, retention_bytes=120)
    broker.put(1, 1, 1)
    broker.split()
    assert broker.maintenance.look(NOW) == [StartProposal(1, 1)]


def test_a_torn_directory_does_not_stop_retention(broker: Broker) -> None:
    broker.put(1, 2)
    broker.split()
    broker.read_disk.open("queues/t-1/queue.json", write=True).truncate(3)
    broker.splitter = broker.make_splitter()
    assert broker.maintenance.look(NOW) == []


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


def test_readers_of_queues_that_others_displace_are_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps files open; there may be more queues than a process may have files."""
    monkeypatch.setattr(reads, "READERS_MAX", 2)
    broker = Broker()
    for _ in range(3):
        broker.put(1, 2, 3)
    broker.split()
    for _ in range(2):
        for number in (1, 2, 3):
            assert broker.offsets(number) == [0, 1, 2]
            assert sum(queue.reader is not None for queue in broker.engine.queues.values()) <= 2


def test_a_successor_asks_for_many_queues_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.put(1, 2, 3)
    broker.put(3, 2, 1)
    broker.split()
    asked: list[list[int]] = []
    resolve = broker.splitter.specs
    successor = Splitter(
        broker.journal_disk,
        broker.read_disk,
        load_checkpoint(broker.read_disk),
        lambda ids: asked.append(ids) or resolve(ids),  # type: ignore[func-returns-value]
        journals=[0],
        resume=broker.splitter.resume(),
    )
    monkeypatch.setattr(split_queues, "LEARNED_AT_ONCE", 2)
    successor.replay(NOW)
    assert asked == [[1, 2], [3]]
    assert successor.positions == broker.splitter.positions
