"""Opening a data directory: a torn tail is cut, damage is named, nothing is believed that was not synced."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt, ErrorCode, Refusal
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import CheckpointLog, load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.damage import Place
from cairnmq.storage.files.format import (
    SEGMENT,
    CheckpointRows,
    JournalMark,
    Keyed,
    Leader,
    QueueRow,
    StartMoved,
    journal_segment,
    segment_entry,
    whole_frame,
)
from cairnmq.storage.journal.entries import seal_batch
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.owner import Owner, write_owner
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.types import Counters

SPECS = [QueueSpec(number, "t", number, bytes(16), LogConfig()) for number in (1, 2)]


class Broker:
    """Two disks and the engine that runs on them."""

    def __init__(
        self, journal_disk: SimDisk, read_disk: SimDisk, epoch: int, cycle: Sequence[int] = (0,), **config: int
    ) -> None:
        self.journal_disk, self.read_disk, self.epoch = journal_disk, read_disk, epoch
        specs = [replace(spec, journal=cycle[spec.queue_id % len(cycle)]) for spec in SPECS]
        self.engine = Engine.open(
            journal_disk, read_disk, specs, begin=lambda _: epoch, seed=5, config=EngineConfig(**config), now_ms=1000
        )

    def put(self, queue_id: int = 1, value: bytes = b"v" * 20, *, sync: bool = True) -> int:
        """Returns the position behind it."""
        queue = self.engine.queues[queue_id]
        batch = build_batch([Record(offset=0, timestamp=1, key=None, value=value)])
        path = self.engine.path_of(queue)
        path.stage(queue, memoryview(bytearray(batch)), -1, 1000)
        return self.flush(queue.journal, sync=sync)

    def flush(self, journal: int = 0, *, sync: bool = True) -> int:
        path = self.engine.paths[journal]
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
        if sync:
            path.synced_to(path.sync())
        return path.journal.end

    def killed(self, cycle: Sequence[int] = (0,), **config: int) -> Broker:
        return Broker(self.journal_disk.kill(), self.read_disk.kill(), self.epoch + 1, cycle, **config)


@pytest.fixture
def broker() -> Broker:
    return Broker(SimDisk(Random(1)), SimDisk(Random(2)), 1)


FIRST = "0/00000000000000000000.jnl"


def test_a_torn_tail_is_cut(broker: Broker) -> None:
    end = broker.put()
    broker.put(sync=False)
    broker.journal_disk.damage(FIRST, end + 40)
    after = broker.killed()
    scan = after.engine.scans[0]
    assert scan.end == end and scan.cut_bytes > 0 and scan.entries == 1
    assert after.engine.queues[1].end == 1
    assert after.journal_disk.open(FIRST).size() == end


def test_damage_below_a_later_claim_stops_and_names_the_place(broker: Broker) -> None:
    first = broker.put()
    broker.put()
    broker.put()
    broker.journal_disk.damage(FIRST, first + 40)
    size = broker.journal_disk.open(FIRST).size()
    after = broker.killed()
    assert after.engine.scans[0].damage == Place(FIRST, first)
    stopped = after.engine.paths[0].stopped
    assert stopped is not None and f"journal 0 is damaged at position {first} (file {FIRST} at {first})" in stopped
    queue = after.engine.queues[1]
    assert (queue.end, queue.high_watermark) == (1, 1), "what lies before the damage is read"
    batch = memoryview(bytearray(build_batch([Record(offset=0, timestamp=1, key=None, value=b"v")])))
    refusal = after.engine.paths[0].stage(queue, batch, -1, 1000)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert after.journal_disk.open(FIRST).size() == size, "nothing is cut"
    assert after.killed().engine.scans[0].damage == Place(FIRST, first), "and the next start says so again"


@pytest.mark.parametrize(("own", "damaged"), [((1,), False), ((1, 7), True), ((), True)])
def test_only_claims_of_this_node_are_about_this_disk(broker: Broker, own: tuple[int, ...], damaged: bool) -> None:
    """A follower has the leader's entries: what they call synced had reached the leader's disk. A bad one behind what
    was synced here is a torn tail. Where nobody knows who led, every claim counts."""
    first = broker.put()
    broker.engine.paths[0].journal.close()
    leader, seed = Leader(7, 1), broker.engine.paths[0].journal.seed
    path = broker.journal_disk
    copied = path.open(FIRST).read(0, first)
    head = segment_entry(0, seed, 1, 0, 0, leader)
    # the same journal, as node 7 has written it and synced it before it sent the second batch
    body = copied[len(head) :]
    second = memoryview(bytearray(build_batch([Record(offset=0, timestamp=1, key=None, value=b"w" * 20)])))
    frame = seal_batch(second, 1, 1, 1, first, seed, 0)
    path.replace(FIRST, head + body + frame + bytes(second))
    path.remove("0/synced")
    write_owner(path, Owner("c", 2, Counters(), (1,), nodes=own))
    path.damage(FIRST, len(head) + 40)
    scan = broker.killed().engine.scans[0]
    assert (scan.damage is not None) is damaged
    assert scan.end == len(head) and (scan.cut_bytes > 0) is not damaged


def test_what_the_checkpoint_knew_to_be_synced_is_not_cut(broker: Broker) -> None:
    end = broker.put()
    broker.put()
    publish(broker, end, QueueRow(1, 0, 1, ((1, 0),)), synced=broker.engine.paths[0].journal.synced)
    broker.journal_disk.damage(FIRST, end + 40)
    assert broker.killed().engine.scans[0].damage == Place(FIRST, end)


def test_whole_entries_behind_a_torn_one_prove_nothing(broker: Broker) -> None:
    end = broker.put()
    broker.put(sync=False)
    broker.put(sync=False)
    broker.journal_disk.damage(FIRST, end + 40)
    assert broker.killed().engine.scans[0].end == end


@pytest.mark.parametrize(
    "head",
    [segment_entry(0, 0, 1, 1 << 40, 0, Leader(1, 1)), whole_frame(SEGMENT, 1, 0, 1 << 40, b"", 0)],
    ids=["another seed", "none"],
)
def test_a_segment_s_head_inside_a_message_proves_nothing(broker: Broker, head: bytes) -> None:
    """Its CRC is unseeded, so a client can write one; it does not know the seed that stands in it."""
    end = broker.put()
    broker.put(value=b"torn" * 20 + head, sync=False)
    broker.journal_disk.damage(FIRST, end + 40)
    after = broker.killed()
    assert after.engine.scans[0].damage is None and after.engine.scans[0].end == end


def test_after_a_kill_written_means_synced(broker: Broker) -> None:
    """In every segment, not only in the last one."""
    broker = Broker(SimDisk(Random(1)), SimDisk(Random(2)), 1, segment_bytes=100)
    for _ in range(4):
        end = broker.put(sync=False)
    after = broker.killed(segment_bytes=100)
    for seed in range(20):
        crashed = Broker(after.journal_disk.crash(Random(seed)), after.read_disk.crash(Random(seed)), 9)
        assert crashed.engine.scans[0].end == end


def test_a_later_segment_without_the_first_was_never_synced(broker: Broker) -> None:
    broker = Broker(SimDisk(Random(1)), SimDisk(Random(2)), 1, segment_bytes=100)
    broker.put(value=b"v" * 100, sync=False)
    broker.put(sync=False)
    broker.journal_disk.remove(FIRST)
    after = broker.killed()
    assert after.engine.scans[0].end == 0 and after.journal_disk.list("0") == []


def test_missing_segments_are_damage(broker: Broker) -> None:
    broker = Broker(SimDisk(Random(1)), SimDisk(Random(2)), 1, segment_bytes=100)
    broker.put(value=b"v" * 100)
    broker.put()
    broker.journal_disk.remove(FIRST)
    with pytest.raises(Corrupt, match="journal 0 starts at"):
        broker.killed()


def publish(broker: Broker, split: int, *rows: QueueRow, synced: int = 0) -> None:
    log = CheckpointLog(broker.read_disk, load_checkpoint(broker.read_disk))
    log.publish(CheckpointRows(queues=list(rows), marks=[JournalMark(0, split, max(split, synced), 1, 5)]))


def test_an_empty_write_disk_is_noticed(broker: Broker) -> None:
    publish(broker, broker.put(), QueueRow(1, 0, 1))
    with pytest.raises(Corrupt, match="write disk is missing"):
        Broker(SimDisk(Random(1)), broker.read_disk.kill(), 2)


def test_a_journal_shorter_than_the_checkpoint_goes_on_there(broker: Broker) -> None:
    """All that is missing is in queue logs. The journal took no write any more, for good."""
    end = broker.put()
    publish(broker, end, QueueRow(1, 0, 1))
    broker.journal_disk.open(FIRST, write=True).truncate(end - 1)
    after = broker.killed()
    scan = after.engine.scans[0]
    assert scan.damage is None and scan.hole == Place(FIRST, end - 1) and scan.end == end
    assert after.engine.queues[1].end == 1 and not after.engine.queues[1].cut_short
    after.put()
    again = after.killed()
    assert again.engine.queues[1].end == 2 and again.engine.scans[0].hole is None
    journal = again.engine.paths[0].journal
    assert [segment.base for segment in journal.segments] == [0, end]
    assert journal.remove_below(end) and again.journal_disk.list("0") == [f"{end:020d}.jnl", "synced"]


def test_a_journal_shorter_than_the_checkpoint_goes_on_there_also_when_nothing_was_written(broker: Broker) -> None:
    end = broker.put()
    publish(broker, end, QueueRow(1, 0, 1))
    broker.journal_disk.open(FIRST, write=True).truncate(end - 1)
    again = broker.killed().killed().killed()
    assert again.engine.scans[0].hole == Place(FIRST, end - 1)
    again.put()
    assert again.killed().engine.queues[1].end == 2


def test_checkpointed_facts_and_scanned_ones_add_up(broker: Broker) -> None:
    for _ in range(3):
        split = broker.put()
    publish(broker, split, QueueRow(1, 0, 3, ((1, 0),)))
    path, queue = broker.engine.paths[0], broker.engine.queues[1]
    path.stage_fact(queue, StartMoved(2), 1000)
    path.stage_fact(None, Keyed("offsets", b"g", b"3"), 1000)
    broker.flush()
    broker.put(2)
    after = broker.killed().engine
    assert after.scans[0].start == split and after.scans[0].entries == 1
    one, two = after.queues[1], after.queues[2]
    assert (one.log_start, one.end, one.split_end, one.tail) == (2, 3, 3, None)
    assert (two.log_start, two.end, two.split_end) == (0, 1, 0) and two.tail is not None
    assert after.keyed == {("offsets", b"g"): b"3"}
    assert after.scans[0].queue_id_max == 2


def test_the_epoch_must_rise(broker: Broker) -> None:
    broker.put()
    with pytest.raises(Corrupt, match="epoch 1 is not above 1"):
        Broker(broker.journal_disk.kill(), broker.read_disk.kill(), 1)


def test_a_queue_stays_where_its_unsplit_entries_are(broker: Broker) -> None:
    """Of an earlier version, by which a queue went where `cairn.journals` said: that was raised after a kill, and the
    cycle that the topic got now says journal 1."""
    broker.put(1)
    after = broker.killed((0, 1))
    assert after.engine.queues[1].journal == 0
    assert len(after.engine.paths) == 2
    after.put(1)
    again = after.killed((0, 1)).engine
    assert again.queues[1].end == 2 and again.queues[1].journal == 0


def test_a_journal_that_no_topic_names_is_kept_while_it_exists(broker: Broker) -> None:
    broker = Broker(SimDisk(Random(1)), SimDisk(Random(2)), 1, (0, 1))
    broker.put(1)
    broker.put(2)
    after = broker.killed((0,)).engine
    assert [after.queues[number].end for number in (1, 2)] == [1, 1]
    assert (after.queues[1].journal, after.queues[2].journal) == (1, 0)


def test_after_a_failed_sync_the_next_start_writes_everything_again(broker: Broker) -> None:
    """The pages read well, another sync would succeed, and they are not on disk."""
    broker.put()
    end = broker.put(sync=False)
    broker.journal_disk.faults[broker.journal_disk.operations + 1] = errno.EIO
    with pytest.raises(OSError):
        broker.engine.paths[0].sync()
    broker.journal_disk.faults.clear()
    after = broker.killed()
    assert after.engine.scans[0].end == end
    assert after.journal_disk.list("0") == [FIRST.partition("/")[2], "synced"]
    for seed in range(20):
        crashed = Broker(after.journal_disk.crash(Random(seed)), after.read_disk.crash(Random(seed)), 9)
        assert crashed.engine.scans[0].end == end


def test_a_sync_that_fails_in_a_start_is_not_believed_by_the_next_one(broker: Broker) -> None:
    broker.put()
    end = broker.put(sync=False)
    disk = broker.journal_disk = broker.journal_disk.kill()
    disk.faults[1] = errno.EIO
    with pytest.raises(OSError):
        Broker(disk, broker.read_disk, 2)
    disk.faults.clear()
    assert "doubt" in disk.list("0")
    after = Broker(disk, broker.read_disk, 3)
    assert after.engine.scans[0].end == end
    assert disk.list("0") == [FIRST.partition("/")[2], "synced"]
    for seed in range(20):
        crashed = Broker(disk.crash(Random(seed)), after.read_disk.crash(Random(seed)), 9)
        assert crashed.engine.scans[0].end == end


def test_a_failed_sync_that_cannot_be_noted_says_what_to_do(broker: Broker) -> None:
    broker.put(sync=False)
    at = broker.journal_disk.operations
    broker.journal_disk.faults = {at + 1: errno.EIO, at + 2: errno.EROFS}
    with pytest.raises(OSError, match=r"no note of it could be left \(Read-only file system\): unmount the disk"):
        broker.engine.paths[0].sync()


def test_what_an_unfinished_start_left_goes(broker: Broker) -> None:
    broker.put()
    broker.journal_disk.create(FIRST + ".new").append([b"half"])
    assert broker.killed().journal_disk.list("0") == [FIRST.partition("/")[2], "synced"]


def test_what_a_failed_write_left_does_not_come_back_when_the_file_behind_it_is_cut(broker: Broker) -> None:
    """A start that is killed between the two would make the next one read it."""
    end = broker.put()
    broker.put(value=b"failed" * 5, sync=False)
    behind = broker.journal_disk.create(journal_segment(0, end))
    behind.append([b"torn"])
    broker.journal_disk.sync_dir("0")
    stopped: list[SimDisk] = []
    disk = broker.journal_disk.kill()
    disk.observe = lambda disk: stopped.extend([disk.kill(), *(disk.crash(Random(seed)) for seed in range(20))])
    Broker(disk, broker.read_disk.kill(), 2)
    assert len(stopped) > 100
    for found in stopped:
        reader = JournalReader(found, 0)
        if reader.bases == [0]:
            assert reader.end() <= end
