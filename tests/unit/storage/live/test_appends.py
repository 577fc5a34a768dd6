"""What an append returns: where the entry is, and what to wait for."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.topic import Flush, LogConfig
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import DURABLE_FLAG, Keyed
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.live.ack_policy import DURABLE, REPLICATED, WRITTEN, AckLevel, AckPoint
from cairnmq.storage.live.write_path import Placed
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.types import SlotPlace

NOW = 1_000_000


def opened(flush: Flush = "commit", journals: int = 2) -> Engine:
    """Queue 1 is in journal 1, queue 2 in journal 0."""
    config = LogConfig(flush=flush)
    specs = [QueueSpec(number, "t", number, bytes(16), config, number % journals) for number in (1, 2)]
    disks = SimDisk(Random(1)), SimDisk(Random(2))
    return Engine.open(*disks, specs, begin=lambda _: 1, seed=5, config=EngineConfig(), now_ms=NOW)


def batch(**fields: int) -> memoryview:
    return memoryview(bytearray(build_batch([Record(0, NOW, b"k", b"v")], **fields)))


def write(engine: Engine, number: int) -> None:
    path = engine.paths[number]
    taken = path.take()
    assert taken is not None
    path.write(taken)
    path.written(taken)


@pytest.mark.parametrize(
    ("flush", "acks", "level"), [("commit", -1, DURABLE), ("commit", 1, WRITTEN), ("none", -1, REPLICATED)]
)
def test_batch_waits_for_its_level(flush: Flush, acks: int, level: AckLevel) -> None:
    engine = opened(flush)
    placed = engine.appends.append(engine.queues[1], batch(), acks, NOW)
    assert isinstance(placed, Placed)
    assert (placed.journal, placed.level, placed.end) == (1, level, engine.paths[1].journal.staged_end)
    told: list[bool] = []
    engine.appends.when(placed, told.append)
    write(engine, 1)
    assert told == ([True] if level is not DURABLE else [])
    engine.paths[1].synced_to(engine.paths[1].sync())
    assert told == [True]


def test_duplicate_waits_for_everything_staged() -> None:
    engine = opened()
    sent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    first = engine.appends.append(engine.queues[1], batch(**sent), -1, NOW)
    engine.appends.append(engine.queues[1], batch(), -1, NOW)
    again = engine.appends.append(engine.queues[1], batch(**sent), -1, NOW)
    assert isinstance(first, Placed) and isinstance(again, Placed)
    assert (again.is_duplicate, again.base_offset) == (True, first.base_offset)
    assert again.end == engine.paths[1].journal.staged_end > first.end


def test_markers_wait_once_per_journal_and_level() -> None:
    engine = opened("none")
    markers = [Marker(number, 7, 0, True, 0) for number in (1, 2, 3)]
    staged = engine.appends.append_markers(markers, NOW)
    assert staged.codes == [ErrorCode.NONE] * 3
    assert staged.ends == [engine.paths[1].journal.staged_end, engine.paths[0].journal.staged_end, 0]
    assert staged.waits == [AckPoint(1, DURABLE, staged.ends[0]), AckPoint(0, DURABLE, staged.ends[1])]


def test_markers_of_a_stopped_journal() -> None:
    engine = opened()
    engine.paths[1].refuse("the disk is full")
    staged = engine.appends.append_markers([Marker(1, 7, 0, True, 0), Marker(2, 7, 0, True, 0)], NOW)
    assert staged.codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert staged.stopped == "the disk is full" and len(staged.waits) == 1


@pytest.mark.parametrize(
    ("journals", "flush", "level"), [(1, "commit", DURABLE), (1, "none", REPLICATED), (2, "none", DURABLE)]
)
def test_keyed_facts_are_in_the_journal_of_their_slot(journals: int, flush: str, level: AckLevel) -> None:
    engine, last = opened(journals=journals), journals - 1
    point = engine.appends.put_keyed(SlotPlace(9, last), [Keyed("s", b"k", b"v")], flush, NOW)
    assert point == AckPoint(last, level, engine.paths[last].journal.staged_end)
    write(engine, last)
    reader = JournalReader(engine.paths[last].journal.disk, last)
    fact = list(reader.entries(0, reader.end()))[-1]
    assert (fact.queue_id, fact.flags) == (9, DURABLE_FLAG)
    witness = engine.appends.put_witness(Keyed("s", b"k", b"w"), flush, NOW)
    assert witness == AckPoint(0, REPLICATED, engine.paths[0].journal.staged_end)


def test_a_written_fact_is_not_certain_to_be_lost_after_a_failed_sync() -> None:
    engine = opened()
    point = engine.appends.put_keyed(SlotPlace(9, 0), [Keyed("s", b"k", b"v")], "commit", NOW)
    assert isinstance(point, AckPoint)
    told: list[bool] = []
    certain: list[bool] = []
    engine.appends.when(point, told.append)
    engine.appends.when_certain(point, certain.append)
    write(engine, 0)
    engine.paths[0].stop("sync failed")
    assert told == [False] and certain == []


def test_preserved_offsets_and_moved_starts_are_synced() -> None:
    engine = opened("none")
    queue = engine.queues[1]
    kept = engine.appends.append_kept(queue, [batch(base_offset=5)], Span(5, 6), NOW)
    assert kept == AckPoint(1, DURABLE, engine.paths[1].journal.staged_end)
    write(engine, 1)
    moved = engine.appends.move_start(queue, 6, NOW)
    assert moved == AckPoint(1, DURABLE, engine.paths[1].journal.staged_end)
    assert isinstance(engine.appends.append_kept(queue, [batch(base_offset=9)], Span(8, 10), NOW), Refusal)
