"""How old a segment is: read once, a little at a time, and never believed of an index alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.batches import batch_run
from cairnmq.storage.checkpoint.split_report import StartProposal
from cairnmq.storage.files.format import TIME_INDEX_ENTRY, StartMoved
from cairnmq.storage.live.time_lookup import Newest
from cairnmq.storage.maintenance import maintenance
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.segments.newest_time import NewestTime
from cairnmq.storage.segments.segment import CLEANED, LOG, TIME_INDEX, segment_name
from unit.storage.counted_reads import CountedReads
from unit.storage.splitter_harness import NOW, Broker

BATCHES = 300
BATCH_BYTES = len(build_batch([Record(0, NOW, None, b"v" * 40)]))
SEGMENT_BYTES = 100 * BATCH_BYTES  # three segments, the last one is open
CONSTANT = [NOW] * BATCHES
AHEAD = [NOW if n % 100 == 0 else NOW - 1 for n in range(BATCHES)]  # each segment begins with its newest record
ASCENDING = [NOW - BATCHES + n for n in range(BATCHES)]
LATER = NOW + 10_000
FEW_BYTES = 3000  # a look at indexes and some headers


def filled(times: Sequence[int], **config: int) -> Broker:
    broker = Broker(segment_bytes=SEGMENT_BYTES, retention_ms=1000, index_interval_bytes=500, **config)
    for time in times:
        broker.put(1, timestamp=time)
    broker.split()
    broker.checkpoint()
    log = broker.splitter.queues[1].log
    assert log is not None and log.bases == [0, 100, 200]
    return broker


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that are small beside these segments, as the real ones are beside real ones."""
    for name, value in (("LOOK_BYTES", 2000), ("INLINE_BYTES", 1000), ("STEP_BYTES", 4000)):
        monkeypatch.setattr(maintenance, name, value)
    monkeypatch.setattr(batch_run, "PIECE_BYTES", 1000)
    monkeypatch.setattr(batch_run, "FIRST_WINDOW_BYTES", 500)


