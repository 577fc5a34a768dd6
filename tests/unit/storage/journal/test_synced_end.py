"""The file that says how far a journal was synced: a lost tail is noticed, and nothing else is."""

from __future__ import annotations

import errno
from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt, ErrorCode, Refusal
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.check.verify import check
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.damage import Place
from cairnmq.storage.files.format import SyncedEnd, segment_entry
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.synced_end import read_synced_end
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.owner import Owner, journal_counts, write_owner
from cairnmq.testing.sim_disk import SimDisk

SPECS = [QueueSpec(number, "t", number, bytes(16), LogConfig()) for number in (1, 2, 3)]
FIRST = "0/00000000000000000000.jnl"


class Broker:
    def __init__(self, disk: SimDisk, read_disk: SimDisk, epoch: int = 1, journals: int = 1) -> None:
        self.disk, self.read_disk, self.epoch = disk, read_disk, epoch
        config = EngineConfig(segment_bytes=600)
        specs = [replace(spec, journal=spec.queue_id % journals) for spec in SPECS]
        self.engine = Engine.open(disk, read_disk, specs, begin=lambda _: epoch, seed=5, config=config, now_ms=1000)

    def put(self, queue_id: int = 1, *, sync: bool = True) -> int:
        queue = self.engine.queues[queue_id]
        batch = build_batch([Record(offset=0, timestamp=1, key=None, value=b"v" * 20)])
        path = self.engine.path_of(queue)
        path.stage(queue, memoryview(bytearray(batch)), -1, 1000)
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
        if sync:
            path.synced_to(path.sync())
        return path.journal.end

    def killed(self, journals: int = 1) -> Broker:
        return Broker(self.disk.kill(), self.read_disk.kill(), self.epoch + 1, journals)


@pytest.fixture
def broker() -> Broker:
    return Broker(SimDisk(Random(1)), SimDisk(Random(2)))


def lose(disk: SimDisk, name: str, size: int, how: str) -> None:
    file = disk.open(name, write=True)
    whole = file.size()
    file.truncate(size)
    if how == "zeroed":
        file.append([bytes(whole - size)])


@pytest.mark.parametrize("how", ["cut", "zeroed"])
def test_a_tail_that_was_synced_and_is_missing_is_damage(broker: Broker, how: str) -> None:
    """Nothing follows that could claim it: it was taken for a torn tail, and acknowledged records went unsaid."""
    first = broker.put()
    second = broker.put()
    lose(broker.disk, FIRST, second - 7, how)
    findings = [str(each) for each in check(broker.read_disk, broker.disk) if not each.is_note]
    assert any(f"up to {second} was synced" in each for each in findings), findings
    after = broker.killed()
    scan = after.engine.scans[0]
    assert scan.damage == Place(FIRST, first) and after.engine.paths[0].stopped == scan.damage_text
    assert f"everything up to {second} was synced" in scan.damage_text
    queue = after.engine.queues[1]
    answer = after.engine.reads.read(queue, 1, 100, whole=True, cached=False)
    assert isinstance(answer, Refusal) and answer.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert after.killed().engine.scans[0].damage == Place(FIRST, first), "and the next start says so again"


def test_a_tail_that_ends_with_an_entry_is_missed_too(broker: Broker) -> None:
    first = broker.put()
    second = broker.put()
    lose(broker.disk, FIRST, first, "cut")
    (finding,) = [each for each in check(broker.read_disk, broker.disk) if not each.is_note]
    assert finding.file == f"journal/{FIRST}" and f"ends at {first}; everything up to {second} was" in finding.text
    scan = broker.killed().engine.scans[0]
    assert scan.damage == Place(FIRST, first)
    assert f"journal 0 lost its end at {first} (file {FIRST} at {first})" in scan.damage_text
    assert f"everything up to {second} was" in scan.damage_text


def test_so_is_a_last_file(broker: Broker) -> None:
    while len(broker.engine.paths[0].journal.segments) < 3:
        broker.put()
    last = broker.engine.paths[0].journal.segments[-1].base
    broker.disk.remove(f"0/{last:020d}.jnl")
    assert broker.killed().engine.scans[0].damage is not None


def test_and_all_of_them(broker: Broker) -> None:
    broker.put()
    broker.disk.remove(FIRST)
    assert "no segments, but" in str(next(each for each in check(broker.read_disk, broker.disk) if not each.is_note))
    with pytest.raises(Corrupt, match="has no segment files"):
        broker.killed()


def test_what_was_never_synced_is_cut(broker: Broker) -> None:
    end = broker.put()
    broker.put(sync=False)
    lose(broker.disk, FIRST, end + 20, "cut")
    scan = broker.killed().engine.scans[0]
    assert (scan.damage, scan.end, scan.cut_bytes) == (None, end, 20)


def test_it_never_says_too_much_after_a_power_loss(broker: Broker) -> None:
    ends = {0, *(broker.put() for _ in range(4))}
    broker.put(sync=False)
    said = set()
    for seed in range(200):
        after = Broker(broker.disk.crash(Random(seed)), broker.read_disk.crash(Random(seed)), 2)
        assert after.engine.scans[0].damage is None
        found = read_synced_end(broker.disk.crash(Random(seed)), 0)
        said.add(found.position if found is not None else -1)
    assert said <= {-1, *ends} and len(said) > 2, "older ones and none, as the disk kept them"


