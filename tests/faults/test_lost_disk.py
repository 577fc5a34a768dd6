"""A start without the read disk or the write disk: it says what is gone, and goes on with the rest when told so."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from broker_process import Broker, wait_until
from crash.ledger import Place
from faults.scene import PLACES, SECONDS, Scene, verify
from interop.clients.contract import Got

SMALL = {"cairn.journal.segment.bytes": str(1 << 16)}
KEPT = ("meta.db", "meta.db-wal", "lock")


def files(*roots: Path) -> dict[str, str]:
    """Every file but those that any start touches, with a digest."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for root in roots
        for path in root.rglob("*")
        if path.is_file() and path.name not in KEPT
    }


def refused(broker: Broker) -> str:
    """A start without the flag: ends with 1, changes nothing; what it said."""
    assert broker.journal_dir is not None
    before = files(broker.data, broker.journal_dir)
    seen = len(broker.log())
    broker.launch()
    assert broker.wait_dead() == 1
    assert files(broker.data, broker.journal_dir) == before
    return broker.log()[seen:]


class Stock(NamedTuple):
    """Directories that a killed broker left, and what could be read before."""

    data: Path
    journals: Path
    records: dict[Place, list[Got]]
    epoch: int


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    """Records in queue logs and in packs, journals whose first files are gone, and records that are only there."""
    directory = tmp_path_factory.mktemp("stock")
    scene = Scene(lambda **options: Broker(directory, **options), settings=SMALL)
    try:
        load = scene.load()
        load.wait_for(1500, SECONDS)
        wait_until(lambda: scene.status()["journals"][0]["checkpoint"] > 1 << 17, SECONDS, "a checkpoint")
        load.finish()
        for place in (PLACES[0], PLACES[2]):
            produce_one(scene, place)
        records = {place: scene.read(place) for place in PLACES}
        epoch = scene.status()["broker"]["epoch"]
        scene.broker.kill_tree()
    finally:
        scene.abandon()
        scene.broker.close()
    assert scene.broker.journal_dir is not None
    return Stock(scene.broker.data, scene.broker.journal_dir, records, epoch)


@pytest.fixture
def scene(make_scene: Callable[..., Scene], stock: Stock) -> Scene:
    """Not running, on a copy of the stock."""
    scene = make_scene(settings=SMALL, start=False)
    assert scene.broker.journal_dir is not None
    shutil.copytree(stock.data, scene.broker.data)
    shutil.copytree(stock.journals, scene.broker.journal_dir)
    return scene


def accepted(scene: Scene) -> dict[str, object]:
    scene.broker.flags = ("--accept-loss",)
    scene.broker.start()
    scene.broker.flags = ()
    (loss,) = scene.status()["losses"]
    assert scene.reasons() == []
    return dict(loss)


def goes_on(scene: Scene, ends: dict[Place, int]) -> None:
    """New records are taken at the known ends; a start without the flag works, and remembers."""
    for place, end in ends.items():
        assert scene.client.bounds(place.topic, place.partition)[1] == end
        (offset,) = produce_one(scene, place)
        assert offset == end
        assert [record.value for record in scene.read(place)][-1] == b"behind the loss"
    losses = scene.status()["losses"]
    assert scene.broker.stop() == 0
    verify(scene.broker)
    scene.broker.start()
    assert scene.status()["losses"] == losses
    for place, end in ends.items():
        assert scene.read(place)[-1].offset == end
    assert scene.broker.stop() == 0
    verify(scene.broker)


def produce_one(scene: Scene, place: Place) -> list[int]:
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": scene.broker.bootstrap})
    producer.produce(
        place.topic,
        b"behind the loss",
        partition=place.partition,
        on_delivery=lambda error, message: offsets.append(message.offset() if error is None else -1),
    )
    assert producer.flush(SECONDS) == 0
    return offsets


def test_the_write_disk_is_lost(scene: Scene, stock: Stock) -> None:
    assert scene.broker.journal_dir is not None
    shutil.rmtree(scene.broker.journal_dir)
    said = refused(scene.broker)
    assert "journal 0 has no files, but the checkpoint is at position" in said
    assert "lost: own-0: offsets" in said and "lost: packed-1: offsets" in said and "--accept-loss" in said
    loss = accepted(scene)
    assert len(loss["queues"]) == len(PLACES)  # type: ignore[arg-type]
    ends = {}
    for place in PLACES:
        left = scene.read(place)
        assert left == stock.records[place][: len(left)] and left, "what was checkpointed is all there"
        ends[place] = len(left)
    goes_on(scene, ends)


@pytest.mark.parametrize("owner", [True, False], ids=["with its owner", "without"])
def test_journals_of_another_broker(scene: Scene, make_broker: Callable[..., Broker], owner: bool) -> None:
    """In the place of the lost ones: they are refused, also with --accept-loss, and not a byte of them changes."""
    other = make_broker().start()
    producer = Producer({"bootstrap.servers": other.bootstrap})
    for number in range(5000):
        producer.produce("theirs", b"%d" % number)
    assert producer.flush(SECONDS) == 0
    other.kill_tree()
    journals = scene.broker.journal_dir
    assert journals is not None
    shutil.rmtree(journals)
    shutil.copytree(other.data / "journal", journals)
    if not owner:
        (journals / "owner.json").unlink()
    refused(scene.broker)
    scene.broker.flags = ("--accept-loss",)
    said = refused(scene.broker)
    assert ("belong to the cluster" if owner else "is of another cluster") in said and "does not help" in said


def test_the_read_disk_is_lost(scene: Scene, stock: Stock) -> None:
    """But its metadata was restored: what the journals hold goes on where it was."""
    for name in ("queues", "packs", "checkpoints"):
        shutil.rmtree(scene.broker.data / name)
    said = refused(scene.broker)
    assert "the read disk holds no checkpoint" in said and "journal 0 starts at position" in said
    loss = accepted(scene)
    ends = {}
    for place in PLACES:
        left = scene.read(place)
        assert not left or left == stock.records[place][-len(left) :], "offsets and records are the ones they were"
        if left:
            gone = f"{place.topic}-{place.partition}: offsets 0 to {left[0].offset - 1}"
            assert gone in said and gone in loss["queues"]  # type: ignore[operator]
        ends[place] = scene.client.bounds(place.topic, place.partition)[1]
    assert scene.read(Place("own", 0)), "the last records were only in the journal"
    goes_on(scene, ends)


def test_the_read_disk_is_lost_with_the_metadata(scene: Scene, stock: Stock) -> None:
    """Records without names are of no use; they are kept aside, and the broker begins anew under a higher epoch."""
    shutil.rmtree(scene.broker.data)
    said = refused(scene.broker)
    assert "the metadata is missing" in said and "journal 0 holds" in said
    accepted(scene)
    assert scene.status()["broker"]["epoch"] > stock.epoch
    assert scene.broker.journal_dir is not None
    assert list(scene.broker.journal_dir.glob("lost/*/0/*.jnl")), "nothing was deleted"
    scene.client.create_topic("own", 1)
    goes_on(scene, {Place("own", 0): 0})


def test_a_checkpoint_that_cannot_be_read(scene: Scene) -> None:
    (checkpoint,) = (scene.broker.data / "checkpoints").glob("*.ckpt")
    checkpoint.write_bytes(b"x" * checkpoint.stat().st_size)
    assert "holds no complete checkpoint" in refused(scene.broker)
    accepted(scene)
    assert list(scene.broker.data.glob("lost/*/queues/own-0/*.log")), "nothing was deleted"
    goes_on(scene, {place: scene.client.bounds(place.topic, place.partition)[1] for place in PLACES})
