"""The ack table on one journal, and what a failed write takes back."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.topic import Flush, LogConfig
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files.format import Keyed, Leader, StartMoved
from cairnmq.storage.journal.journal import Journal, JournalReader
from cairnmq.storage.live.ack_policy import DURABLE, NONE_FLUSH_MS, AckPoint
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.write_path import Placed, WritePath
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.recovery.replay import scan_journal
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.replica_harness import Leading

NOW = 5000


def batch(count: int = 1, sequence: int = -1) -> memoryview:
    records = [Record(offset=0, timestamp=NOW - 10 + n, key=None, value=b"v") for n in range(count)]
    pid = 8 if sequence >= 0 else -1
    return memoryview(
        bytearray(build_batch(records, producer_id=pid, producer_epoch=min(0, pid), base_sequence=sequence))
    )


class Journaled:
    """A queue on a journal of its own."""

    def __init__(self, flush: Flush = "commit", seed: int = 1, **config: int) -> None:
        self.disk = SimDisk(Random(seed))
        self.disk.make_dir("0")
        self.disk.sync_dir("")
        journal = Journal(self.disk, 0, epoch=4, leader=Leader(1, 4), seed=9, segments=[], end=0, segment_bytes=1 << 20)
        self.path = WritePath(journal)
        spec = QueueSpec(1, "t", 0, bytes(16), LogConfig(flush=flush, **config))  # type: ignore[arg-type]
        self.queue = Queue(spec, QueueState())
        self.heard: list[tuple[str, bool]] = []

    def stage(self, acks: int = -1, count: int = 1, sequence: int = -1, name: str = "") -> Placed:
        placed = self.path.stage(self.queue, batch(count, sequence), acks, NOW)
        assert isinstance(placed, Placed), placed
        durable = acks == -1 and self.queue.config.flush == "commit"
        assert (placed.level is DURABLE) == durable
        line = self.path.lines.when_durable if durable else self.path.lines.when_written
        line(placed.end, lambda met: self.heard.append((name, met)))
        return placed

    def write(self) -> None:
        write = self.path.take()
        assert write is not None
        self.path.write(write)
        self.path.written(write)

    def fail(self) -> None:
        write = self.path.take()
        assert write is not None
        self.disk.faults[self.disk.operations + 1] = self.disk.faults[self.disk.operations + 2] = errno.ENOSPC
        with pytest.raises(OSError):
            self.path.write(write)
        self.disk.faults.clear()
        self.path.failed(write, "no space")

    def sync(self) -> None:
        self.path.sync_begins()
        self.path.synced_to(self.path.sync())

    def after_power_loss(self) -> Queue:
        """The queue as a recovery finds it if the power is lost now."""
        queue = Queue(self.queue.spec, QueueState())
        scan_journal(self.disk.crash(), 0, CheckpointImage(), {1: queue}, {}, now_ms=NOW)
        return queue


@pytest.mark.parametrize(
    ("flush", "acks", "written"),
    [("commit", -1, False), ("commit", 1, True), ("interval", -1, True), ("none", -1, True)],
)
def test_the_ack_table(flush: Flush, acks: int, written: bool) -> None:
    on = Journaled(flush)
    on.stage(acks)
    assert on.heard == [] and on.queue.high_watermark == 0
    on.write()
    assert (on.heard == [("", True)]) == written
    assert on.queue.high_watermark == (1 if written else 0) and on.queue.end == 1
    on.sync()
    assert on.heard == [("", True)] and on.queue.high_watermark == 1


def test_a_record_is_visible_only_behind_all_earlier_ones() -> None:
    on = Journaled()
    on.stage(-1, name="all")
    on.write()
    on.stage(1, name="one")
    on.write()
    assert on.heard == [("one", True)] and on.queue.high_watermark == 0
    on.sync()
    assert on.queue.high_watermark == 2


def test_a_sync_shows_only_what_it_covers() -> None:
    on = Journaled()
    on.stage(name="first")
    on.write()
    position = on.path.sync()
    on.stage(name="second")
    on.write()
    on.path.synced_to(position)
    assert on.heard == [("first", True)] and on.queue.high_watermark == 1
    on.sync()
    assert on.heard == [("first", True), ("second", True)] and on.queue.high_watermark == 2


def test_offset_epoch_and_append_time_are_put_in() -> None:
    on = Journaled(append_time=True)
    on.stage(count=3)
    data = batch(2)
    placed = on.path.stage(on.queue, data, -1, NOW + 7)
    assert isinstance(placed, Placed) and (placed.base_offset, placed.append_time) == (3, NOW + 7)
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (3, 4)
    assert [record.timestamp for record in decode_batch(data)] == [NOW + 7, NOW + 7]


def test_a_failed_write_takes_back_offsets_sequences_epochs_and_answers() -> None:
    on = Journaled()
    on.stage(count=2, sequence=0, name="kept")
    on.write()
    before = (on.queue.state.end, on.queue.state.epochs.copy(), dict(on.queue.state.producers))
    on.stage(count=2, sequence=2, name="lost")
    on.path.stage_fact(None, Keyed("s", b"k", b"v"), NOW)
    write = on.path.take()
    assert write is not None
    on.stage(count=1, sequence=4, name="staged behind")
    on.disk.faults[on.disk.operations + 1] = errno.EIO
    with pytest.raises(OSError):
        on.path.write(write)
    on.path.failed(write, "no")
    assert (on.queue.state.end, on.queue.state.epochs, on.queue.state.producers) == before
    assert sorted(on.heard) == [("lost", False), ("staged behind", False)]
    on.sync()
    assert on.heard[-1] == ("kept", True) and on.queue.high_watermark == 2
    assert on.stage(count=2, sequence=2).base_offset == 2


def test_the_first_batch_can_be_taken_back() -> None:
    on = Journaled()
    on.stage(sequence=0)
    on.fail()
    assert (on.queue.state.end, on.queue.state.epochs, on.queue.state.producers) == (0, [], {})


def test_duplicates_get_the_old_offset() -> None:
    on = Journaled()
    on.stage(count=2, sequence=0)
    again = on.path.stage(on.queue, batch(2, 0), -1, NOW)
    assert isinstance(again, Placed) and again.is_duplicate and again.base_offset == 0
    assert again.end == on.path.journal.staged_end
    gap = on.path.stage(on.queue, batch(2, 7), -1, NOW)
    assert isinstance(gap, Refusal) and gap.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert on.queue.state.end == 2


def test_a_moved_start_counts_when_written() -> None:
    on = Journaled()
    on.stage(count=5)
    on.write()
    on.sync()
    on.path.stage_fact(on.queue, StartMoved(3), NOW)
    assert on.queue.log_start == 0
    on.write()
    assert on.queue.log_start == 3


def test_a_start_that_is_there_already_is_told_when_its_move_is_synced() -> None:
    """Whoever moved it: here another request, in another turn of the loop."""
    on = Journaled("none", flush_ms=70)
    on.stage(acks=1, count=5)
    on.write()
    assert on.path.stage_start(on.queue, 0, NOW) == AckPoint(0, DURABLE, 0), "it never moved"
    moved = on.path.stage_start(on.queue, 3, NOW)
    on.write()
    on.stage(acks=1, name="later")
    on.write()
    heard = []
    for offset in (1, 3):
        position = on.path.stage_start(on.queue, offset, NOW)
        assert isinstance(position, AckPoint) and position == moved, "not behind records that nobody syncs soon"
        on.path.lines.when_durable(position.end, heard.append)
    assert heard == []
    on.sync()
    assert heard == [True, True] and on.path.take() is None, "and nothing was written for it"


def test_a_start_that_is_there_already_does_not_wait_for_what_was_staged_since() -> None:
    """It stood behind that in the line: when the later write failed, nobody told it of a sync that was over."""
    on = Journaled()
    on.stage(count=5)
    on.write()
    on.path.stage_start(on.queue, 3, NOW)
    on.write()
    on.stage(name="later")
    position = on.path.stage_start(on.queue, 3, NOW)
    heard: list[bool] = []
    assert isinstance(position, AckPoint)
    on.path.lines.when_durable(position.end, heard.append)
    on.sync()
    on.fail()
    assert heard == [True] and on.heard[-1] == ("later", False)


def test_a_move_that_was_taken_back_is_not_waited_for() -> None:
    on = Journaled()
    on.stage(count=5)
    on.write()
    first = on.path.stage_start(on.queue, 2, NOW)
    on.write()
    on.path.stage_start(on.queue, 3, NOW)
    on.fail()
    assert on.queue.log_start == 2 and on.path.stage_start(on.queue, 1, NOW) == first


def test_a_start_in_doubt_is_not_told_by_a_stopped_journal() -> None:
    on = Journaled()
    on.stage(count=5)
    on.write()
    on.path.stage_start(on.queue, 2, NOW)
    on.write()
    on.path.stop("the disk is broken")
    assert isinstance(on.path.stage_start(on.queue, 2, NOW), Refusal)
    on.sync()
    assert not isinstance(on.path.stage_start(on.queue, 2, NOW), Refusal), "recovered from the failed sync"
    assert isinstance(on.path.stage_start(on.queue, 3, NOW), Refusal)


@pytest.mark.parametrize("again", [False, True])
def test_no_power_loss_undoes_a_start_that_was_told(again: bool) -> None:
    """`again`: the second of two requests for the same start, which stages nothing of its own."""
    undone = 0
    for seed in range(20):
        on = Journaled(seed=seed)
        on.stage(count=5)
        on.write()
        on.sync()
        told: list[bool] = []
        position = on.path.stage_start(on.queue, 3, NOW)
        on.write()
        if again:
            position = on.path.stage_start(on.queue, 3, NOW)
        assert isinstance(position, AckPoint)
        on.path.lines.when_durable(position.end, told.append)
        if not told:
            on.sync()
        assert told == [True]
        undone += on.after_power_loss().log_start < 3
    assert undone == 0


@pytest.mark.parametrize(
    ("flush", "acks", "wait"),
    [
        *(("commit", -1, 0), ("commit", 1, 70), ("commit", 0, 70)),
        *(("interval", -1, 70), ("interval", 0, 70)),
        *(("none", -1, NONE_FLUSH_MS), ("none", 1, 70), ("none", 0, 70)),
    ],
)
def test_when_a_sync_is_due(flush: Flush, acks: int, wait: int) -> None:
    on = Journaled(flush, flush_ms=70)
    on.stage(acks)
    assert on.path.sync_by_ms is None
    on.write()
    assert on.path.sync_by_ms == NOW + wait
    on.sync()
    assert on.path.sync_by_ms is None


def test_flush_messages_asks_for_a_sync() -> None:
    on = Journaled("interval", flush_ms=70, flush_messages=3)
    on.stage(count=2)
    on.write()
    assert on.path.sync_by_ms == NOW + 70
    on.stage(count=1)
    on.write()
    assert on.path.sync_by_ms == NOW


def test_a_sync_that_began_before_a_write_does_not_clear_its_deadline() -> None:
    on = Journaled("interval", flush_ms=70)
    on.stage()
    on.write()
    on.path.sync_begins()
    position = on.path.sync()
    on.stage()
    on.write()
    on.path.synced_to(position)
    assert on.path.sync_by_ms == NOW + 70


def test_a_stopped_path_says_why() -> None:
    on = Journaled()
    on.stage(name="waits")
    on.write()
    on.path.stop("the disk is broken")
    assert on.heard == [("waits", False)]
    refusal = on.path.stage(on.queue, batch(), -1, NOW)
    assert isinstance(refusal, Refusal) and refusal.message == "the disk is broken"
    assert isinstance(on.path.stage_fact(None, Keyed("s", b"k", None), NOW), Refusal)


def test_less_than_a_header_is_refused() -> None:
    on = Journaled()
    assert isinstance(on.path.stage(on.queue, memoryview(bytearray(60)), -1, NOW), Refusal)


def test_a_batch_that_cannot_be_written_to_moves_nothing() -> None:
    """Its offset would be missing for ever, and the producer's next try would count as a duplicate."""
    on = Journaled()
    with pytest.raises((BufferError, TypeError)):
        on.path.stage(on.queue, batch(2, sequence=0).toreadonly(), -1, NOW)
    assert on.queue.state.end == 0 and not on.queue.state.producers
    assert on.stage(count=2, sequence=0).base_offset == 0
    on.write()
    on.sync()
    assert on.heard == [("", True)] and on.queue.high_watermark == 2


