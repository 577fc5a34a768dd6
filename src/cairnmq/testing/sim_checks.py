"""What is looked at after a start, after a round, after a step: storage's state and files against the oracle's."""

from __future__ import annotations

from cairnmq.storage.batches.batch_run import walk
from cairnmq.storage.check.verify import check
from cairnmq.storage.checkpoint.split_report import Published, Round
from cairnmq.storage.engine import Engine
from cairnmq.storage.files.format import NO_SEGMENTS, QueueIdentity
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.segment import LOG, segment_name
from cairnmq.testing.oracle import QueueModel, demand
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.types import Counters


def name(queue: Queue) -> str:
    return f"{queue.topic}-{queue.partition} (queue {queue.queue_id}):"


def check_state(queue: Queue, expected: QueueModel) -> None:
    state = queue.state
    demand(state.log_start == expected.log_start, name(queue), "starts at", state.log_start, "not", expected.log_start)
    demand(state.end == expected.end, name(queue), "ends at", state.end, "not", expected.end)
    demand(state.epochs == expected.epochs, name(queue), "epochs", state.epochs, "not", expected.epochs)
    producers = {pid: (row.epoch, row.batches) for pid, row in state.producers.items()}
    demand(producers == expected.producers, name(queue), "producers", producers, "not", expected.producers)


def check_content(engine: Engine, queue: Queue, expected: QueueModel) -> None:
    """Everything from log start to end reads back as it was written."""
    offset, parts = queue.log_start, []
    while offset < queue.high_watermark:
        found = engine.reads.read(queue, offset, 3000, whole=True, cached=False)
        if not isinstance(found, Batches) or not found.size:
            demand(False, name(queue), "cannot read offset", offset, "of", queue.high_watermark, found)
        assert isinstance(found, Batches)
        parts.extend(found.buffers)
        offset = found.next_offset
    want = b"".join(data for _, _, data in expected.readable())
    demand(b"".join(parts) == want, name(queue), "reads back something else than was written")


def check_logs(disk: SimDisk, done: Round, specs: dict[int, QueueSpec]) -> None:
    """Each queue log ends exactly where the round says."""
    for split in done.queues:
        spec = specs.get(split.queue_id)
        if spec is None:
            continue
        if split.segments_from == NO_SEGMENTS:
            extents = PackReader.open(disk, done.pack).of_queue(split.queue_id)
            demand(extents[-1].end_offset == split.end, "pack", done.pack, "ends at", extents[-1], "not", split.end)
            continue
        file = disk.open(segment_name(spec.directory, split.last_segment, LOG))
        end, size = split.last_segment, 0
        for place in walk(file, 0):
            demand(place.base_offset == end, file.name, "has a gap at", end)
            end, size = place.last_offset + 1, place.position + place.size
        demand(end == split.end and size == file.size(), file.name, "ends at", end, "not", split.end)


def check_report(engine: Engine, published: Published) -> None:
    """If this report is lost, the broker finds on the read disk what it says."""
    stored = engine.scan_split()
    found = stored.published if stored is not None else None
    demand(found is not None, "checkpoint", published.serial, "is not found without its report")
    assert found is not None
    same = (found.serial, found.positions, found.packs) == (published.serial, published.positions, published.packs)
    demand(same, "found", found, "instead of", published)
    places = {place.queue_id: place for place in found.moved}
    for place in published.moved:
        queue = engine.queues.get(place.queue_id)
        if queue is not None and (place.queue_id in places or queue.segments_from != place.segments_from):
            demand(places.get(place.queue_id) == place, name(queue), "is found at", places, "not at", place)


def check_verify(
    journal_disk: SimDisk, read_disk: SimDisk, specs: dict[int, QueueSpec], counters: Counters | None = None
) -> None:
    """Whatever a stop leaves, `cairn verify` finds nothing wrong with it."""
    queues = {
        spec.queue_id: QueueIdentity(spec.queue_id, spec.topic, spec.partition, spec.topic_id.hex())
        for spec in specs.values()
    }
    for finding in check(read_disk, journal_disk, queues, counters=counters):
        demand(finding.is_note, "verify says:", finding)
