"""An import on the simulated machine: parts of a Kafka log, whose batches keep the offsets they have."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from cairnmq.codec.batch import NO_TIMESTAMP, read_header, set_offset_and_epoch
from cairnmq.codec.records import build_batch
from cairnmq.errors import Refusal
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.live.queue import Queue
from cairnmq.testing.oracle import QueueModel, demand
from cairnmq.testing.sim_checks import name
from cairnmq.testing.sim_clients import records_of

if TYPE_CHECKING:
    from cairnmq.testing.sim_storage import World

KAFKA_PRODUCER = 1 << 20  # above the simulator's own producers, below those of a broker of ours
STARTS = (0, 7, 5000)  # of logs whose first records retention has deleted


def bring(world: World, queue: Queue) -> None:
    """The next part of a log into a queue; sometimes one that does not fit, and must change nothing."""
    rng, lane, appends = world.rng, world.lanes[queue.journal], world.engine.appends
    held = world.live.setdefault(queue.queue_id, QueueModel())
    start = held.end or rng.choice(STARTS)
    parts, end = _log(rng, start, world)
    if held.end and rng.random() < 0.1:
        outcome = appends.append_kept(queue, parts, Span(start + 1, end + 1), world.now)
        demand(isinstance(outcome, Refusal), name(queue), "took offset", start + 1, "behind", start)
        return
    outcome = appends.append_kept(queue, parts, Span(start, end), world.now)
    if isinstance(outcome, Refusal):
        demand(lane.path.stopped is not None, name(queue), "refused an import:", outcome.message)
        return
    held.end = start
    epoch = lane.path.journal.epoch
    for part in parts:
        header = read_header(part)
        held.add_gap(header.base_offset, epoch, header.max_timestamp, name(queue))
        held.add(bytes(part), name(queue))
    held.add_gap(end, epoch, NO_TIMESTAMP, name(queue))
    world.tally.imports += 1
    if held.end > start:
        lane.visible_by.setdefault(queue.queue_id, []).append((held.end, outcome.end))
    world.wait_for(outcome, None)


def _log(rng: Random, start: int, world: World) -> tuple[list[memoryview], int]:
    """Batches with gaps between them, as compaction and aborted transactions leave them; and where they end."""
    parts = []
    at = start
    for _ in range(rng.randint(0, 3)):
        at += rng.choice((0, 0, 1, 30))
        world.serial += 1
        records = records_of(rng, world.serial, world.now, world.keys)
        pid, epoch, sequence = rng.choice(((-1, -1, -1), (KAFKA_PRODUCER + world.serial, 0, rng.randrange(1000))))
        batch = bytearray(build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence))
        set_offset_and_epoch(batch, at, rng.randrange(9))
        parts.append(memoryview(batch))
        at += len(records)
    return parts, at + rng.choice((0, 0, 2))