def test_a_failed_write_is_told_to_all_it_concerns_in_whatever_order_they_came() -> None:
    on, told = Journaled(), []
    first = on.path.stage(on.queue, batch(), -1, NOW)
    on.write()
    second = on.path.stage(on.queue, batch(), -1, NOW)
    assert isinstance(first, Placed) and isinstance(second, Placed)
    on.path.lines.when_durable(second.end, lambda met: told.append(("second", met)))
    on.path.lines.when_durable(first.end, lambda met: told.append(("first", met)))
    on.fail()
    assert told == [("second", False)]
    on.sync()
    assert told == [("second", False), ("first", True)]


# -------------------------------------------------------------------------------------------------- several replicas


@pytest.mark.parametrize(
    ("flush", "acks", "heard"),
    [
        ("commit", -1, [False, False, True]),
        ("commit", 1, [True, True, True]),
        ("interval", -1, [False, True, True]),
        ("none", -1, [False, True, True]),
        ("none", 0, [True, True, True]),
    ],
)
def test_the_ack_table_with_several_replicas(flush: Flush, acks: int, heard: list[bool]) -> None:
    leading = Leading(flush)
    end = leading.put(acks=acks)
    told, seen, queue = [], [], leading.queues[1]
    for reach in (lambda: None, lambda: leading.path.replicated_to(end), lambda: leading.path.durable_to(end)):
        reach()
        told.append(leading.heard == [("", True)])
        seen.append(queue.high_watermark)
    assert told == heard
    assert seen == ([0, 0, 1] if (flush, acks) == ("commit", -1) else [0, 1, 1])


