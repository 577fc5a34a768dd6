"""What a start finds, before it changes anything."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.files.failed_sync import unsynced_name
from cairnmq.storage.recovery.clean_stop import CLEAN_STOP
from cairnmq.storage.recovery.found_storage import FoundStorage
from cairnmq.storage.recovery.replay import Scan, live_queues
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.cluster_harness import Machine, spec
from unit.storage.replica_harness import NOW
from unit.storage.splitter_harness import Broker


def found_by(disks: tuple[SimDisk, SimDisk], broker: Broker) -> FoundStorage:
    image = load_checkpoint(disks[1])
    queues = live_queues(broker.specs.values(), image)
    return FoundStorage(*disks, image, queues, [0], now_ms=NOW, progress=None)


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.put(1, 2, 1)
    broker.split()
    broker.checkpoint()
    broker.engine.end()
    return broker


def test_nothing_is_changed_before_it_begins(broker: Broker) -> None:
    disks = broker.journal_disk.kill(), broker.read_disk.kill()
    disks[1].replace(unsynced_name(""), b"")
    before = [disk.operations for disk in disks]
    found = found_by(disks, broker)
    assert [disk.operations for disk in disks] == before
    assert found.stop is not None and not found.damaged and found.known().seen.next_queue_id == 3
    told: list[int] = []

    def tell(scans: object) -> None:
        assert disks[1].exists(CLEAN_STOP)
        told.extend(found.scans)

    assert found.begin(tell) == {0: broker.engine.paths[0].journal.end} and told == [0]
    assert not disks[1].crash(Random(1)).exists(CLEAN_STOP), "durably"
    found.done()
    assert not disks[1].exists(unsynced_name(""))


def test_a_queue_that_does_not_go_on_stops_the_start(broker: Broker) -> None:
    found = found_by((broker.journal_disk.kill(), broker.read_disk.kill()), broker)
    scan: Scan = found.scans[0]
    scan.gaps[1] = Corrupt("a gap")
    with pytest.raises(Corrupt, match="a gap"):
        found.begin(None)
    assert found.read_disk.exists(CLEAN_STOP)


def test_damage_marks_the_queues_behind_it() -> None:
    machine = Machine(1, [spec(1), spec(2), spec(3, 9)])
    machine.lead(5)
    machine.put(1)
    first = machine.end()
    machine.put(2)
    machine.sync()
    machine.put(1)
    machine.disks[0].damage(f"4/{0:020d}.jnl", first + 3)
    machine.killed()
    engine = machine.engine
    assert engine.scans[4].damage is not None and engine.queues[2].cut_short and not engine.queues[3].cut_short


def damaged_alone() -> tuple[Machine, str, int]:
    """The only replica, killed with everything synced; a file of its journal, and a byte in it that is then damaged."""
    machine = Machine(1, [spec(1)])
    machine.lead(5)
    for _ in range(12):
        machine.put(1)
    machine.sync()
    base = max(segment.base for segment in machine.engine.paths[4].journal.segments if segment.base < machine.end())
    return machine, f"4/{base:020d}.jnl", (machine.end() - base) // 2


def test_what_was_damaged_and_is_restored_is_whole() -> None:
    """The start that finds the damage says how far the disk had the journal, and leaves it as it is."""
    machine, name, at = damaged_alone()
    end = machine.end()
    machine.disks[0].damage(name, at)
    machine.killed()
    found = machine.joinings[-1]
    assert (found.damaged, found.had, found.whole) == ({4}, {4: end}, frozenset())
    machine.killed(had=found.had)
    assert (machine.joinings[-1].damaged, machine.joinings[-1].had) == ({4}, {4: end}), "nothing was restored"
    machine.disks[0].damage(name, at)  # back to what it was
    machine.killed(had=found.had)
    again = machine.joinings[-1]
    assert (again.damaged, again.had, again.whole) == (frozenset(), {}, {4}) and machine.end() == end


def test_an_older_copy_is_not_whole() -> None:
    """Neither the file nor what tells how much was synced of it knows of what came later."""
    machine, name, at = damaged_alone()
    older = machine.disks[0].kill(), machine.disks[1].kill()
    machine.put(1)
    machine.sync()
    end = machine.end()
    machine.disks[0].damage(name, at)
    machine.killed()
    had = machine.joinings[-1].had
    assert had == {4: end}
    machine.disks = older
    machine.killed(had=had)
    again = machine.joinings[-1]
    assert (again.damaged, again.had, again.whole) == ({4}, {4: end}, frozenset())
    assert "lost its end" in machine.engine.scans[4].damage_text


def test_what_others_have_is_cut_and_proves_nothing_later() -> None:
    machine, name, at = damaged_alone()
    machine.disks[0].damage(name, at)
    machine.killed(has_others=True)
    assert (machine.joinings[-1].damaged, machine.joinings[-1].had) == ({4}, {})
