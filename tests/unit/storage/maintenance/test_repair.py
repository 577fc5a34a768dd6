"""What journals still hold of damaged files: found in little memory, given a part at a time."""

from __future__ import annotations

import tracemalloc

import pytest

from cairnmq.codec.batch import read_header
from cairnmq.codec.records import iter_batches
from cairnmq.errors import Corrupt
from cairnmq.storage.maintenance import repair
from cairnmq.storage.maintenance.repair import JournalCopies, Repairer
from cairnmq.storage.packs.pack import PackReader
from unit.storage.splitter_harness import NOW, Broker

COUNT = 3000
BYTES_EACH_MAX = 64


@pytest.fixture(scope="module")
def broker() -> Broker:
    """Two queues with a record in each of many batches, all of it still in the journals."""
    broker = Broker("shared")
    for _ in range(COUNT // 100):
        broker.put(*[1, 2] * 100)
    return broker


def test_only_what_is_wanted_is_remembered(broker: Broker) -> None:
    limits = {0: broker.engine.paths[0].journal.end}
    copies = JournalCopies(broker.journal_disk, limits, {1: [(5, 7), (90, 92)], 2: [(3, 4)]})
    held = {(number, offset) for number in (1, 2) for offset in range(100) if copies.batch(number, offset)}
    assert held == {(1, 5), (1, 6), (1, 90), (1, 91), (2, 3)}
    nothing = JournalCopies(broker.journal_disk, limits, {})
    assert nothing.batch(1, 5) is None and not nothing._readers, "no journal is read for nothing"


def test_a_million_of_them_would_fit_into_memory(broker: Broker) -> None:
    limits = {0: broker.engine.paths[0].journal.end}
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        copies = JournalCopies(broker.journal_disk, limits, {1: [(0, COUNT)], 2: [(0, COUNT)]})
        copies._readers[0].close()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert copies.batch(2, COUNT - 1) is not None
    assert used <= 2 * COUNT * BYTES_EACH_MAX


def test_they_are_given_a_part_at_a_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "EXTENT_BYTES", 2000)
    limits = {0: broker.engine.paths[0].journal.end}
    copies = JournalCopies(broker.journal_disk, limits, {1: [(0, 500)]})
    runs = list(copies.runs(1, 0, 500))
    assert [entry.base_offset for run in runs for entry in run] == list(range(500))
    assert len(runs) > 10 and max(sum(len(entry.payload) for entry in run) for run in runs) < 2500
    with pytest.raises(Corrupt, match="offset 500 of queue 1"):
        list(copies.runs(1, 400, 501))


@pytest.mark.parametrize("way", ["one extent", "the table"])
def test_a_damaged_pack_is_made_whole(way: str) -> None:
    broker = Broker("shared")
    for _ in range(4):
        broker.put(1, 2)
    broker.split()
    broker.splitter.checkpoint(NOW)  # of which the engine does not hear: it would delete journals
    number = broker.splitter.pack_set.numbers[0]
    pack = broker.splitter.pack_set.packs[0]
    extents = list(pack)
    broker.read_disk.damage(pack.name, extents[0].position + 70 if way == "one extent" else pack.table + 3)
    if way == "the table":
        broker.splitter.pack_set.check(number)
    Repairer(broker.splitter).repair_pack(number)
    broker.splitter.checkpoint(NOW)
    new = PackReader.open(broker.read_disk, broker.splitter.pack_set.numbers[0])
    assert new.number != number
    assert [(e.queue_id, e.base_offset, e.end_offset, e.crc) for e in new] == [
        (e.queue_id, e.base_offset, e.end_offset, e.crc) for e in extents
    ]
    assert [read_header(one).base_offset for one in iter_batches(new.data(next(iter(new))))] == list(
        range(extents[0].base_offset, extents[0].end_offset)
    )
