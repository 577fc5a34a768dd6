"""Journals are a set of ids: whatever these are, each has its queues, its epoch, its positions."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt, Refusal
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import Keyed, journal_segment
from cairnmq.storage.live.ack_policy import DURABLE, REPLICATED, AckPoint
from cairnmq.storage.live.write_path import Placed
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery import lost_disk
from cairnmq.storage.recovery.owner import OwnerWitness
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.types import Counters, SlotPlace

NOW = 1_000_000
SPECS = [QueueSpec(number, "t", number, bytes(16), LogConfig(), (17, 3)[number % 2]) for number in (1, 2, 3, 4)]


class Broker:
    """Queues 1 and 3 are in journal 3, queues 2 and 4 in journal 17."""

    def __init__(
        self, disks: Sequence[SimDisk], epoch: int = 1, journals: Sequence[int] = (), specs: Sequence[QueueSpec] = SPECS
    ) -> None:
        self.disks, self.epoch, self.specs = disks, epoch, specs

        def begin(known: object) -> int:
            OwnerWitness(disks[0], "c").keep(Counters(epoch, 5))
            return epoch

        config = EngineConfig(segment_bytes=600)
        self.engine = Engine.open(*disks, specs, journals=journals, begin=begin, seed=5, config=config, now_ms=NOW)

    def killed(self, journals: Sequence[int] = (), specs: Sequence[QueueSpec] = SPECS) -> Broker:
        return Broker([disk.kill() for disk in self.disks], self.epoch + 1, journals, specs)

    def put(self, queue_id: int) -> Placed:
        queue = self.engine.queues[queue_id]
        batch = build_batch([Record(offset=0, timestamp=NOW, key=None, value=b"v" * 20)])
        placed = self.engine.appends.append(queue, memoryview(bytearray(batch)), -1, NOW)
        assert isinstance(placed, Placed)
        self.flush(placed.journal)
        return placed

    def flush(self, number: int) -> None:
        path = self.engine.paths[number]
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
        path.synced_to(path.sync())

    def split(self) -> None:
        engine = self.engine
        splitter = Splitter(
            *self.disks,
            load_checkpoint(self.disks[1]),
            lambda ids: [spec for spec in self.specs if spec.queue_id in ids],
            journals=engine.paths,
        )
        for number in engine.paths:
            while done := splitter.split(number, engine.splittable(number), NOW):
                engine.on_round(done)
        engine.on_checkpoint(splitter.checkpoint(NOW))
        splitter.close()


@pytest.fixture
def broker() -> Broker:
    return Broker([SimDisk(Random(1)), SimDisk(Random(2))])


def ends(broker: Broker) -> dict[int, int]:
    return {queue_id: queue.end for queue_id, queue in broker.engine.queues.items()}


def test_each_id_is_a_journal_of_its_own(broker: Broker) -> None:
    assert [broker.put(number).journal for number in (1, 2, 3, 2)] == [3, 17, 3, 17]
    assert broker.disks[0].list("") == ["17", "3", "owner.json"], "and there are no others"
    after = broker.killed()
    assert ends(after) == {1: 1, 2: 2, 3: 1, 4: 0}
    assert list(after.engine.paths) == list(after.engine.scans) == list(after.engine.epochs) == [3, 17]
    assert {number: scan.entries for number, scan in after.engine.scans.items()} == {3: 2, 17: 2}


def test_each_is_split_and_checkpointed(broker: Broker) -> None:
    for number in (1, 2, 3, 4):
        broker.put(number)
    broker.split()
    positions = {number: path.journal.end for number, path in broker.engine.paths.items()}
    assert broker.engine.split == broker.engine.checkpointed == positions and set(positions) == {3, 17}
    broker.put(2)
    after = broker.killed()
    assert after.engine.split == positions and after.engine.scans[17].entries == 1
    assert ends(after) == {1: 1, 2: 2, 3: 1, 4: 1}


def test_those_that_the_checkpoint_knows_stay_hosted(broker: Broker) -> None:
    """With no topic there any more, and no file."""
    broker.put(2)
    broker.split()
    broker.disks[0].remove_tree("17")
    broker.disks[0].make_dir("17")
    with pytest.raises(Corrupt, match="journal 17 has no segment files"):
        broker.killed((), SPECS[::2])


def test_those_asked_for_are_hosted_from_the_start(broker: Broker) -> None:
    assert list(broker.killed((3, 40)).engine.paths) == [3, 17, 40]
    assert list(broker.killed().engine.paths) == [3, 17], "nothing was in it"


def test_facts_of_coordinators_are_in_their_slot_s_and_the_node_s_in_the_first_of_them(broker: Broker) -> None:
    appends, paths = broker.engine.appends, broker.engine.paths
    point = appends.put_keyed(SlotPlace(9, 17), [Keyed("offsets", b"g", b"1")], "commit", NOW)
    assert point == AckPoint(17, DURABLE, paths[17].journal.staged_end)
    witness = appends.put_witness(Keyed("s", b"k", b"2"), "commit", NOW)
    assert witness == AckPoint(3, REPLICATED, paths[3].journal.staged_end)
    broker.flush(17)
    broker.flush(3)
    assert broker.killed().engine.keyed == {("offsets", b"g"): b"1", ("s", b"k"): b"2"}


def test_a_new_queue_goes_where_its_topic_says(broker: Broker) -> None:
    broker.engine.add_queues([QueueSpec(9, "u", 0, bytes(16), LogConfig(), 17)])
    assert broker.put(9).journal == 17


def test_a_moved_start_is_in_the_queue_s_journal(broker: Broker) -> None:
    broker.put(2)
    queue = broker.engine.queues[2]
    assert broker.engine.appends.move_start(queue, 1, NOW) == AckPoint(
        17, DURABLE, broker.engine.paths[17].journal.staged_end
    )
    broker.flush(17)
    assert broker.killed().engine.queues[2].log_start == 1


def test_damage_in_one_stops_its_queues_alone(broker: Broker) -> None:
    for number in (1, 2, 3):
        broker.put(number)
    broker.put(2)
    broker.disks[0].damage(journal_segment(17, 0), 90)
    after = broker.killed()
    assert {number: scan.damage is not None for number, scan in after.engine.scans.items()} == {3: False, 17: True}
    assert {number for number, queue in after.engine.queues.items() if queue.cut_short} == {2, 4}
    after.put(1)
    refused = after.engine.appends.move_start(after.engine.queues[4], 1, NOW)
    assert isinstance(refused, Refusal) and "journal 17 is damaged" in refused.message


def test_only_queues_of_a_lost_one_are_lost(broker: Broker) -> None:
    for number in (1, 2, 3):
        broker.put(number)
    broker.split()
    broker.put(2)
    broker.disks[0].remove_tree("17")
    broker.disks[0].sync_dir("")
    found = lost_disk.find_loss(*broker.disks, SPECS)
    assert found is not None and [mark.journal for mark in found.restarts] == [17]
    assert [str(queue) for queue in found.queues] == [
        "t-2: offsets 1 on, as many as there were",
        "t-4: offsets 0 on, as many as there were",
    ]
    assert "committed offsets" in found.text(), "slots of coordinators may be in any of them"
    lost_disk.accept(*broker.disks, found, epoch=2, seed=9, now_ms=NOW)
    after = Broker(broker.disks, 3)
    assert list(after.engine.paths) == [3, 17] and ends(after) == {1: 1, 2: 1, 3: 1, 4: 0}


def test_a_lost_checkpoint_makes_no_further_journal(broker: Broker) -> None:
    """The new one names journals so that it can be read: those that there are."""
    for number in (1, 2):
        broker.put(number)
    broker.split()
    for number in range(20):
        broker.put(1 + number % 2)
    broker.split()
    for name in ("checkpoints", "packs"):
        broker.disks[1].remove_tree(name)
    broker.disks[1].sync_dir("")
    found = lost_disk.find_loss(*broker.disks, SPECS)
    assert found is not None and found.read_disk_gone
    lost_disk.accept(*broker.disks, found, epoch=2, seed=9, now_ms=NOW)
    assert set(load_checkpoint(broker.disks[1]).marks) == {3, 17}
    assert list(Broker(broker.disks, 3).engine.paths) == [3, 17]


def test_the_epoch_rises_in_each(broker: Broker) -> None:
    """Journal 17 has seen a later one than the metadata gave out: they were rolled back."""
    broker.put(1)
    later = Broker([disk.kill() for disk in broker.disks], 7)
    later.put(2)
    with pytest.raises(Corrupt, match="epoch 7 is not above 7, which was in use in journal 17"):
        Broker([disk.kill() for disk in later.disks], 7)
    assert Broker([disk.kill() for disk in later.disks], 8).engine.epochs == {3: 8, 17: 8}


def test_where_an_epoch_ended_follows_from_that_of_the_queue_s_journal(broker: Broker) -> None:
    broker.put(1)
    broker.put(2)
    engine = broker.killed().engine
    engine.epochs[17] = 9
    one, two = engine.queues[1], engine.queues[2]
    assert [engine.epoch_end(one, epoch) for epoch in (1, 2, 9)] == [(1, 1), (2, 1), (-1, -1)]
    assert [engine.epoch_end(two, epoch) for epoch in (1, 2, 9)] == [(1, 1), (1, 1), (9, 1)]
