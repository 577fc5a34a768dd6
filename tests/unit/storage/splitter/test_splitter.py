"""Successors, retention, and the way back to the checkpoint."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.split_report import StartProposal
from cairnmq.storage.live import reads
from unit.storage.splitter_harness import NOW, Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_the_way_back_to_the_checkpoint_needs_all_of_the_journal(broker: Broker) -> None:
    """Else records that were split since would be read from logs that are in doubt."""
    broker.put(1, 1)
    broker.split()
    name = "0/" + broker.journal_disk.list("0")[0]
    file = broker.journal_disk.open(name, write=True)
    file.truncate(broker.engine.split[0] - 1)
    with pytest.raises(Corrupt, match="journal 0 is damaged"):
        broker.engine.scan_split(is_suspect=True)


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
