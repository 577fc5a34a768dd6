"""What becomes of split records: packs or segments, promotion and demotion, merges, retention and deletion in packs."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from cairnmq.errors import Corrupt
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.check.verify import check
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.checkpoint.split_report import StartProposal
from cairnmq.storage.files.format import NO_SEGMENTS, StartMoved
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.splitter.placement import Thresholds, wants_packs, wants_segments
from cairnmq.testing.sim_disk import SimCrash
from unit.storage.splitter_harness import NOW, Broker

AT = Thresholds(few=2, promote_round_bytes=100, promote_bytes=1000, demote_bytes=50)


def test_the_model_decides() -> None:
    assert wants_segments("dedicated", 1, 0, 9, AT)
    assert not wants_segments("shared", 10_000, 10_000, 0, AT)
    assert [wants_segments("auto", size, 0, 2, AT) for size in (99, 100)] == [False, True]
    assert [wants_segments("auto", 10, packed, 2, AT) for packed in (989, 990)] == [False, True]
    assert [wants_segments("auto", 1, 0, segmented, AT) for segmented in (1, 2)] == [True, False]
    assert [wants_packs("auto", size, 3, AT) for size in (50, 51)] == [True, False]
    assert [wants_packs("auto", 1, segmented, AT) for segmented in (2, 3)] == [False, True]
    assert not wants_packs("dedicated", 0, 9, AT) and wants_packs("shared", 0, 0, AT)


def findings(broker: Broker) -> list[str]:
    return [str(f) for f in check(broker.read_disk, broker.journal_disk) if not f.is_note]


def packs(broker: Broker) -> list[str]:
    return broker.read_disk.list("packs")


def demote(broker: Broker) -> None:
    """Queue 1, which is idle; a checkpoint must follow."""
    broker.configure(1, model="shared")
    broker.maintenance.look(NOW)
    broker.maintenance.look(NOW)
    assert broker.maintenance.demote()


def merge(broker: Broker) -> None:
    while broker.maintenance.step():
        pass


def test_small_queues_share_a_pack_and_have_no_directory() -> None:
    broker = Broker("auto")
    broker.put(1, 2, 3)
    broker.split()  # two rounds
    broker.checkpoint()
    assert len(packs(broker)) == 2 and broker.read_disk.list("queues") == []
    assert [broker.offsets(number) for number in (1, 2, 3)] == [[0]] * 3
    assert findings(broker) == []
    broker.start(2)
    assert [broker.offsets(number) for number in (1, 2, 3)] == [[0]] * 3


def test_a_queue_that_grows_is_promoted() -> None:
    broker = Broker("auto")
    for _ in range(6):
        broker.put(1)
        broker.split()
    broker.put(2)
    broker.split()
    broker.checkpoint()
    queue = broker.engine.queues[1]
    assert 0 < queue.segments_from < 6
    assert broker.read_disk.list("queues") == ["t-1"]
    assert broker.offsets(1) == list(range(6))
    assert load_checkpoint(broker.read_disk).queues[1].segments_from == queue.segments_from
    assert findings(broker) == []
    broker.start(2)
    broker.put(1)
    broker.split()
    assert broker.offsets(1) == list(range(7))


@pytest.mark.parametrize("model", ["shared", "dedicated"])
def test_a_model_that_is_set_holds(model: str) -> None:
    broker = Broker(model)
    for _ in range(10):
        broker.put(1)
        broker.split()
    assert (broker.engine.queues[1].segments_from == NO_SEGMENTS) is (model == "shared")
    assert bool(packs(broker)) is (model == "shared")


def test_a_small_quiet_queue_is_demoted() -> None:
    broker = Broker("dedicated")
    broker.put(1, 1)
    broker.put(2)
    broker.split()
    broker.checkpoint()
    for number in (1, 2):
        broker.configure(number, model="auto")
    broker.maintenance.look(NOW)
    assert not broker.maintenance.demote()  # it may only look quiet
    broker.put(2)
    broker.split()
    broker.checkpoint()
    broker.maintenance.look(NOW)
    assert broker.maintenance.demote()
    broker.checkpoint()
    assert broker.read_disk.list("queues") == ["t-2"]
    assert broker.offsets(1) == [0, 1] and broker.offsets(2) == [0, 1]
    assert findings(broker) == []
    broker.start(2)
    assert broker.offsets(1) == [0, 1]


def test_the_directory_of_a_demoted_queue_stays_while_it_is_read() -> None:
    broker = Broker("dedicated")
    broker.put(1)
    broker.split()
    broker.checkpoint()
    assert broker.offsets(1) == [0]  # a reader with an open file
    demote(broker)
    published = broker.splitter.checkpoint(NOW)
    assert [place.queue_id for place in published.moved] == [1] and broker.read_disk.list("queues") == ["t-1"]
    assert broker.offsets(1) == [0]
    broker.engine.on_checkpoint(published)
    broker.splitter.seen(published.serial)
    assert broker.read_disk.list("queues") == [] and broker.offsets(1) == [0]


@pytest.mark.parametrize("step", range(1, 6))
def test_the_directory_of_a_demoted_queue_goes_wherever_its_removal_stops(step: int) -> None:
    broker = Broker("dedicated")
    broker.put(1)
    broker.split()
    broker.checkpoint()
    demote(broker)
    published = broker.splitter.checkpoint(NOW)
    disk = broker.read_disk
    disk.crash_at = disk.operations + step
    with suppress(SimCrash):
        broker.splitter.seen(published.serial)
    assert disk.stopped == (step < 5), "all steps are tried"
    broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), disk.kill()
    broker.start(2)
    for _ in range(2):
        broker.maintenance.look(NOW)
        broker.checkpoint()
    assert broker.read_disk.list("queues") == [] and broker.offsets(1) == [0]


def test_a_cold_read_beside_a_demotion_is_no_damage() -> None:
    """It waits for its thread while the queue goes to packs and its directory is removed."""
    broker = Broker("dedicated")
    broker.put(1, 1)
    broker.split()
    broker.checkpoint()
    queue = broker.engine.queues[1]
    warm = broker.engine.reads.read(queue, 1, 100, whole=True, cached=True)
    demote(broker)
    broker.checkpoint()
    assert broker.read_disk.list("queues") == []
    assert isinstance(warm, NotCached)
    warm.load()
    assert broker.offsets(1) == [0, 1]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_is_mended_from_its_own_segment(suffix: str) -> None:
    broker = Broker("dedicated", segment_bytes=400, index_interval_bytes=0)
    for number in range(12):
        broker.put(1, timestamp=NOW + number)
    broker.split()
    broker.checkpoint()
    log = broker.splitter.queues[1].log
    assert log is not None and len(log.bases) > 3
    disk, repairer = broker.read_disk, Repairer(broker.splitter)
    closed, last = (f"queues/t-1/{base:020}{suffix}" for base in (log.bases[1], log.bases[-1]))
    data = disk.open(closed).read(0, 1000)
    assert data
    for name in (closed, last):
        disk.replace(name, b"\x7f" * 24)
        repairer.repair(1, name)
    assert disk.open(closed).read(0, 1000) == data
    with pytest.raises(Corrupt, match="is gone"):
        repairer.repair(1, f"queues/t-1/{77:020}{suffix}")
    broker.put(1)
    broker.split()
    broker.checkpoint()
    assert broker.offsets(1) == list(range(13)) and findings(broker) == []


def test_segments_of_a_demoted_queue_are_not_mended() -> None:
    """Though the journals hold the records: new ones would go into that old segment if it were promoted again."""
    broker = Broker("dedicated")
    broker.engine.paths[0].journal.segment_bytes = 1 << 20
    broker.put(1, 1)
    broker.split()
    broker.checkpoint()
    demote(broker)
    broker.checkpoint()
    with pytest.raises(Corrupt, match="no segments"):
        Repairer(broker.splitter).repair(1, "queues/t-1")
    assert broker.read_disk.list("queues") == []
    broker.configure(1, model="dedicated")
    broker.put(1)
    broker.split()
    broker.succeed()
    broker.checkpoint()
    assert broker.offsets(1) == [0, 1, 2] and findings(broker) == []


def test_merged_packs_are_read_and_the_old_ones_go() -> None:
    broker = Broker("shared")
    for _ in range(2):
        broker.put(1, 2)
        broker.split()
    assert not broker.maintenance.step() and not broker.splitter.has_merge  # no checkpoint names them yet
    broker.checkpoint()
    assert len(packs(broker)) == 2
    merge(broker)
    published = broker.splitter.checkpoint(NOW)
    assert published.packs == [3] and len(packs(broker)) == 3
    assert broker.offsets(1) == [0, 1]  # from the old ones
    broker.engine.on_checkpoint(published)
    broker.splitter.seen(published.serial)
    assert packs(broker) == ["00000000000000000003.pack"]
    assert broker.offsets(1) == broker.offsets(2) == [0, 1]
    assert findings(broker) == []


def test_a_power_loss_during_a_merge_loses_nothing() -> None:
    for seed in range(30):
        broker = Broker("shared")
        for _ in range(2):
            broker.put(1, 2)
            broker.split()
        broker.checkpoint()
        merge(broker)
        if seed % 2:
            broker.splitter.checkpoint(NOW)
        broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.crash(Random(seed))
        broker.start(2)
        assert broker.offsets(1) == broker.offsets(2) == [0, 1]
        assert len(packs(broker)) in (1, 2)  # what does not count is gone


def test_retention_in_packs() -> None:
    broker = Broker("shared", retention_ms=1000)
    broker.put(1, 2, timestamp=NOW - 1001)
    broker.split()
    broker.put(1, timestamp=NOW - 10)
    broker.split()
    broker.checkpoint()
    assert broker.maintenance.look(NOW) == [StartProposal(1, 1), StartProposal(2, 1)]
    assert broker.maintenance.look(NOW - 500) == []


def test_retention_by_size_in_packs() -> None:
    broker = Broker("shared", retention_ms=-1, retention_bytes=120)
    for _ in range(3):
        broker.put(1)
        broker.split()
    broker.checkpoint()
    assert broker.maintenance.look(NOW) == [StartProposal(1, 1)]


def test_retention_reaches_from_packs_into_segments() -> None:
    broker = Broker("auto", retention_ms=1000)
    for _ in range(6):
        broker.put(1, timestamp=NOW - 1001)
        broker.split()
    broker.checkpoint()
    assert broker.engine.queues[1].segments_from > 0
    assert broker.maintenance.look(NOW) == [StartProposal(1, 6)]


def test_deleted_records_leave_packs_with_a_merge() -> None:
    broker = Broker("shared")
    broker.put(1, 1, 2)
    broker.split()
    broker.checkpoint()
    size = broker.read_disk.open("packs/00000000000000000001.pack").size()
    broker.engine.paths[0].stage_fact(broker.engine.queues[1], StartMoved(2), NOW)
    broker.flush()
    broker.split()
    broker.checkpoint()
    broker.maintenance.look(NOW)  # counts what is dead
    merge(broker)
    broker.checkpoint()
    assert broker.offsets(1) == [] and broker.offsets(2) == [0]
    assert broker.read_disk.open(f"packs/{packs(broker)[0]}").size() < size
    assert findings(broker) == []


def test_a_deleted_topic_leaves_packs_too() -> None:
    broker = Broker("shared")
    broker.put(1)
    broker.split()
    broker.checkpoint()
    broker.specs.pop(1)
    broker.engine.drop_queues([1])
    broker.splitter.drop([(1, "queues/t-1")])
    broker.checkpoint()
    broker.maintenance.look(NOW)
    merge(broker)
    broker.checkpoint()
    assert packs(broker) == []
    assert set(load_checkpoint(broker.read_disk).queues) == set()
