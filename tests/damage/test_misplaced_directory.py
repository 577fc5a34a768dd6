"""A queue directory that is not its own: somebody has copied a `queue.json`, or a directory, to the wrong place.

That is damage of one queue. Its records there are put aside, neither served nor removed; all others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from cairnmq.storage.check.verify import check
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.format import IDENTITY_FILE, QUEUES, QueueIdentity
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.testing.sim_disk import SimDisk
from damage.world import NOW, SPECS, Model, World, made

WRONG, OTHER = SPECS[1], SPECS[2]
ALL_KEPT, NONE_KEPT = 1 << 30, 0
Mistake = Callable[[SimDisk], None]


def content(disk: SimDisk, name: str) -> bytes:
    file = disk.open(name)
    return bytes(file.read(0, file.size()))


def tree(disk: SimDisk, directory: str) -> dict[str, bytes]:
    return {name: content(disk, f"{directory}/{name}") for name in disk.list(directory)}


def copy_identity(disk: SimDisk) -> None:
    disk.replace(f"{WRONG.directory}/{IDENTITY_FILE}", content(disk, f"{OTHER.directory}/{IDENTITY_FILE}"))


def copy_directory(disk: SimDisk) -> None:
    disk.remove_tree(WRONG.directory)
    disk.make_dir(WRONG.directory)
    for name in disk.list(OTHER.directory):
        disk.replace(f"{WRONG.directory}/{name}", content(disk, f"{OTHER.directory}/{name}"))


def identity_of_a_deleted_queue(disk: SimDisk) -> None:
    gone = QueueIdentity(77, "gone", 0, bytes(16).hex())
    disk.replace(f"{WRONG.directory}/{IDENTITY_FILE}", gone.sealed())


def identity_of_a_namesake(disk: SimDisk) -> None:
    """As when the directory of a topic is put back that was deleted and made again."""
    gone = QueueIdentity(77, WRONG.topic, WRONG.partition, bytes(16).hex())
    disk.replace(f"{WRONG.directory}/{IDENTITY_FILE}", gone.sealed())


MISTAKES = [copy_identity, copy_directory, identity_of_a_deleted_queue, identity_of_a_namesake]


def stopped(retain_bytes: int) -> tuple[SimDisk, SimDisk, Model]:
    world, model = made(3, retain_bytes=retain_bytes)
    return *world.killed(), model


def test_nothing_of_another_queue_is_read() -> None:
    """Batches do not say of which queue they are: only the directory does."""
    journals, disk, model = stopped(NONE_KEPT)
    copy_directory(disk)
    world = World(journals, disk, 3, retain_bytes=NONE_KEPT)
    said = world.read(WRONG.queue_id, 0)
    assert isinstance(said, Damage) and "t-1 is wrong, its queue.json is that of queue 2 (t-2)" in str(said)
    with pytest.raises(Damage):
        world.engine.reads.find_in_log(world.engine.queues[WRONG.queue_id], 0)
    assert world.read_all(OTHER.queue_id) == model[OTHER.queue_id]


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("looks_first", [False, True], ids=["a round comes first", "maintenance comes first"])
def test_all_queues_are_split_on(mistake: Mistake, looks_first: bool) -> None:
    journals, disk, model = stopped(NONE_KEPT)
    mistake(disk)
    before, other = tree(disk, WRONG.directory), tree(disk, OTHER.directory)
    world = World(journals, disk, 3, retain_bytes=NONE_KEPT)
    if looks_first:
        world.look()
    unsplit = world.engine.queues[WRONG.queue_id].split_end
    world.split()
    world.checkpoint()
    assert all(queue.split_end == queue.end for queue in world.engine.queues.values())

    aside = [name for name in disk.list("lost/2/queues") if name.startswith("t-1")]
    assert [tree(disk, f"lost/2/queues/{name}") for name in aside] == [before]
    assert all(tree(disk, OTHER.directory)[name].startswith(data) for name, data in other.items() if ".log" in name)
    (place,) = (place for _, place in world.splitter.damages)
    assert (place.file, place.queue, place.first) == (WRONG.directory, "t-1", 0)
    assert "it was moved to lost/2/queues/t-1: offsets 0 to" in str(place)

    again = World(*world.killed(), epoch=4, retain_bytes=NONE_KEPT)
    for queue_id, batches in model.items():
        start = unsplit if queue_id == WRONG.queue_id else 0
        left = {base: batch for base, batch in batches.items() if base >= start}
        assert left and again.read_all(queue_id, start) == left
    assert isinstance(again.read(WRONG.queue_id, 0), Damage)
    again.look()
    again.produce(2, Random(5), model)
    again.split()
    assert [place.file for _, place in again.splitter.damages] == [WRONG.directory]  # told again, and nothing new


def test_what_journals_still_hold_is_made_again() -> None:
    journals, disk, model = stopped(ALL_KEPT)
    copy_identity(disk)
    world = World(journals, disk, 3, retain_bytes=ALL_KEPT)
    world.split()
    world.repair([])
    assert {queue_id: world.read_all(queue_id) for queue_id in model} == model


def test_a_stray_directory_is_told_of_and_left_alone() -> None:
    journals, disk, model = stopped(NONE_KEPT)
    stray = f"{QUEUES}/t-2 (copy)"
    disk.make_dir(stray)
    for name in disk.list(OTHER.directory):
        disk.replace(f"{stray}/{name}", content(disk, f"{OTHER.directory}/{name}"))
    before = tree(disk, stray)
    world = World(journals, disk, 3, retain_bytes=NONE_KEPT)
    world.split()
    maintenance = Maintenance(world.splitter)
    maintenance.look(NOW)
    maintenance.look(NOW)
    assert [place.file for _, place in world.splitter.damages] == [stray]
    world.repair([])
    assert tree(disk, stray) == before
    assert {queue_id: world.read_all(queue_id) for queue_id in model} == model


def test_a_directory_that_was_moved_to_a_new_queue_is_not_removed() -> None:
    """The new one has no records yet, so nothing in its place can be its own; but it is somebody's."""
    journals, disk, _ = stopped(NONE_KEPT)
    moved = tree(disk, OTHER.directory)
    disk.remove_tree(WRONG.directory)
    disk.rename(OTHER.directory, WRONG.directory)
    world = World(journals, disk, 3, retain_bytes=NONE_KEPT)
    queue = world.splitter.learn(WRONG.queue_id)
    assert queue is not None
    world.splitter.image.queues.pop(WRONG.queue_id)
    world.splitter.open_log(queue)
    assert tree(disk, "lost/2/queues/t-1") == moved