def test_own_sync_is_not_enough_with_several_replicas() -> None:
    leading = Leading()
    leading.put()
    leading.path.synced_to(leading.path.sync())
    assert leading.path.journal.synced == leading.end and leading.path.journal.durable_end == 0
    assert leading.heard == [] and leading.queues[1].high_watermark == 0


def test_records_count_as_far_as_they_are_replicated_also_within_a_group() -> None:
    leading = Leading("interval")
    first = leading.put("first", write=False)
    leading.put("second", write=False)
    leading.write()
    leading.path.replicated_to(first)
    queue = leading.queues[1]
    assert leading.heard == [("first", True)] and (queue.end, queue.high_watermark) == (1, 1)
    assert leading.path.unsplit_entries == 1
    leading.path.replicated_to(leading.end)
    assert leading.heard[-1] == ("second", True) and queue.end == 2


def test_one_replica_keeps_no_record_of_what_is_written() -> None:
    on = Journaled()
    for _ in range(5):
        on.stage()
        on.write()
    assert not on.path._unreplicated


def test_step_down_undoes_all_that_is_not_replicated() -> None:
    leading = Leading()
    first = leading.put("replicated", count=2, sequence=0)
    leading.path.replicated_to(first)
    state = leading.queues[1].state
    before = (state.end, state.epochs.copy(), dict(state.producers))
    leading.put("written", count=2, sequence=2)
    leading.put("leader alone", acks=1)
    leading.put("staged", sequence=4, write=False)
    written = leading.end
    leading.path.step_down("broker 2 leads")
    assert (state.end, state.epochs, state.producers) == before
    assert leading.path.journal.staged_end == leading.end == written, "for the next leader to say what becomes of it"
    assert sorted(leading.heard) == [
        ("leader alone", True), ("replicated", False), ("staged", False), ("written", False),
    ]  # fmt: skip
    refusal = leading.path.stage(leading.queues[1], batch(), -1, NOW)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_failed_write_undoes_less_than_a_step_down() -> None:
    leading = Leading()
    leading.put("written", count=2)
    leading.put("lost", write=False)
    write = leading.path.take()
    assert write is not None
    leading.path.failed(write, "no space")
    assert leading.queues[1].state.end == 2 and leading.heard == [("lost", False)]


