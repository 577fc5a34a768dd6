"""The witness: what storage knows of the metadata's numbers, and what a start does with older metadata."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt, Outdated
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.owner import OWNER_FILE, Owner, OwnerWitness, read_owner, write_owner
from cairnmq.storage.recovery.witness import NOTHING, PRODUCERS_END, Known, Seen, begin, older, witness_fact
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.testing.sim_metadata import SimMetadata
from cairnmq.types import OWN_PRODUCERS_FROM, Counters

NOW = 1_000_000
PID = OWN_PRODUCERS_FROM + 7
FULL = Counters(5, 10, PID + 1, 40)


def test_metadata_that_know_all_of_it_are_not_older() -> None:
    assert older(FULL, Known(FULL, FULL)) is None
    assert older(FULL, Known()) is None and older(Counters(), Known()) is None
    assert older(replace(FULL, epoch=9, revision=90), Known(FULL, FULL)) is None


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("epoch", "epochs up to 4, and epoch 5 was in use"),
        ("next_queue_id", "next queue id is 9, and ids up to 9 are taken"),
        ("next_producer_id", f"next producer id is {PID}, and ids up to {PID} are taken"),
        ("revision", "1 change is missing, the last one is number 39 of 40"),
    ],
)
def test_any_number_that_fell_shows_it(field: str, words: str) -> None:
    fallen = replace(FULL, **{field: getattr(FULL, field) - 1})
    text = older(fallen, Known(FULL, NOTHING))
    assert text is not None and words in text and ";" not in text


def test_several_changes_and_signs_are_all_told() -> None:
    text = older(Counters(), Known(FULL))
    assert text is not None and text.count(";") == 3 and "40 changes are missing" in text


def test_records_show_epochs_and_queues_without_a_witness() -> None:
    assert older(replace(FULL, epoch=4), Known(NOTHING, FULL)) is not None
    assert older(replace(FULL, next_queue_id=9), Known(NOTHING, FULL)) is not None
    # clients may make up producer ids, so one that nobody gave out proves nothing
    assert older(replace(FULL, next_producer_id=0), Known(NOTHING, FULL)) is None


def test_what_clients_make_up_is_bounded() -> None:
    seen = Seen()
    seen.add(1, 1, (1 << 63) - 1)
    seen.add(1, 1, 5)  # imported: Kafka counts from 0
    disk = SimDisk(Random(1))
    assert seen.known(disk, disk, ()).seen.next_producer_id == 0
    seen.add(1, 1, PRODUCERS_END - 1)
    assert seen.known(disk, disk, ()).seen.next_producer_id == PRODUCERS_END


def test_a_start_compares_then_commits_then_writes_the_witness() -> None:
    metadata, kept = SimMetadata(FULL), list[Counters]()
    assert begin(metadata, Known(FULL, FULL), kept.append) == 6
    assert kept == [metadata.now] == [replace(FULL, epoch=6)]
    for _ in range(10):
        with pytest.raises(Outdated, match="older than the records: 1 change is missing.*Restore the newest meta.db"):
            begin(metadata, Known(replace(FULL, revision=41)), kept.append)
    assert kept == [metadata.now] == [replace(FULL, epoch=6)], "a start that is refused changes nothing"


def test_ids_that_were_only_seen_are_reserved() -> None:
    metadata, kept = SimMetadata(Counters(5, 10, OWN_PRODUCERS_FROM, 40)), list[Counters]()
    begin(metadata, Known(NOTHING, replace(FULL, next_producer_id=PID + 1)), kept.append)
    assert metadata.now.next_producer_id == PID + 1 == kept[0].next_producer_id


def test_an_epoch_that_was_in_use_is_a_defect() -> None:
    class Forgetful(SimMetadata):
        def next_epoch(self, above: int = 0) -> int:
            return above

    with pytest.raises(AssertionError):
        begin(Forgetful(FULL), Known(FULL, FULL), list[Counters]().append)


# ------------------------------------------------------------------------------------------- with an engine on disks


class Node:
    """Engine on two disks, with the metadata's numbers beside them."""

    def __init__(self) -> None:
        self.disks = SimDisk(Random(1)), SimDisk(Random(2))
        self.specs = [QueueSpec(9, "t", 0, bytes(16), LogConfig(model="shared"))]
        self.metadata = SimMetadata(replace(FULL, epoch=0))

    def start(self) -> Engine:
        owner = OwnerWitness(self.disks[0], "c")
        self.engine = Engine.open(
            *self.disks,
            self.specs,
            begin=lambda known: begin(self.metadata, known, owner.keep),
            seed=5,
            config=EngineConfig(),
            now_ms=NOW,
        )
        return self.engine

    def put(self, producer_id: int = PID) -> None:
        batch = build_batch([Record(0, NOW, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0)
        self.engine.paths[0].stage(self.engine.queues[9], memoryview(bytearray(batch)), -1, NOW)
        self.write()

    def tell(self) -> None:
        """The witness, as the broker stores it after a change."""
        self.engine.paths[0].stage_fact(None, Keyed(*witness_fact(self.metadata.now)), NOW)
        self.write()

    def write(self) -> None:
        path = self.engine.paths[0]
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
        path.synced_to(path.sync())

    def checkpoint(self) -> None:
        splitter = Splitter(*self.disks, load_checkpoint(self.disks[1]), lambda ids: self.specs, journals=[0])
        while (done := splitter.split(0, self.engine.splittable(0), NOW)) is not None:
            self.engine.on_round(done)
        self.engine.on_checkpoint(splitter.checkpoint(NOW))
        splitter.close()

    def is_refused(self) -> None:
        before, operations = self.metadata.now, [disk.operations for disk in self.disks]
        for _ in range(3):
            with pytest.raises(Outdated):
                self.start()
        assert self.metadata.now == before and [disk.operations for disk in self.disks] == operations


@pytest.fixture
def node() -> Node:
    return Node()


def test_an_idle_start_leaves_its_epoch_in_the_owner_file(node: Node) -> None:
    for epoch in (1, 2, 3):
        assert node.start().epoch == epoch
    assert node.disks[0].list("0") == []
    node.metadata.now = replace(node.metadata.now, epoch=1)
    node.is_refused()


@pytest.mark.parametrize("where", ["journal", "checkpoint"])
@pytest.mark.parametrize("owner", ["gone", "damaged", "of the first versions"])
def test_the_journal_knows_what_the_owner_file_does_not(node: Node, where: str, owner: str) -> None:
    node.start()
    older_copy = node.metadata.now
    node.metadata.give(producers=1000)
    node.tell()
    if where == "checkpoint":
        node.checkpoint()
    if owner == "gone":
        node.disks[0].remove(OWNER_FILE)
    else:
        node.disks[0].replace(OWNER_FILE, b'{"cluster_id":"c"}' if owner == "of the first versions" else b"\0" * 80)
    right, node.metadata.now = node.metadata.now, older_copy
    node.is_refused()
    node.metadata.now = right
    node.start()
    assert read_owner(node.disks[0]) == Owner("c", 1, node.metadata.now, (1,)), "it is written again"


def test_a_directory_without_a_witness_opens_and_gets_one(node: Node) -> None:
    """As versions before it left them: the owner file names the cluster alone."""
    node.start()
    node.put()
    node.checkpoint()
    node.disks[0].replace(OWNER_FILE, b'{"cluster_id":"c"}')
    node.start()
    assert read_owner(node.disks[0]) == Owner("c", 1, node.metadata.now, (1,))


def test_without_a_witness_records_say_what_was_given_out(node: Node) -> None:
    node.start()
    node.put(PID + 100)
    node.checkpoint()
    node.put(PID + 50)
    node.disks[0].remove(OWNER_FILE)
    node.metadata.now = replace(node.metadata.now, next_producer_id=OWN_PRODUCERS_FROM)
    node.start()
    assert node.metadata.now.next_producer_id == PID + 101, "reserved above the rows"
    node.put(PID + 200)
    node.disks[0].remove(OWNER_FILE)
    node.metadata.now = replace(node.metadata.now, next_producer_id=OWN_PRODUCERS_FROM)
    node.start()
    assert node.metadata.now.next_producer_id == PID + 201, "and above the journals"
    node.disks[0].remove(OWNER_FILE)
    node.metadata.now = replace(node.metadata.now, next_queue_id=9)
    node.is_refused()


def test_without_a_witness_packs_say_which_queues_there_were(node: Node) -> None:
    """Of a deleted topic nothing else is left."""
    node.start()
    node.put()
    node.checkpoint()
    node.disks[0].remove(OWNER_FILE)
    node.disks[0].remove_tree("0")
    image = load_checkpoint(node.disks[1])
    assert image.packs
    assert Seen().known(*node.disks, [*image.packs, 99]).seen.next_queue_id == 10, "also if one of them is gone"
    write_owner(node.disks[0], Owner("c", 1, FULL))
    assert Seen().known(*node.disks, image.packs).seen.next_queue_id == 1, "with a witness nobody reads them all"


def test_older_metadata_are_the_better_reason_than_a_gap(node: Node) -> None:
    """A topic that was deleted comes back without its checkpointed records."""
    node.start()
    node.put(PID)
    node.put(PID + 1)
    node.checkpoint()
    node.put(PID + 2)
    splitter = Splitter(*node.disks, load_checkpoint(node.disks[1]), lambda ids: [], journals=[0])
    splitter.drop([(9, node.specs[0].directory)])
    splitter.checkpoint(NOW)
    splitter.close()
    assert 9 not in load_checkpoint(node.disks[1]).queues
    with pytest.raises(Corrupt, match="continues at offset 2 instead of 0"):
        node.start()
    node.metadata.now = replace(node.metadata.now, revision=3)
    node.is_refused()