@pytest.mark.parametrize("mistake", MISTAKES)
def test_verify_finds_it_and_nothing_else(mistake: Mistake) -> None:
    journals, disk, _ = stopped(NONE_KEPT)
    named = {
        spec.queue_id: QueueIdentity(spec.queue_id, spec.topic, spec.partition, spec.topic_id.hex())
        for spec in SPECS.values()
    }
    assert [str(each) for each in check(disk, journals, named) if not each.is_note] == []
    mistake(disk)
    found = [str(each) for each in check(disk, journals, named) if not each.is_note]
    assert found and all("t-1" in line or "queue 1" in line for line in found)


def test_a_repair_does_not_write_into_a_directory_of_another_queue() -> None:
    """It came there after the log was opened."""
    journals, disk, model = stopped(ALL_KEPT)
    world = World(journals, disk, 3, retain_bytes=ALL_KEPT)
    world.split()
    world.checkpoint()
    copy_directory(disk)
    before = tree(disk, WRONG.directory)
    Repairer(world.splitter).repair(WRONG.queue_id, WRONG.directory)
    world.checkpoint()
    assert tree(disk, "lost/2/queues/t-1") == before
    again = World(*world.killed(), epoch=4, retain_bytes=ALL_KEPT)
    assert {queue_id: again.read_all(queue_id) for queue_id in model} == model
