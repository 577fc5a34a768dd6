"""A directory of version 1 is upgraded, and stopped on its way at each operation of a disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cairnmq.broker.coordination.slot_keys import place_of
from cairnmq.broker.live_catalog import all_queue_specs
from cairnmq.errors import Corrupt, Fault
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.topics import placed
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.check.verify import check
from cairnmq.storage.checkpoint.checkpoint import checkpoint_name, load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import CHECKPOINT_SUFFIX, CHECKPOINTS, QUEUE_ID_MAX, Keyed, numbered
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.owner import OwnerWitness, read_owner
from cairnmq.storage.upgrade.upgrade import is_needed, upgrade
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.testing.sim_machine import Struck
from cairnmq.types import Counters, Slots
from golden.directory import expected, seen, unpack

SLOTS = Slots(100, 24, (0, 1))
CONFIG = EngineConfig(segment_bytes=1 << 20)
WANTED = expected("version-1")
NOW = WANTED["time_ms"]
Disks = tuple[SimDisk, SimDisk]


class Old:
    """The golden directory, on simulated disks as often as one likes."""

    def __init__(self, root: Path) -> None:
        with closing(SqliteStore(str(unpack("version-1", root) / "meta.db"))) as store:
            catalog = Catalog(store)
            catalog.load()
            self.specs: list[QueueSpec] = all_queue_specs(placed(catalog.image, (0, 1)), BrokerConfig())
        self.root = root

    def disks(self) -> Disks:
        journal_disk, read_disk = SimDisk(Random(1)), SimDisk(Random(2))
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if not path.is_file() or name.startswith("meta.db"):
                continue
            disk = journal_disk if name.startswith("journal/") else read_disk
            name = name.removeprefix("journal/")
            disk.make_dir(name.rpartition("/")[0])
            file = disk.create(name)
            file.append([path.read_bytes()])
            file.sync()
            while name:
                name = name.rpartition("/")[0]
                disk.sync_dir(name)
        return journal_disk, read_disk

    def start(self, disks: Disks, epoch: int) -> Engine:
        """In the order in which `broker/start_storage.py` does it."""
        journal_disk, read_disk = disks
        witness = OwnerWitness(journal_disk, "c")
        counters = Counters(epoch, 200)

        def begin(_: object) -> int:
            witness.keep(counters)
            return epoch

        engine = Engine.open(
            journal_disk, read_disk, self.specs, begin=begin, seed=1, config=CONFIG, now_ms=NOW, journals=SLOTS.cycle
        )
        if not witness.is_current(SLOTS.first) or any(scan.is_old for scan in engine.scans.values()):
            assert is_needed(engine)
            upgrade(engine, journal_disk, slot_of, NOW)
            witness.upgraded(SLOTS.first, counters)
        return engine


def slot_of(space: str, key: bytes) -> int:
    place = place_of(SLOTS, space, key)
    return place.queue_id if place is not None else 0


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Old:
    return Old(tmp_path_factory.mktemp("old"))


def found_in(engine: Engine) -> dict[str, Any]:
    return {"time_ms": NOW, **seen(engine)}


def versions(disk: SimDisk) -> set[int]:
    """Of the frames of the checkpoint that counts."""
    name = checkpoint_name(numbered(disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX)[-1])
    return {disk.open(name).read(2, 1)[0]}


def test_everything_is_there_and_in_the_new_format(old: Old) -> None:
    disks = old.disks()
    engine = old.start(disks, 10)
    assert found_in(engine) == WANTED
    assert all(scan.end > scan.start and scan.is_old for scan in engine.scans.values()), "there was something to split"
    assert engine.split == engine.checkpointed == {scan.number: scan.end for scan in engine.scans.values()}
    owner = read_owner(disks[0])
    assert owner is not None and (owner.format, owner.slots_from) == (2, 100)
    rows = load_checkpoint(disks[1]).keyed.values()
    assert {row.queue_id for row in rows if row.space == "witness"} == {0}
    assert all(row.queue_id == slot_of(row.space, row.key) for row in rows)
    assert len({row.queue_id for row in rows}) > 3
    assert [finding for finding in check(disks[1], disks[0]) if not finding.is_note] == []


def test_it_is_done_once(old: Old) -> None:
    disks = old.disks()
    old.start(disks, 10)
    serial = load_checkpoint(disks[1]).serial
    engine = old.start(disks, 11)
    assert found_in(engine) == WANTED and load_checkpoint(disks[1]).serial == serial
    assert all(scan.end == scan.start and not scan.is_old for scan in engine.scans.values())


def test_entries_of_the_new_version_come_after_it(old: Old) -> None:
    disks = old.disks()
    engine = old.start(disks, 10)
    place = place_of(SLOTS, "group", b"g")
    assert place is not None
    point = engine.appends.put_keyed(place, [Keyed("group", b"g", b"state")], "commit", NOW)
    path = engine.paths[place.journal]
    write = path.take()
    assert write is not None and point
    path.write(write)
    path.written(write)
    path.synced_to(path.sync())
    reader = JournalReader(disks[0], place.journal)
    heads = [head for base in reader.bases if (head := reader.head(base)) is not None]
    assert heads[-1].leader == (1, 10) and all(head.leader is None for head in heads[:-1])
    again = old.start((disks[0].crash(), disks[1].crash()), 11)
    assert again.keyed["group", b"g"] == b"state"
    assert not any(scan.is_old for scan in again.scans.values())


def strikes(old: Old) -> Iterator[int]:
    """How many operations of disks there are."""
    disks = old.disks()
    left = sum(disk.operations for disk in disks)
    old.start(disks, 10)
    yield from range(1, sum(disk.operations for disk in disks) - left + 1)


@pytest.mark.parametrize("event", ["kill", "power loss"])
def test_it_is_stopped_anywhere(old: Old, event: str) -> None:
    """The next start goes on with it. Until the checkpoint of the new version counts, an older one could go on too."""
    still_old = 0
    for countdown in strikes(old):
        disks, left = old.disks(), countdown

        def observe(disk: SimDisk) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Struck

        for disk in disks:
            disk.observe = observe
        with pytest.raises(Struck):
            old.start(disks, 10)
        rng = Random(countdown)
        journal_disk, read_disk = (d.kill(rng) if event == "kill" else d.crash(rng) for d in disks)
        owner = read_owner(journal_disk)
        is_old = versions(read_disk) == {1}
        still_old += is_old
        assert owner is not None and (owner.format == 1 or not is_old), "the owner is marked last"
        for number in range(2):
            reader = JournalReader(journal_disk, number)
            assert all(reader.head(base) is None or reader.head(base).leader is None for base in reader.bases)
            assert all(entry.queue_id <= QUEUE_ID_MAX for entry in reader.entries(reader.bases[0], reader.end()))
        engine = old.start((journal_disk, read_disk), 11)
        assert found_in(engine) == WANTED, countdown
        assert read_owner(journal_disk).format == 2  # type: ignore[union-attr]
    assert still_old > 10


def test_a_damaged_journal_is_not_upgraded(old: Old) -> None:
    """It could not be split; the version that wrote it still serves what is sound."""
    disks = old.disks()
    reader = JournalReader(disks[0], 0)
    mark = load_checkpoint(disks[1]).marks[0]
    (first,) = list(reader.entries(mark.split, reader.end()))[:1]
    disks[0].damage("0/00000000000000000000.jnl", first.position + 40)
    with pytest.raises(Corrupt, match="earlier version and cannot be upgraded"):
        old.start(disks, 10)
    assert versions(disks[1]) == {1}


def test_without_room_for_it_the_version_before_goes_on(old: Old) -> None:
    """Else neither could start: what is split first is a checkpoint that only this version reads."""
    disks = old.disks()
    read_disk = disks[1]
    copies = disks[0].crash(), disks[1].crash()
    scans = Engine.open(*copies, old.specs, begin=lambda _: 10, seed=1, config=CONFIG, now_ms=NOW).scans
    read_disk.capacity = 1 << 40
    used = read_disk.capacity - read_disk.free_bytes()
    read_disk.capacity = used + sum(scan.end - scan.start for scan in scans.values())
    with pytest.raises(Fault, match="needs .* bytes of the data disk"):
        old.start(disks, 10)
    assert versions(read_disk) == {1}
    read_disk.capacity += 100_000
    assert found_in(old.start(disks, 11)) == WANTED


def test_an_upgrade_that_has_begun_is_tried_with_what_room_there_is(old: Old) -> None:
    """What it left behind is removed on the way, and the version before is of no use any more."""
    disks = old.disks()

    def observe(disk: SimDisk) -> None:
        if versions(disk) == {2}:
            raise Struck

    disks[1].observe = observe
    with pytest.raises(Struck):
        old.start(disks, 10)
    journal_disk, read_disk = (disk.kill(Random(1)) for disk in disks)
    read_disk.capacity = 0
    with pytest.raises(OSError, match="No space"):
        old.start((journal_disk, read_disk), 11)
    read_disk.capacity = None
    assert found_in(old.start((journal_disk, read_disk), 12)) == WANTED
