"""A data directory of an earlier version is brought to this one's formats, at a start and before anything is appended.

Recovery has read it as ever. Everything is split, then a checkpoint of this version is published, in which facts of
coordinators are in their slots. Only then does `owner.json` get the new format, and only then is an entry written. So
behind the split positions there is never an entry of an earlier version, and at every point at which this may be
stopped the next start does it again. ADR 0024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.checkpoint.checkpoint import checkpoint_name, load_checkpoint
from cairnmq.storage.engine import Engine
from cairnmq.storage.files.checkpoint_frame import frame_version
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import CHECKPOINT_SIZE, FIRST_VERSION, KeyedRow
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.splitter import Splitter

SlotOf = Callable[[str, bytes], int]  # by space and key: the queue id of a fact's slot, 0 for facts of the node


def is_needed(engine: Engine) -> bool:
    """Whether there is anything that may be of an earlier version."""
    return engine.image.file_number > 0 or any(scan.end > 0 for scan in engine.scans.values())


def upgrade(engine: Engine, journal_disk: Disk, slot_of: SlotOf, now_ms: int) -> None:
    """Returns when the checkpoint counts. Blocks; nothing else may use the engine."""
    for scan in engine.scans.values():
        if scan.damage is not None:
            raise Corrupt(
                f"the data directory is of an earlier version and cannot be upgraded, because {scan.damage_text} "
                f"The earlier version still serves the rest."
            )
    image = load_checkpoint(engine.read_disk)
    _refuse_without_room(engine, image.file_number)
    image.keyed = {place: _at_home(row, slot_of) for place, row in image.keyed.items()}
    splitter = Splitter(
        journal_disk,
        engine.read_disk,
        image,
        lambda queue_ids: _specs(engine, queue_ids),
        journals=engine.paths,
    )
    try:
        for number in sorted(engine.paths):  # version 1 has all facts in the first journal, before any other
            while (done := splitter.split(number, engine.splittable(number), now_ms)) is not None:
                engine.on_round(done)
                reach("upgrade-split")
        rounds = splitter.rounds
        rounds.keyed = {place: _at_home(row, slot_of) for place, row in rounds.keyed.items()}
        published = splitter.checkpoint(now_ms, expiry_ms=0)  # nobody has looked yet how long this clock has run evenly
        reach("upgrade-checkpoint")
        engine.on_checkpoint(published)
        splitter.seen(published.serial)
    finally:
        splitter.close()


def _refuse_without_room(engine: Engine, checkpoint: int) -> None:
    """As long as the version before still serves the directory. Once an upgrade has begun it does not, and then there
    is only to go on: what that left on the disk may be all that is missing."""
    unsplit, stored = sum(scan.end - scan.start for scan in engine.scans.values()), 0
    if checkpoint:
        file = engine.read_disk.open(checkpoint_name(checkpoint))
        version, stored = frame_version(file.read(0, CHECKPOINT_SIZE)), file.size()
        file.close()
        if version != FIRST_VERSION:
            return
    free = engine.read_disk.free_bytes()
    if free < unsplit + stored:
        raise Fault(
            f"the data directory is of an earlier version, and its upgrade needs {unsplit + stored} bytes of the data "
            f"disk, on which {free} are free. Make room and start again; until then the earlier version still serves."
        )


def _at_home(row: KeyedRow, slot_of: SlotOf) -> KeyedRow:
    return replace(row, queue_id=slot_of(row.space, row.key))


def _specs(engine: Engine, queue_ids: Iterable[int]) -> list[QueueSpec]:
    return [engine.queues[queue_id].spec for queue_id in queue_ids if queue_id in engine.queues]