@pytest.mark.parametrize("times", [CONSTANT, AHEAD, ASCENDING], ids=["constant", "ahead", "ascending"])
def test_young_segments_are_not_read(times: list[int], small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the time index claims is confirmed by the batch it names, and enough: nobody deletes by it."""
    broker = filled(times)
    monkeypatch.setattr(broker.maintenance, "_check_indexes", lambda log: None)  # looks at each index once
    reads = CountedReads(monkeypatch)
    for _ in range(3):
        assert broker.maintenance.look(NOW) == [] and not broker.maintenance.step()
        assert reads.of_kind["log"] <= 3 * FEW_BYTES
        reads.forget()
    assert broker.maintenance.look(NOW) == []
    assert reads.of_kind["log"] == 0


@pytest.mark.parametrize("times", [CONSTANT, AHEAD, ASCENDING], ids=["constant", "ahead", "ascending"])
def test_old_segments_are_read_once_and_a_little_at_a_time(
    times: list[int], small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = filled(times)
    broker.maintenance.look(NOW)
    reads = CountedReads(monkeypatch)
    assert broker.maintenance.look(LATER) == [] or times is ASCENDING
    look = reads.of_kind["log"]
    assert look <= 2000 + 3 * FEW_BYTES, "the rest is not done at once"
    total, steps = look, 0
    while True:
        reads.forget()
        more = broker.maintenance.step()
        assert reads.of_kind["log"] <= 4000 + FEW_BYTES, "nor is a segment in one step"
        total, steps = total + reads.of_kind["log"], steps + 1
        if not more:
            break
    assert total <= 1.5 * 3 * SEGMENT_BYTES, "each byte is read about once"
    assert steps > 5 or times is ASCENDING
    assert broker.maintenance.look_due or times is ASCENDING
    assert broker.maintenance.look(LATER) == [StartProposal(1, BATCHES)]
    reads.forget()
    assert broker.maintenance.look(LATER) == [StartProposal(1, BATCHES)]
    assert reads.of_kind["log"] == 0, "what was proven is remembered"
    assert not broker.maintenance.look_due


def test_of_a_segment_that_grows_only_the_new_part_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = filled([NOW] * 250)
    broker.maintenance.look(LATER)
    broker.put(1, timestamp=NOW)
    broker.split()
    broker.checkpoint()
    reads = CountedReads(monkeypatch)
    assert broker.maintenance.look(LATER) == [StartProposal(1, 251)]
    assert reads.of_kind["log"] <= 2 * BATCH_BYTES
    broker.put(1, timestamp=LATER)
    broker.split()
    broker.checkpoint()
    assert broker.maintenance.look(LATER) == [StartProposal(1, 200)], "one young record keeps its segment"


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_time_index_that_lost_its_end_deletes_nothing(
    kept: int, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of it is true of the batches it names, and says that the segment is old."""
    times = [NOW + n for n in range(99)] + [LATER] + [LATER] * 200
    broker = filled(times)
    log = broker.splitter.queues[1].log
    assert log is not None
    monkeypatch.setattr(broker.maintenance, "_check_indexes", lambda log: None)  # else it is made again
    broker.read_disk.open(segment_name(log.directory, 0, TIME_INDEX), write=True).truncate(kept * TIME_INDEX_ENTRY.size)
    for _ in range(3):
        assert broker.maintenance.look(LATER) == []
        while broker.maintenance.step():
            pass


def test_damage_does_not_make_a_segment_old_and_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time index, which names a batch that is gone, is believed: rather kept too long than deleted too early."""
    times = [NOW] * 50 + [LATER] + [NOW] * 49 + [LATER] * 200
    broker = filled(times)
    log = broker.splitter.queues[1].log
    assert log is not None
    broker.read_disk.damage(segment_name(log.directory, 0, LOG), 50 * BATCH_BYTES + 16)  # it is no batch any more
    broker.read_disk.damage(segment_name(log.directory, 0, LOG), 20 * BATCH_BYTES + 70)
    assert broker.maintenance.look(LATER) == []
    reads = CountedReads(monkeypatch)
    assert broker.maintenance.look(LATER) == []
    assert reads.of_kind["log"] == 0
    assert broker.maintenance.look(LATER + 2000) == [StartProposal(1, BATCHES)]


def test_another_file_under_the_name_is_looked_at_anew() -> None:
    broker = filled(CONSTANT)
    broker.maintenance.look(LATER)
    log = broker.splitter.queues[1].log
    assert log is not None and sorted(log.newest) == [0, 100, 200]
    new = broker.read_disk.create(segment_name(log.directory, 100, LOG) + CLEANED)
    new.append([build_batch([Record(0, LATER, None, b"v")], base_offset=100)])
    log.swap_in([100])
    assert sorted(log.newest) == [0, 200], "compacted"
    log.remove_below(100)
    assert sorted(log.newest) == [200], "deleted"
    Repairer(broker.splitter).repair_indexes(1, segment_name(log.directory, 200, TIME_INDEX))
    opened = broker.splitter.queues[1].log
    assert opened is not None and not opened.newest, "mended"


def test_compaction_waits_for_the_proof_too(small: None) -> None:
    """`min.compaction.lag.ms` holds for the newest record of a segment, whatever its index says."""
    broker = filled(CONSTANT)
    broker.configure(1, compact=True, retention_ms=-1, compaction_lag_min_ms=1000)
    queue, log = broker.splitter.queues[1], broker.splitter.queues[1].log
    assert log is not None
    young = broker.maintenance._age(queue, log, 0, NOW)
    assert young.max_timestamp == NOW and not broker.maintenance._unproven
    broker.maintenance._bytes_left = 0
    assert broker.maintenance._age(queue, log, 0, LATER).max_timestamp == maintenance.NOT_KNOWN
    while broker.maintenance.step():
        pass
    assert broker.maintenance._age(queue, log, 0, LATER).max_timestamp == NOW
    assert 1 in broker.splitter.written, "compaction looks at it again"


# ------------------------------------------------------------------------------------------- records without a time


def test_segments_whose_records_have_no_time_age_by_their_files() -> None:
    """As in Kafka."""
    broker = filled([-1] * BATCHES)
    log = broker.splitter.queues[1].log
    assert log is not None
    assert broker.maintenance.look(LATER) == [], "this disk knows no times"
    for base, time in ((0, NOW), (100, LATER), (200, NOW)):
        broker.read_disk.modified_ms[segment_name(log.directory, base, LOG)] = time
    assert broker.maintenance.look(LATER) == [StartProposal(1, 100)], "a young one keeps those behind it"
    assert broker.maintenance.look(LATER + 2000) == [StartProposal(1, BATCHES)]


def test_one_record_with_a_time_decides_for_its_segment() -> None:
    broker = filled([-1] * 50 + [LATER] + [-1] * 249)
    log = broker.splitter.queues[1].log
    assert log is not None
    for base in log.bases:
        broker.read_disk.modified_ms[segment_name(log.directory, base, LOG)] = NOW
    assert broker.maintenance.look(LATER) == []
    assert broker.maintenance.look(LATER + 2000) == [StartProposal(1, BATCHES)]


def test_packs_whose_records_have_no_time_age_by_their_files() -> None:
    broker = Broker("shared", retention_ms=1000)
    for time in (-1, NOW):
        broker.put(1, timestamp=time)
        broker.split()
    broker.checkpoint()
    first, second = (pack.name for pack in broker.splitter.pack_set.packs)
    assert broker.maintenance.look(LATER) == []
    broker.read_disk.modified_ms.update({first: NOW, second: LATER})
    assert broker.maintenance.look(LATER) == [StartProposal(1, 2)]


# ----------------------------------------------------------------------------------------- ListOffsets(max timestamp)


@pytest.mark.parametrize("times", [CONSTANT, AHEAD, ASCENDING], ids=["constant", "ahead", "ascending"])
def test_the_largest_timestamp_is_read_once(times: list[int], small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client may ask for it, and as often as it likes."""
    broker = filled(times)
    queue = broker.engine.queues[1]
    reads = CountedReads(monkeypatch)
    expected = Newest(NOW, 0) if times is not ASCENDING else Newest(NOW - 1, BATCHES - 1)
    assert broker.engine.reads.newest_in_log(queue)() == expected
    assert reads.of_kind["log"] <= 1.2 * 3 * SEGMENT_BYTES
    reads.forget()
    assert broker.engine.reads.newest_in_log(queue)() == expected
    assert reads.of_kind["log"] == 0
    broker.put(1, timestamp=LATER)
    broker.split()
    assert broker.engine.reads.newest_in_log(queue)() == Newest(LATER, BATCHES)
    assert reads.of_kind["log"] <= 3 * FEW_BYTES, "only what is new"


def test_the_largest_timestamp_of_records_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest record of a segment may be deleted, and others of it not."""
    times = [NOW] * 50 + [LATER] + [NOW + n % 7 for n in range(249)]
    broker = filled(times)
    queue = broker.engine.queues[1]
    assert broker.engine.reads.newest_in_log(queue)() == Newest(LATER, 50)
    broker.engine.path_of(queue).stage_fact(queue, StartMoved(60), NOW)
    broker.flush()
    assert broker.engine.reads.newest_in_log(queue)() == Newest(NOW + 6, 64)
    reads = CountedReads(monkeypatch)
    assert broker.engine.reads.newest_in_log(queue)() == Newest(NOW + 6, 64)
    assert reads.of_kind["log"] == 0


def test_a_new_file_is_read_again() -> None:
    broker = filled(CONSTANT)
    queue = broker.engine.queues[1]
    assert broker.engine.reads.newest_in_log(queue)() == Newest(NOW, 0)
    assert queue.reader is not None
    queue.reader._newest[100] = NewestTime(0, 0, 1 << 40, LATER, 150, 150)
    assert broker.engine.reads.newest_in_log(queue)() == Newest(LATER, 150), "it is remembered"
    broker.engine.repaired(1, segment_name(queue.spec.directory, 100, LOG))
    assert broker.engine.reads.newest_in_log(queue)() == Newest(NOW, 0)
