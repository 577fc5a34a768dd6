"""Transactions on queues: what is stable, what is aborted, wherever records and markers lie, and after any restart."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt, ErrorCode, Refusal
from cairnmq.settings.topic import Flush, LogConfig
from cairnmq.storage.batches.batch_run import NotCached, walk
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.check.verify import check
from cairnmq.storage.checkpoint.checkpoint import CheckpointLog, load_checkpoint
from cairnmq.storage.compaction.aborted_ranges import aborted_ranges
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.format import NO_SEGMENTS, Aborted, CheckpointRows, StartMoved, numbered, txn_index_bytes
from cairnmq.storage.live.ack_policy import DURABLE, AckPoint
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.queue.producers import NO_PRODUCERS
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.segments.segment import LOG, TXN_INDEX, segment_name
from cairnmq.storage.splitter.placement import Thresholds
from cairnmq.storage.splitter.rounds import ABORTED_BYTES
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.splitter_harness import NOW, Broker

MODELS = ["dedicated", "shared"]
FOUR_ABORTED = Thresholds(few=0, promote_round_bytes=1 << 30, promote_bytes=4 * ABORTED_BYTES, demote_bytes=300)


@pytest.fixture(params=MODELS)
def broker(request: pytest.FixtureRequest) -> Broker:
    return Broker(request.param)


def indexes(broker: Broker, number: int = 1) -> list[str]:
    return [name for name in broker.read_disk.list(f"queues/t-{number}") if name.endswith(TXN_INDEX)]


class TestLastStable:
    def test_is_the_visible_end_without_transactions(self, broker: Broker) -> None:
        broker.put(1, 1)
        queue = broker.engine.queues[1]
        assert queue.last_stable == queue.high_watermark == 2
        assert queue.state.transactions is None

    def test_stops_at_the_oldest_open_transaction(self, broker: Broker) -> None:
        queue = broker.engine.queues[1]
        broker.put(1)
        broker.send(1, 7)
        broker.send(1, 8, count=3)
        broker.put(1)
        assert (queue.last_stable, queue.high_watermark) == (1, 6)
        assert queue.open_transactions == {7: 1, 8: 2}
        broker.mark(1, 7, commit=True)
        assert queue.last_stable == 2
        broker.mark(1, 8, commit=False)
        assert queue.last_stable == queue.high_watermark == 8
        assert queue.open_transactions == {}

    def test_a_reader_who_waits_for_an_end_that_may_be_lost_is_told(self, broker: Broker) -> None:
        """The journal is damaged behind the records of the transaction; its marker may have been there."""
        queue = broker.engine.queues[1]
        broker.put(1)
        broker.send(1, 7)
        queue.cut_short = True
        told = broker.engine.reads.read(queue, 1, 100, whole=True, cached=False, committed=True)
        assert isinstance(told, Refusal) and told.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.engine.reads.read(queue, 0, 100, whole=True, cached=False, committed=True).buffers  # type: ignore[union-attr]
        assert broker.engine.reads.read(queue, 1, 100, whole=True, cached=False).buffers  # type: ignore[union-attr]

    def test_a_marker_counts_when_it_is_visible(self, broker: Broker) -> None:
        queue, path = broker.engine.queues[1], broker.engine.paths[0]
        broker.send(1, 7)
        broker.put(1)
        broker.mark(1, 7, commit=True, flush=False)
        assert queue.last_stable == 0, "staged"
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
        assert queue.last_stable == 0, "written"
        path.synced_to(path.sync())
        assert queue.last_stable == 3, "synced"

    def test_is_never_below_the_log_start(self, broker: Broker) -> None:
        queue = broker.engine.queues[1]
        broker.send(1, 7)
        broker.put(1, 1)
        broker.engine.paths[0].stage_fact(queue, StartMoved(2), NOW)
        broker.flush()
        assert (queue.last_stable, queue.open_transactions) == (2, {7: 0})
        broker.mark(1, 7, commit=False)
        assert queue.last_stable == 4

    def test_open_transactions(self, broker: Broker) -> None:
        queue = broker.engine.queues[1]
        broker.send(1, 7, 3)
        assert queue.open_transactions == {7: 0} and queue.state.producers[7].epoch == 3
        broker.mark(1, 7, 4, commit=True)
        assert queue.open_transactions == {}


class TestAdmission:
    def stage(self, broker: Broker, marker: Marker) -> int | Refusal:
        staged = broker.engine.paths[0].stage_marker(broker.engine.queues[1], marker, NOW)
        return staged.end if isinstance(staged, AckPoint) else staged

    def test_a_raised_epoch_begins_at_sequence_0(self, broker: Broker) -> None:
        broker.send(1, 7, count=2)
        broker.mark(1, 7, 1, commit=True)
        row = broker.engine.queues[1].state.producers[7]
        assert (row.epoch, row.batches, row.coordinator_epoch, row.txn_start) == (1, (), 0, -1)
        assert broker.send(1, 7, 1) == 3

    def test_without_the_coordinators_word(self, broker: Broker) -> None:
        with pytest.raises(AssertionError, match="batch does not belong"):
            stage = broker.engine.paths[0].stage
            broker.engine.paths[0].stage = lambda *a, in_transaction: stage(*a)  # type: ignore[method-assign]
            broker.send(1, 7)

    def test_an_older_epoch_is_fenced_even_where_nothing_was_open(self, broker: Broker) -> None:
        broker.mark(1, 7, 5, commit=False)
        with pytest.raises(AssertionError, match="INVALID_PRODUCER_EPOCH"):
            broker.send(1, 7, 4)
        assert broker.aborted(1) == []

    def test_a_repeated_marker_is_not_stored_again(self, broker: Broker) -> None:
        broker.send(1, 7)
        end = broker.mark(1, 7, commit=False)
        journal = broker.engine.paths[0].journal
        assert self.stage(broker, Marker(1, 7, 0, False, 0)) == journal.synced
        assert broker.engine.queues[1].state.end == end

    def test_a_marker_repeated_at_once_waits_for_the_first(self, broker: Broker) -> None:
        broker.send(1, 7)
        end = broker.mark(1, 7, commit=False, flush=False)
        journal = broker.engine.paths[0].journal
        assert self.stage(broker, Marker(1, 7, 0, False, 0)) == journal.staged_end > journal.synced
        assert broker.engine.queues[1].state.end == end

    @pytest.mark.parametrize("flush", ["none", "interval", "commit"])
    def test_a_repeated_marker_in_another_journal_is_done_when_the_first_is_synced(self, flush: Flush) -> None:
        """Else the fact in journal 0 that all is complete could outlive it, and nobody would end that transaction."""
        spec = QueueSpec(1, "t", 0, bytes(16), LogConfig(flush=flush), journal=1)
        config, disks = EngineConfig(), (SimDisk(Random(1)), SimDisk(Random(2)))
        engine = Engine.open(*disks, [spec], begin=lambda _: 1, seed=5, config=config, now_ms=NOW)
        queue, path, marker = engine.queues[1], engine.paths[1], Marker(1, 7, 0, True, 0)
        first = engine.appends.append_markers([marker], NOW).waits
        assert first == [AckPoint(1, DURABLE, path.journal.staged_end)]
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
        assert path.sync_by_ms == NOW, "somebody waits for it"
        assert (queue.high_watermark == queue.state.end) == (flush != "commit")
        assert engine.appends.append_markers([marker], NOW).waits == first
        path.synced_to(path.sync())
        assert engine.appends.append_markers([marker], NOW).waits == [AckPoint(1, DURABLE, path.journal.synced)]

    def test_a_late_marker_of_version_2_leaves_the_later_transaction_alone(self, broker: Broker) -> None:
        broker.send(1, 7, 0)
        broker.mark(1, 7, 1, commit=True)
        broker.send(1, 7, 1)
        late = self.stage(broker, Marker(1, 7, 1, True, 0, 2))
        assert isinstance(late, Refusal) and late.code == ErrorCode.INVALID_PRODUCER_EPOCH
        queue = broker.engine.queues[1]
        assert 7 in queue.open_transactions and queue.state.producers[7].epoch == 1

    def test_a_plain_batch_of_the_same_producer(self, broker: Broker) -> None:
        broker.send(1, 7)
        queue, path = broker.engine.queues[1], broker.engine.paths[0]
        data = build_batch([Record(0, NOW, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=1)
        refused = path.stage(queue, memoryview(bytearray(data)), -1, NOW)
        assert isinstance(refused, Refusal) and refused.code == ErrorCode.INVALID_TXN_STATE

    def test_append_time(self) -> None:
        broker = Broker(append_time=True)
        broker.send(1, 7)
        broker.mark(1, 7, commit=False)
        assert len(broker.aborted(1, 0, 1)) == 1

    def test_a_silent_producer_with_an_open_transaction_is_not_forgotten(self, broker: Broker) -> None:
        broker.send(1, 7)
        broker.engine.expire_producers(NOW + 10**9, 1000)
        assert broker.engine.queues[1].open_transactions == {7: 0}
        broker.mark(1, 7, commit=True)
        broker.engine.expire_producers(NOW + 10**9, 1000)
        assert broker.engine.queues[1].state.producers is NO_PRODUCERS


class TestAborted:
    def test_is_found_wherever_the_marker_lies(self, broker: Broker) -> None:
        broker.put(1)
        rows = [broker.abort(1, 7)]
        broker.put(1)
        broker.split()
        rows.append(broker.abort(1, 8))
        broker.split()
        broker.checkpoint()
        rows.append(broker.abort(1, 7))
        broker.put(1)
        assert broker.aborted(1) == rows
        assert broker.committed(1) == [0, 3, 8]
        for start, end, found in ((0, 1, []), (0, 2, rows[:1]), (2, 3, rows[:1]), (3, 4, []), (4, 7, rows[1:])):
            assert broker.aborted(1, start, end) == found, (start, end)

    def test_overlapping_transactions(self, broker: Broker) -> None:
        broker.send(1, 7)
        broker.send(1, 8)
        broker.send(1, 7)
        broker.mark(1, 8, commit=True)
        broker.send(1, 9)
        broker.mark(1, 7, commit=False)
        assert broker.aborted(1) == [Aborted(7, 0, 5, 4)]
        broker.split()
        assert broker.aborted(1) == [Aborted(7, 0, 5, 4)]
        assert broker.committed(1) == [1]
        broker.mark(1, 9, commit=True)
        assert broker.committed(1) == [1, 4]

    @pytest.mark.parametrize("split", [False, True])
    @pytest.mark.parametrize("checkpoint", [False, True])
    def test_survives_a_restart(self, broker: Broker, split: bool, checkpoint: bool) -> None:
        rows = [broker.abort(1, 7)]
        if split:
            broker.split()
        if checkpoint:
            broker.checkpoint()
        rows.append(broker.abort(1, 7))
        broker.send(1, 8)
        before = broker.engine.queues[1].state
        broker.start(2)
        queue = broker.engine.queues[1]
        assert (queue.state.producers, queue.open_transactions) == (before.producers, {8: 4})
        assert broker.aborted(1) == rows
        broker.split()
        broker.checkpoint()
        broker.start(3)
        assert broker.aborted(1) == rows and broker.engine.queues[1].last_stable == 4
        broker.mark(1, 8, commit=False)
        assert broker.aborted(1) == [*rows, Aborted(8, 4, 5, 6)]

    def test_the_file_holds_what_memory_no_longer_does(self) -> None:
        broker = Broker("dedicated")
        row = broker.abort(1, 7)
        assert broker.engine.queues[1].state.aborted == [row]
        broker.split()
        assert broker.engine.queues[1].state.transactions is None
        assert indexes(broker) == ["00000000000000000000.txnindex"]
        assert broker.aborted(1) == [row]
        assert load_checkpoint(broker.read_disk).queues == {}
        broker.checkpoint()
        assert load_checkpoint(broker.read_disk).queues[1].aborted == ()

    def test_packs_leave_it_to_the_checkpoint(self) -> None:
        broker = Broker("shared")
        row = broker.abort(1, 7)
        broker.split()
        broker.checkpoint()
        assert load_checkpoint(broker.read_disk).queues[1].aborted == (row,)

    def test_a_row_goes_to_the_segment_of_its_marker(self) -> None:
        broker = Broker("dedicated", segment_bytes=250)
        rows = [broker.abort(1, 7) for _ in range(6)]
        broker.split()
        assert len(indexes(broker)) > 2
        assert broker.aborted(1) == rows
        for row in rows:
            assert broker.aborted(1, row.first, row.first + 1) == [row]

    def test_a_reader_that_was_there_before(self) -> None:
        broker = Broker("dedicated")
        broker.put(1)
        broker.split()
        assert broker.offsets(1) == [0]
        rows = [broker.abort(1, 7)]
        broker.split()
        assert broker.aborted(1) == rows
        rows.append(broker.abort(1, 7))
        broker.split()
        assert broker.aborted(1) == rows

    def test_a_promoted_queue(self) -> None:
        broker = Broker("auto")
        broker.splitter.rounds.thresholds = FOUR_ABORTED
        rows = []
        while broker.engine.queues[1].segments_from == NO_SEGMENTS:
            rows.append(broker.abort(1, 7))
            broker.split()
        rows.append(broker.abort(1, 7))
        broker.split()
        assert broker.engine.queues[1].packed_end > 0
        assert broker.aborted(1) == rows
        broker.checkpoint()
        broker.start(2)
        assert broker.aborted(1) == rows

    def test_many_aborted_ones_promote_a_queue(self) -> None:
        """In packs each is memory and a row of every checkpoint."""
        broker = Broker("auto")
        broker.splitter.rounds.thresholds = FOUR_ABORTED
        for number in range(1, 6):
            broker.abort(1, 7)
            broker.split()
            assert (broker.engine.queues[1].segments_from == NO_SEGMENTS) is (number < 4)

    def test_a_demoted_queue(self) -> None:
        broker = Broker("dedicated")
        rows = [broker.abort(1, 7)]
        broker.split()
        broker.checkpoint()
        broker.configure(1, model="auto")
        broker.maintenance.look(NOW)
        broker.maintenance.look(NOW)
        assert broker.maintenance.demote()
        broker.checkpoint()
        assert broker.engine.queues[1].segments_from == NO_SEGMENTS
        assert broker.aborted(1) == rows
        broker.start(2)
        assert broker.aborted(1) == rows

    def test_a_moved_start_forgets_what_nobody_can_read(self, broker: Broker) -> None:
        rows = [broker.abort(1, 7) for _ in range(3)]
        broker.split()
        rows.append(broker.abort(1, 7))
        queue = broker.engine.queues[1]
        broker.engine.paths[0].stage_fact(queue, StartMoved(rows[1].last), NOW)
        broker.flush()
        broker.split()
        broker.checkpoint()
        assert broker.aborted(1, queue.log_start) == rows[1:]
        broker.start(2)
        assert broker.aborted(1, queue.log_start) == rows[1:]

    def test_an_idle_queue_keeps_nothing(self, broker: Broker) -> None:
        broker.send(1, 7)
        broker.mark(1, 7, commit=True)
        broker.split()
        assert broker.engine.queues[1].state.transactions is None


class TestFailures:
    def test_a_failed_write_takes_everything_back(self, broker: Broker) -> None:
        rows = [broker.abort(1, 7)]
        broker.send(1, 8)
        broker.send(1, 9)
        queue, path = broker.engine.queues[1], broker.engine.paths[0]
        before = QueueState.from_row(queue.state.to_row(1, -1, 0))
        broker.mark(1, 8, commit=False, flush=False)
        broker.mark(1, 9, 1, commit=True, flush=False)
        broker.send(1, 7, flush=False)
        write = path.take()
        assert write is not None
        broker.journal_disk.faults[broker.journal_disk.operations + 1] = errno.ENOSPC
        broker.journal_disk.faults[broker.journal_disk.operations + 2] = errno.ENOSPC
        with pytest.raises(OSError):
            path.write(write)
        broker.journal_disk.faults.clear()
        path.failed(write, "no space")
        assert queue.state == before
        assert list(queue.open_transactions.items()) == [(8, 2), (9, 3)]
        assert (queue.last_stable, broker.aborted(1)) == (2, rows)
        broker.mark(1, 8, commit=False)
        assert broker.aborted(1) == [*rows, Aborted(8, 2, 4, 3)]

    def test_back_to_the_checkpoint(self, broker: Broker) -> None:
        rows = [broker.abort(1, 7)]
        broker.split()
        broker.checkpoint()
        broker.send(1, 8)
        rows.append(broker.abort(1, 7))
        broker.split()
        stored = broker.engine.scan_split(is_suspect=True)
        assert stored is not None
        broker.engine.unsplit(stored)
        assert broker.engine.queues[1].split_end == 2
        broker.mark(1, 8, commit=False)
        rows.append(Aborted(8, 2, 5, 6))
        assert broker.aborted(1) == rows
        broker.splitter = broker.make_splitter()
        broker.split()
        assert broker.aborted(1) == rows

    def test_a_successor_of_the_splitter(self, broker: Broker) -> None:
        rows = [broker.abort(1, 7)]
        broker.split()
        broker.succeed()
        rows.append(broker.abort(1, 7))
        broker.split()
        broker.checkpoint()
        assert broker.aborted(1) == rows
        broker.start(2)
        assert broker.aborted(1) == rows
        stored = load_checkpoint(broker.read_disk).queues[1].aborted
        assert list(stored) == ([] if broker.engine.queues[1].segments_from != NO_SEGMENTS else rows)

    def test_rows_behind_the_checkpoint_are_cut_and_written_again(self) -> None:
        broker = Broker("dedicated")
        rows = [broker.abort(1, 7)]
        broker.split()
        broker.checkpoint()
        rows.append(broker.abort(1, 7))
        broker.split()
        name = f"queues/t-1/{indexes(broker)[0]}"
        broker.read_disk.open(name, write=True).append([b"torn"])
        broker.start(2)
        assert broker.aborted(1) == rows
        broker.split()
        assert broker.aborted(1) == rows
        assert broker.read_disk.open(name).size() == 68


def findings(broker: Broker) -> list[str]:
    return [str(finding) for finding in check(broker.read_disk, broker.journal_disk) if not finding.is_note]


class TestDamage:
    def settled(self, model: str = "dedicated", segment_bytes: int = 400) -> tuple[Broker, list[Aborted]]:
        broker = Broker(model, segment_bytes=segment_bytes)
        broker.send(1, 9)
        rows = [broker.abort(1, 7), broker.abort(1, 8)]
        broker.mark(1, 9, 1, commit=True)
        rows.append(broker.abort(1, 7))
        broker.send(1, 8)
        broker.split()
        broker.checkpoint()
        return broker, rows

    @pytest.mark.parametrize("model", MODELS)
    def test_verify_finds_nothing_wrong(self, model: str) -> None:
        broker, rows = self.settled(model)
        assert findings(broker) == []
        broker.engine.paths[0].stage_fact(broker.engine.queues[1], StartMoved(rows[0].last), NOW)
        broker.flush()
        broker.abort(1, 7)
        broker.split()
        assert findings(broker) == []
        broker.checkpoint()
        assert findings(broker) == []

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda rows: rows[1:], "no row says that records 1 to 2 of producer 7 are aborted"),
            (lambda rows: [replace(rows[0], first=0), *rows[1:]], "is stored where the records say"),
            (lambda rows: [replace(rows[0], stable=2), *rows[1:]], "last stable offset 2, the records say 0"),
            (lambda rows: [*rows[:2], Aborted(8, 4, 5, 6), *rows[2:]], "the records do not say so"),
            (lambda rows: [Aborted(8, 2, 2, 3), *rows], "no row for aborted transactions at 0"),
        ],
    )
    def test_verify_compares_each_index_with_its_log(
        self, change: Callable[[list[Aborted]], list[Aborted]], said: str
    ) -> None:
        broker, rows = self.settled(segment_bytes=100_000)
        (name,) = indexes(broker)
        broker.read_disk.replace(f"queues/t-1/{name}", txn_index_bytes(change(rows)))
        assert len(findings(broker)) == 1 and said in findings(broker)[0]

    def test_verify_compares_what_the_checkpoint_says_of_packs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(QueueState, "aborted", [])
        broker, rows = self.settled("shared")
        monkeypatch.undo()
        assert len(findings(broker)) == len(rows)

    def test_a_damaged_index_is_named_and_made_again(self) -> None:
        broker, rows = self.settled()
        name = f"queues/t-1/{indexes(broker)[0]}"
        broker.read_disk.replace(name, bytes(68))
        with pytest.raises(Damage) as raised:
            broker.aborted(1)
        assert raised.value.place.file == name
        assert broker.aborted(1, 6, 8) == rows[2:]
        Repairer(broker.splitter).repair(1, name)
        broker.engine.repaired(1, name)
        assert broker.aborted(1) == rows
        broker.checkpoint()
        assert findings(broker) == []

    @pytest.mark.parametrize("restart", [True, False])
    @pytest.mark.parametrize("which", [0, -1])
    @pytest.mark.parametrize("way", ["cut", "gone", "bit"])
    def test_rows_that_are_gone_or_changed_are_damage(self, way: str, which: int, restart: bool) -> None:
        """Aborted records are not served as committed ones, whatever becomes of Kafka's file without a checksum."""
        broker, rows = self.settled()
        name, expected = f"queues/t-1/{indexes(broker)[which]}", broker.committed(1)
        assert len(indexes(broker)) >= 2
        file = broker.read_disk.open(name)
        data = file.read(0, file.size())
        broker.read_disk.remove(name)
        if way != "gone":
            changed = bytearray(data) if way == "bit" else bytearray()
            changed[9:10] = bytes([changed[9] ^ 1]) if way == "bit" else b""  # of a producer id
            broker.read_disk.replace(name, bytes(changed))
        if restart:
            broker.start(2)
        else:
            broker.engine.queues[1].reader = None  # as when others are read meanwhile
        with pytest.raises(Damage) as raised:
            broker.committed(1)
        assert raised.value.place.file == name
        broker.maintenance.look(NOW)
        assert not restart or [place.file for _, place in broker.splitter.damages] == [name]
        Repairer(broker.splitter).repair(1, name)
        broker.engine.repaired(1, name)
        assert (broker.committed(1), broker.aborted(1)) == (expected, rows)
        broker.checkpoint()
        broker.start(3)
        assert (broker.committed(1), findings(broker)) == (expected, [])

    @pytest.mark.parametrize("gone", [(LOG,), (LOG, TXN_INDEX)], ids=["log", "log and rows"])
    def test_a_lost_segment_is_made_again_with_its_aborted_transactions(self, gone: tuple[str, ...]) -> None:
        """What it held goes into the segment before; the rows must be there before anybody can read it."""
        broker, rows = self.settled()
        expected = broker.committed(1)
        bases = numbered(broker.read_disk.list("queues/t-1"), LOG)
        assert len(bases) > 1 and any(row.last >= bases[-1] for row in rows)
        for suffix in gone:
            broker.read_disk.remove(segment_name("queues/t-1", bases[-1], suffix))
        broker.start(2)
        with pytest.raises(Damage) as raised:
            broker.committed(1)
        file = raised.value.place.file
        broker.maintenance.look(NOW)
        Repairer(broker.splitter).repair(1, file)
        broker.engine.repaired(1, file)
        assert broker.committed(1) == expected
        broker.checkpoint()
        broker.start(3)
        assert (broker.committed(1), broker.aborted(1)) == (expected, rows)

    def test_a_fetch_of_what_lies_before_damage_is_answered(self) -> None:
        """Whoever looks into a damaged batch must not make the other half of the fetch begin again, for ever."""
        broker, _ = self.settled(segment_bytes=100_000)
        queue, name = broker.engine.queues[1], segment_name("queues/t-1", 0, LOG)
        places = list(walk(broker.read_disk.open(name), 0))
        broker.read_disk.damage(name, places[2].position + places[2].size - 1)
        broker.start(2)
        queue = broker.engine.queues[1]
        for _ in range(10):
            fetched = broker.engine.reads.read(queue, 0, 1 << 20, whole=True, cached=True, committed=True)
            if isinstance(fetched, Batches):
                return
            assert isinstance(fetched, NotCached)
            fetched.load()
        raise AssertionError("no answer")

    @pytest.mark.parametrize("restarts", [1, 3])
    def test_a_transaction_that_ends_in_a_lost_segment_is_aborted_all_the_same(self, restarts: int) -> None:
        broker = Broker("dedicated", segment_bytes=400)
        first = broker.send(1, 7)
        broker.put(1, 1, 1)
        broker.mark(1, 7, commit=False)
        broker.put(1)
        broker.split()
        broker.checkpoint()
        bases = numbered(broker.read_disk.list("queues/t-1"), LOG)
        (row,) = broker.aborted(1)
        lost = max(base for base in bases if base <= row.last)
        assert lost > first
        broker.read_disk.remove(segment_name("queues/t-1", lost, LOG))
        for epoch in range(2, 2 + restarts):
            broker.start(epoch)
            assert broker.aborted(1, first, first + 1) == [row]
            broker.maintenance.look(NOW)
            broker.put(1)
            broker.split()
            broker.checkpoint()
        broker.engine.paths[0].stage_fact(broker.engine.queues[1], StartMoved(row.last + 2), NOW)
        broker.flush()
        for _ in range(2):  # files go with the first, and the second says so
            broker.put(1)
            broker.split()
            broker.checkpoint()
        assert lost not in dict(load_checkpoint(broker.read_disk).queues[1].row_sums), "retention takes it along"

    def test_a_directory_without_sums_is_believed(self) -> None:
        """As older versions have left it; the sums are there from the next checkpoint on."""
        broker, rows = self.settled()
        image = load_checkpoint(broker.read_disk)
        sums = image.queues[1].row_sums
        assert len(sums) == len(indexes(broker))
        log = CheckpointLog(broker.read_disk, image)
        log.publish(CheckpointRows(queues=[replace(image.queues[1], row_sums=())], marks=list(image.marks.values())))
        broker.start(2)
        assert broker.aborted(1) == rows
        broker.put(1)
        broker.split()
        broker.checkpoint()
        assert load_checkpoint(broker.read_disk).queues[1].row_sums == sums

    def test_compaction_stops_at_rows_that_are_gone(self) -> None:
        broker, _ = self.settled()
        queue = broker.splitter.queues[1]
        assert queue.log is not None
        broker.read_disk.remove(f"queues/t-1/{indexes(broker)[0]}")
        with pytest.raises(Damage):
            aborted_ranges(broker.read_disk, queue.spec.directory, queue.log.bases, [], queue.row_sums)

    def test_an_index_that_retention_deleted_needs_none(self) -> None:
        broker, _ = self.settled()
        with pytest.raises(Corrupt, match="is gone"):
            Repairer(broker.splitter).repair(1, "queues/t-1/00000000000000000077.txnindex")
        assert len(indexes(broker)) >= 2
