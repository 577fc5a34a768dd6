"""Consumers on the simulated machine: what they read and find must be what was written and is visible."""

from __future__ import annotations

from bisect import bisect_right

from cairnmq.codec.batch import only_empty
from cairnmq.codec.records import decode_batch
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Batches
from cairnmq.testing.oracle import QueueModel, demand
from cairnmq.testing.sim_checks import name
from cairnmq.testing.sim_machine import Machine


def read(machine: Machine, queue: Queue) -> None:
    """Somewhere, as a client would."""
    offset = machine.rng.randint(queue.log_start, max(queue.high_watermark, queue.log_start))
    size = machine.rng.choice((1, 200, 1000, 5000, 100_000))
    while True:
        found = machine.engine.reads.read(queue, offset, size, whole=True, cached=True)
        if not isinstance(found, NotCached):
            break
        found.load()
    assert isinstance(found, Batches), found
    got = b"".join(found.buffers)
    held = machine.live.get(queue.queue_id) or QueueModel()
    first = bisect_right(held.batches, offset, key=lambda batch: batch[1])
    want = b"".join(data for _, end, data in held.batches[first:] if end <= queue.high_watermark)
    demand(want.startswith(got), name(queue), "reads something else from", offset, "on")
    demand(bool(got) or not want, name(queue), "reads nothing at", offset, "although it is visible")
    demand(not only_empty(got) or only_empty(want), name(queue), "reads empty batches alone from", offset, "on")


def look_up(machine: Machine, queue: Queue) -> None:
    """The first record that reaches some time."""
    held = machine.live.get(queue.queue_id) or QueueModel()
    records = [
        record
        for _, end, data in held.readable()
        if end <= queue.high_watermark
        for record in decode_batch(data)
        if record.offset >= queue.log_start
    ]
    timestamp = machine.now - machine.rng.randint(-50, 2000)
    expected = next(((r.offset, r.timestamp) for r in records if r.timestamp >= timestamp), None)
    found = machine.engine.reads.find_time(queue, timestamp, machine.engine.reads.find_in_log(queue, timestamp))
    got = (found.offset, found.timestamp) if found is not None else None
    demand(got == expected, name(queue), "finds", got, "for time", timestamp, "instead of", expected)
