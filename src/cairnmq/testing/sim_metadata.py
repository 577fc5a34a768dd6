"""The metadata of the simulated machine: the numbers alone. Now and then they are put back to an older state, which the
next starts must notice, before they change anything, until they are put right or somebody accepts it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cairnmq.errors import Outdated, Refusal
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.live.ack_policy import WRITTEN, AckPoint
from cairnmq.storage.recovery import lost_disk, witness
from cairnmq.storage.recovery.owner import OwnerWitness
from cairnmq.storage.recovery.witness import Known
from cairnmq.testing.oracle import demand
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.types import OWN_PRODUCERS_FROM, Counters, highest

if TYPE_CHECKING:
    from cairnmq.testing.sim_machine import Disks, Machine
    from cairnmq.testing.sim_storage import World

COPIES = 8
BLOCK, BLOCK_AT_FIRST = 3, 8  # producer ids
STARTS = 3  # that are tried in vain


class SimMetadata(Struct):
    """Durable as a whole: what it does not survive is a person."""

    now: Counters = Counters(next_producer_id=OWN_PRODUCERS_FROM + BLOCK_AT_FIRST)
    kept: Counters = Counters()  # what `owner.json` must say
    told: tuple[tuple[int, Counters], ...] = ()  # since then: position in the journal of facts behind the witness of it
    copies: list[Counters] = []

    def counters(self) -> Counters:
        return self.now

    def raise_to(self, floor: Counters) -> None:
        self.now = highest(self.now, msgspec.structs.replace(floor, epoch=0))

    def next_epoch(self, above: int = 0) -> int:
        self.now = msgspec.structs.replace(self.now, epoch=max(self.now.epoch, above) + 1)
        return self.now.epoch

    def begin(self, known: Known, journal_disk: SimDisk) -> int:
        def keep(counters: Counters) -> None:
            OwnerWitness(journal_disk, "sim").keep(counters)
            self.kept, self.told = counters, ()

        return witness.begin(self, known, keep)

    def give(self, queues: int = 0, producers: int = 0) -> None:
        """A change, with ids that it takes."""
        was = self.now
        self.now = Counters(was.epoch, was.next_queue_id + queues, was.next_producer_id + producers, was.revision + 1)

    def save(self, rng: Random) -> None:
        if self.now not in self.copies:
            self.copies.append(self.now)
        if len(self.copies) > COPIES:
            self.copies.pop(rng.randrange(COPIES))


def change(world: World, *, queues: int = 0, producers: int = 0, told: Callable[[], None] | None = None) -> None:
    """As the broker changes metadata: `told` is called when the journal has the witness of it, never if that fails."""
    metadata = world.metadata
    metadata.give(queues, producers)
    number, now = world.engine.appends.facts_in, metadata.now
    path = world.lanes[number].path
    end = path.stage_fact(None, Keyed(*witness.witness_fact(now)), world.now)
    if isinstance(end, Refusal):
        return

    def answered(met: bool) -> None:
        if met:
            metadata.told = (*metadata.told, (end, now))
            if told is not None:
                told()

    world.wait_for(AckPoint(number, WRITTEN, end), answered)


def turn(world: World) -> None:
    """Somebody copies the file, or asks for a producer id and goes away."""
    if world.rng.random() < 0.5:
        world.metadata.save(world.rng)
    else:
        new_producer_id(world)


def new_producer_id(world: World) -> int | None:
    """None: the next ones are on their way."""
    if len(world.producer_ids) < 2 and world.lanes:
        first = world.metadata.now.next_producer_id
        change(world, producers=BLOCK, told=lambda: world.producer_ids.extend(range(first, first + BLOCK)))
    return world.producer_ids.pop(0) if world.producer_ids else None


def fall_back(machine: Machine, disks: Disks, promised: int, rng: Random) -> None:
    """Before a start. Everything up to `promised` survived of the journal of facts."""
    metadata = machine.metadata
    right = metadata.now
    known = highest(metadata.kept, *(counters for end, counters in metadata.told if end <= promised))
    if (right.next_queue_id, right.next_producer_id) != (known.next_queue_id, known.next_producer_id):
        return  # ids that nobody was told of, or that a power loss made forgotten
    older = [copy for copy in metadata.copies if highest(copy, known) != copy]
    if not older:
        return
    machine.tally.fall_backs += 1
    metadata.now = copy = rng.choice(older)
    for _ in range(STARTS):
        before = [disk.operations for disk in disks]
        try:
            machine.open_engine(*disks)
            demand(False, "metadata of", copy, "were let in; storage knew of", known)
        except Outdated:
            demand(metadata.now == copy, "a start was refused, and changed the metadata to", metadata.now)
            demand([disk.operations for disk in disks] == before, "a start was refused, and changed something")
    if rng.random() < 0.5:
        metadata.now = right
        return
    machine.tally.accepted_losses += 1
    found = lost_disk.find_loss(*disks, machine.specs.values(), metadata.now)
    demand(found is not None and found.is_outdated, "what starts refuse cannot be accepted")
    assert found is not None
    demand(not found.queues and not found.rows, "no record is lost, but", found.queues)
    epoch = metadata.next_epoch(found.known.floor.epoch)
    lost_disk.accept(*disks, found, epoch=epoch, seed=77, now_ms=machine.now)
    metadata.raise_to(found.known.floor)
    now = metadata.now
    demand(now.epoch > right.epoch, "epoch", now.epoch, "was given before")
    demand(now.next_queue_id >= right.next_queue_id, "queue ids are given again from", now.next_queue_id)
    demand(now.next_producer_id >= right.next_producer_id, "producer ids are given again from", now.next_producer_id)
