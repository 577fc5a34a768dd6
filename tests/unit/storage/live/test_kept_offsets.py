"""Batches that keep their offsets, from the write path to recovery, splitter and verify; and what is taken back."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from cairnmq.codec.batch import EMPTY_DELTA_MAX, read_header
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.topic import LogConfig, Model
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.check.verify import verify
from cairnmq.storage.live.ack_policy import AckPoint
from cairnmq.storage.live.reads import Batches
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.data_directory import DataDirectory
from unit.storage.live.test_write_path import Journaled, batch
from unit.storage.recovery.test_replay import Broker

NOW = 7000


def kept(offset: int, count: int = 3, producer: int = -1) -> memoryview:
    records = [Record(0, 100 + offset + n, b"k", b"%d" % (offset + n)) for n in range(count)]
    sequence = offset if producer >= 0 else -1
    built = build_batch(records, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=sequence)
    return memoryview(bytearray(built))


def stage(on: Journaled, start: int, end: int, *batches: memoryview) -> AckPoint | Refusal:
    return on.path.stage_kept(on.queue, batches, Span(start, end), NOW)


def ends(on: Journaled) -> tuple[int, int, int, int]:
    queue = on.queue
    return queue.log_start, queue.high_watermark, queue.end, queue.state.end


class TestWritePath:
    def test_visible_when_durable(self) -> None:
        on = Journaled()
        assert not isinstance(stage(on, 0, 6, kept(0), kept(3)), Refusal)
        on.write()
        assert ends(on) == (0, 0, 6, 6)
        on.sync()
        assert ends(on) == (0, 6, 6, 6)

    def test_only_the_leader_epoch_changes(self) -> None:
        on = Journaled()
        sent = kept(0, producer=4)
        before = bytes(sent)
        stage(on, 0, 3, sent)
        assert (sent[:12], sent[16:]) == (before[:12], before[16:])
        assert read_header(sent).leader_epoch == on.path.journal.epoch

    def test_gaps_become_empty_batches(self) -> None:
        on = Journaled()
        stage(on, 0, 20, kept(4), kept(9))
        on.write()
        assert on.queue.tail is not None
        assert list(on.queue.tail.offsets) == [0, 4, 7, 9, 12]
        assert on.path.unsplit_entries == 5

    def test_a_gap_too_long_for_one_batch(self) -> None:
        on = Journaled()
        stage(on, 0, 3 * EMPTY_DELTA_MAX, kept(3 * EMPTY_DELTA_MAX - 3))
        on.write()
        assert on.queue.tail is not None and len(on.queue.tail) == 4
        assert on.queue.end == 3 * EMPTY_DELTA_MAX

    def test_gaps_that_would_take_too_many_batches(self) -> None:
        """Each request is staged in one turn of the loop, and a few bytes may ask for any span."""
        most, on = 1000 * (EMPTY_DELTA_MAX + 1), Journaled()
        for end, batches in ((most + 4, [kept(9)]), (most + 1, []), (2**62, [kept(0), kept(2**62 - 3)])):
            refused = stage(on, 0, end, *batches)
            assert isinstance(refused, Refusal) and "are in no batch" in refused.message
        assert not isinstance(stage(on, 0, most + 3, kept(9)), Refusal)
        assert on.queue.state.end == most + 3

    @pytest.mark.parametrize("start", [2**62 + 1, 2**63 - 1])
    def test_offsets_that_leave_no_room_behind_them(self, start: int) -> None:
        """The splitter could not store what is produced next."""
        on = Journaled()
        refused = stage(on, start, start)
        assert isinstance(refused, Refusal) and refused.code == ErrorCode.INVALID_REQUEST
        assert not isinstance(stage(on, 2**62, 2**62), Refusal)
        assert on.stage().base_offset == 2**62

    def test_a_log_that_begins_later(self) -> None:
        on = Journaled()
        stage(on, 40, 43, kept(40))
        assert ends(on) == (0, 0, 0, 43)
        on.write()
        assert ends(on) == (40, 40, 43, 43)
        on.sync()
        assert ends(on) == (40, 43, 43, 43)

    def test_a_log_that_only_has_an_end(self) -> None:
        on = Journaled()
        stage(on, 40, 40)
        on.write()
        assert ends(on) == (40, 40, 40, 40)
        assert on.stage().base_offset == 40

    def test_a_failed_write_takes_all_back(self) -> None:
        on = Journaled()
        stage(on, 40, 60, kept(42, producer=4), kept(50, producer=4))
        on.fail()
        assert ends(on) == (0, 0, 0, 0)
        assert on.queue.state.producers == {} and on.queue.state.epochs == []
        assert on.stage(name="next").base_offset == 0

    def test_a_failed_write_before_it_takes_it_back_too(self) -> None:
        on = Journaled()
        on.stage()
        write = on.path.take()
        assert write is not None
        other = stage(on, 1, 4, kept(1))
        assert not isinstance(other, Refusal)
        on.path.failed(write, "no space")
        assert ends(on) == (0, 0, 0, 0)

    def test_compacted_batches_keep_their_sequences(self) -> None:
        """Kafka counts sequences by offsets, whatever was taken out of the batch."""
        on = Journaled()
        sent = bytearray(kept(0, 2, producer=8))
        sent[23:27] = (9).to_bytes(4, "big")  # two records of ten are left
        sent[17:21] = crc32c(memoryview(sent)[21:]).to_bytes(4, "big")
        assert not isinstance(stage(on, 0, 10, memoryview(sent)), Refusal)
        assert on.queue.state.producers[8].batches == ((0, 9, 0),)
        assert on.stage(sequence=10).base_offset == 10

    @pytest.mark.parametrize(
        ("start", "end", "batches", "code"),
        [
            (5, 8, [kept(5)], ErrorCode.OFFSET_OUT_OF_RANGE),  # the queue ends at 1
            (0, 4, [kept(1)], ErrorCode.OFFSET_OUT_OF_RANGE),
            (1, 0, [], ErrorCode.INVALID_REQUEST),
            (1, 4, [kept(0)], ErrorCode.INVALID_RECORD),
            (1, 3, [kept(1)], ErrorCode.INVALID_RECORD),
            (1, 9, [kept(1), kept(3)], ErrorCode.INVALID_RECORD),
            (1, 9, [kept(1)[:60]], ErrorCode.INVALID_RECORD),
            (1, 9, [kept(1)[:-1]], ErrorCode.INVALID_RECORD),
        ],
    )
    def test_refusals_change_nothing(self, start: int, end: int, batches: list[memoryview], code: ErrorCode) -> None:
        on = Journaled()
        on.stage()
        refused = on.path.stage_kept(on.queue, batches, Span(start, end), NOW)
        assert isinstance(refused, Refusal) and refused.code == code
        on.write()
        assert ends(on) == (0, 0, 1, 1)

    @pytest.mark.parametrize(("place", "code"), [(16, ErrorCode.INVALID_RECORD), (70, ErrorCode.CORRUPT_MESSAGE)])
    def test_damaged_batches_are_refused(self, place: int, code: ErrorCode) -> None:
        on = Journaled()
        bad = kept(0)
        bad[place] ^= 1
        refused = stage(on, 0, 3, bad)
        assert isinstance(refused, Refusal) and refused.code == code

    def test_what_producers_may_not_send_is_taken(self) -> None:
        """Kafka has checked it once: transactions, timestamps, sizes."""
        on = Journaled(max_message_bytes=100)
        record = Record(0, 1, b"\0\0\0\1", bytes(6), control=True)
        marker = build_batch([record], producer_id=3, producer_epoch=0, transactional=True)
        large = build_batch([Record(0, 1, None, b"x" * 500)], base_offset=1)
        assert not isinstance(stage(on, 0, 2, *(memoryview(bytearray(b)) for b in (marker, large))), Refusal)
        assert isinstance(on.path.stage(on.queue, batch(50), -1, NOW), Refusal)

    def test_a_stopped_journal(self) -> None:
        on = Journaled()
        on.path.stop("no disk")
        refused = stage(on, 0, 3, kept(0))
        assert isinstance(refused, Refusal) and refused.code == ErrorCode.KAFKA_STORAGE_ERROR


def keep(data: DataDirectory, queue_id: int, start: int, end: int, *batches: memoryview) -> None:
    queue = data.engine.queues[queue_id]
    staged = data.engine.paths[0].stage_kept(queue, batches, Span(start, end), NOW)
    assert not isinstance(staged, Refusal), staged
    data._flush()
    data._sync()


def records(data: DataDirectory, queue_id: int) -> list[int]:
    queue = data.engine.queues[queue_id]
    found: list[int] = []
    at = queue.log_start
    while at < queue.high_watermark:
        fetched = data.engine.reads.read(queue, at, 1 << 20, whole=True, cached=False)
        assert isinstance(fetched, Batches) and fetched.next_offset > at
        for buffer in fetched.buffers:
            view = memoryview(buffer)
            while len(view):
                size = read_header(view).size
                found.extend(record.offset for record in decode_batch(view[:size]))
                view = view[size:]
        at = fetched.next_offset
    return [offset for offset in found if offset >= queue.log_start]


@pytest.mark.parametrize("model", ["dedicated", "shared", "auto"])
@pytest.mark.parametrize("seed", range(15))
def test_any_mixture_is_found_again(tmp_path: Path, seed: int, model: Model) -> None:
    """Kept batches, gaps, produced records, rounds, checkpoints and starts in any order; verify finds nothing."""
    random = Random(seed)
    root = tmp_path / "data"
    config = LogConfig(model=model, segment_bytes=4000, index_interval_bytes=500)
    data = DataDirectory(root, config=config)
    ids = [spec.queue_id for spec in data.specs]
    expected: dict[int, list[int]] = {number: [] for number in ids}
    for _ in range(25):
        step = random.choice(("keep", "keep", "keep", "produce", "split", "checkpoint", "start"))
        number = random.choice(ids)
        if step == "keep":
            end = data.engine.queues[number].state.end
            start = random.choice((0, 0, 17, 1000)) if end == 0 else end
            at, batches = start, []
            for _ in range(random.randrange(4)):
                at += random.choice((0, 0, 0, 5))
                count = random.randrange(1, 20)
                batches.append(kept(at, count, producer=random.choice((-1, 4))))
                expected[number].extend(range(at, at + count))
                at += count
            end = at + random.choice((0, 0, 3))
            if end > data.engine.queues[number].state.end:
                keep(data, number, start, end, *batches)
        elif step == "produce":
            for queue in data.engine.queues.values():
                expected[queue.queue_id].extend(range(queue.state.end, queue.state.end + 3))
            data.sequences.clear()
            for queue in data.engine.queues.values():
                queue.state.restore(9, None)  # sequences of this producer are none of the test's business
            data.produce(1)
        elif step == "split":
            data.split()
        elif step == "checkpoint":
            data.split()
            data.checkpoint()
        else:
            before = {queue.queue_id: queue.state for queue in data.engine.queues.values()}
            data.stop()
            assert [line for line in verify([str(root)], None) if not line.startswith("note: ")] == []
            data = DataDirectory(root, config=config)
            for queue in data.engine.queues.values():
                state, old = queue.state, before[queue.queue_id]
                assert (state.log_start, state.end, state.epochs) == (old.log_start, old.end, old.epochs)
                assert queue.log_start <= queue.split_end <= queue.high_watermark <= queue.end
    for number in ids:
        assert records(data, number) == expected[number]
    data.stop()
    assert [line for line in verify([str(root)], None) if not line.startswith("note: ")] == []


@pytest.mark.parametrize("seed", range(40))
def test_power_losses_leave_a_first_part_that_can_go_on(seed: int) -> None:
    """What was answered (synced) is there, what is there ends behind a batch, and the log begins where it should."""
    random = Random(seed)
    broker = Broker(SimDisk(Random(seed)), SimDisk(Random(seed + 1000)), 1)
    opens_at, wanted_end = random.choice((0, 40)), 400
    answered = 0
    for _ in range(60):
        queue = broker.engine.queues[1]
        if queue.state.end >= wanted_end:
            break
        start = queue.state.end or opens_at
        first = start + random.choice((0, 0, 4))
        ends = {start, first, first + 5, first + 10, first + 12}
        batches = [kept(first, 5), kept(first + 5, 5)]
        staged = broker.engine.path_of(queue).stage_kept(queue, batches, Span(start, first + 12), NOW)
        assert not isinstance(staged, Refusal), staged
        is_synced = random.random() < 0.5
        broker.flush(sync=is_synced)
        if is_synced:
            answered = queue.high_watermark
            assert answered == first + 12
        if random.random() < 0.4:
            old_end = queue.end
            disks = broker.journal_disk.crash(), broker.read_disk.crash()
            broker = Broker(*disks, broker.epoch + 1)
            queue = broker.engine.queues[1]
            assert answered <= queue.end <= old_end
            assert queue.end in ends or queue.end < start
            assert queue.log_start == (opens_at if queue.end else 0)
            assert queue.log_start <= queue.split_end <= queue.high_watermark == queue.end == queue.state.end
    assert queue.log_start == opens_at