def test_repeated_marker_waits_for_its_level() -> None:
    leading = Leading("interval")
    leading.put(sequence=0, transactional=True)
    marker = Marker(1, 8, 0, True, 4)
    first = leading.path.stage_marker(leading.queues[1], marker, NOW)
    leading.write()
    leading.path.replicated_to(leading.end)
    again = leading.path.stage_marker(leading.queues[1], marker, NOW)
    assert first == again == AckPoint(0, DURABLE, leading.end), "durable, whatever the topic says"
    leading.path.durable_to(leading.end)
    assert leading.path.stage_marker(leading.queues[1], marker, NOW) == again


def test_leader_keeps_the_keyed_facts_that_are_replicated() -> None:
    leading = Leading()
    leading.path.stage_keyed([Keyed("s", b"a", b"1")], NOW)
    leading.write()
    assert leading.keyed == {}
    leading.path.replicated_to(leading.end)
    assert leading.keyed == {("s", b"a"): b"1"}


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20], ids=["new_file", "same_file"])
@pytest.mark.parametrize("names_first", [True, False])
def test_what_a_failed_write_left_does_not_come_back(segment_bytes: int, names_first: bool) -> None:
    """Found by the simulation: a power loss brought back the entry of a write that had failed, and followers had
    another one of the same epoch at the same position."""
    ghosts = 0
    for seed in range(60):
        leading = Leading(seed=seed, segment_bytes=segment_bytes)
        leading.put()
        leading.path.synced_to(leading.path.sync())
        end = leading.end
        for _ in range(4):
            leading.put(count=3, write=False)
        write = leading.path.take()
        assert write is not None
        leading.disk.faults[leading.disk.operations + 1 + write.group.rolls] = errno.ENOSPC
        with pytest.raises(OSError):
            leading.path.write(write)
        leading.disk.faults.clear()
        leading.path.failed(write, "no space")
        leading.path.journal.names_first = names_first
        leading.put(count=2)
        reader = JournalReader(leading.disk.crash(Random(seed)), 0)
        ghosts += any(entry.position >= end and entry.last_offset == 3 for entry in reader.entries(0, 1 << 30))
    assert (ghosts > 0) == (not names_first)


def test_one_replica_does_not_wait_for_the_name_of_a_file() -> None:
    """Nobody has a copy of what takes the place of a failed write."""
    on = Journaled()
    on.stage()
    on.fail()
    assert not on.path.journal.names_first