def test_a_start_says_it_too(broker: Broker) -> None:
    end = broker.put(sync=False)
    after = broker.killed()
    found = read_synced_end(after.disk, 0)
    assert found == SyncedEnd(0, 2, 5, end), "all that is there was synced by the start"


def test_a_disk_that_refuses_it_keeps_nobody_from_writing(broker: Broker) -> None:
    first = broker.put()
    broker.disk.faults[broker.disk.operations + 3] = errno.EIO  # append, sync, this
    second = broker.put()
    found = read_synced_end(broker.disk, 0)
    assert broker.engine.paths[0].journal.synced == second and found is not None and found.position == first
    broker.disk.faults.clear()
    third = broker.put()
    found = read_synced_end(broker.disk, 0)
    assert found is not None and found.position == third


def test_the_seed_is_known_when_no_head_can_be_read(broker: Broker) -> None:
    """Without the seed nothing of the journal could be read, and all of it looked like a torn tail."""
    broker.put()
    end = broker.put()
    broker.disk.damage(FIRST, 3)
    assert JournalReader(broker.disk, 0).find_seed() == 5
    after = broker.killed()
    assert after.engine.scans[0].damage == Place(FIRST, 0)
    assert f"up to {end} was" in after.engine.scans[0].damage_text
    assert after.engine.queues[1].cut_short and after.disk.open(FIRST).size() == end


@pytest.mark.parametrize("data", [b"", b"CSYN", bytes(28), SyncedEnd(0, 1, 6, 10**6).sealed()[:-1] + b"x"])
def test_a_torn_one_says_nothing(data: bytes, broker: Broker) -> None:
    end = broker.put()
    broker.disk.remove("0/synced")
    broker.disk.create("0/synced").append([data])
    assert broker.killed().engine.scans[0].damage is None
    assert read_synced_end(broker.disk, 0) is None and end


@pytest.mark.parametrize("other", [SyncedEnd(1, 1, 5, 10**6), SyncedEnd(0, 1, 6, 10**6)], ids=["number", "seed"])
def test_that_of_another_journal_says_nothing(other: SyncedEnd, broker: Broker) -> None:
    broker.put()
    broker.disk.remove("0/synced")
    broker.disk.create("0/synced").append([other.sealed()])
    assert broker.killed().engine.scans[0].damage is None


@pytest.mark.parametrize("counts, suspected", [((2,), {2}), ((1, 2), {1, 2, 3}), ((), {1, 2, 3}), ((3,), {2, 3})])
def test_only_queues_that_may_have_lost_something_are_cut_short(
    broker: Broker, counts: tuple[int, ...], suspected: set[int]
) -> None:
    """A queue is at home where the rest of its id says, for one of the numbers of journals that there have been."""
    broker = Broker(SimDisk(Random(1)), SimDisk(Random(2)), 1, 2)
    broker.put(2)
    end = broker.put(2)
    lose(broker.disk, FIRST, end - 1, "cut")
    if counts:
        write_owner(broker.disk, Owner("c", journals=counts))
    assert journal_counts(broker.disk) == set(counts or (1,))
    queues = broker.killed(2).engine.queues
    assert {queue_id for queue_id, queue in queues.items() if queue.cut_short} == suspected


def test_a_queue_with_entries_in_another_journal_is_at_home_there(broker: Broker) -> None:
    broker = Broker(SimDisk(Random(1)), SimDisk(Random(2)), 1, 2)
    broker.put(1)
    end = broker.put(2)
    lose(broker.disk, FIRST, end - 1, "cut")
    queues = broker.killed(2).engine.queues
    assert not queues[1].cut_short and queues[2].cut_short and queues[3].cut_short


def test_one_found_behind_the_damage_is_at_home_there(broker: Broker) -> None:
    broker = Broker(SimDisk(Random(1)), SimDisk(Random(2)))
    broker.put(2)
    broker.put(1)
    broker.disk.damage(FIRST, len(segment_entry(0, 5, 1, 0, 0)) + 40)
    after = broker.killed(2)
    assert after.engine.queues[1].journal == 0 and after.engine.queues[1].cut_short


def test_no_other_journal_gives_their_offsets_again(broker: Broker) -> None:
    """Once more journals are configured, a queue whose entries are lost would go on in another one, at the offset where
    the damage begins."""
    broker.put(2)
    end = broker.put(1)
    lose(broker.disk, FIRST, end - 7, "cut")
    engine = broker.killed(journals=2).engine
    batch = build_batch([Record(offset=0, timestamp=1, key=None, value=b"v")])
    refused = engine.path_of(engine.queues[1]).stage(engine.queues[1], memoryview(bytearray(batch)), -1, 1000)
    assert isinstance(refused, Refusal) and refused.code == ErrorCode.KAFKA_STORAGE_ERROR
