"""Brokers on simulated disks as replicas of one another: same journal, each with queue logs of its own making."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from cairnmq.storage.check.comparison import compare
from cairnmq.storage.check.replica import Replica
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, load_checkpoint, write_checkpoint
from unit.storage.compaction_harness import Room
from unit.storage.splitter_harness import Broker


def replica_of(broker: Broker, name: str) -> Replica:
    return Replica(name, f"{name}/journal", broker.read_disk, broker.journal_disk)


def compared(*brokers: Broker, queues: Collection[int] | None = None) -> list[str]:
    """What is said of `a`, `b`, `c`."""
    replicas = [replica_of(broker, name) for name, broker in zip("abc", brokers, strict=False)]
    try:
        return [str(finding) for finding in compare(replicas, queues)]
    finally:
        for replica in replicas:
            replica.close()


def filled(model: str = "dedicated", *, first: str = "v", turns: int = 6) -> Room:
    """Some batches with keys for queue 1, split and checkpointed. `first`: a value in the first batch."""
    room = Room(model, compact=False)
    room.engine.config = replace(room.engine.config, retain_bytes=1 << 20)  # what was split stays in the journal
    room.send(("k0", first), ("k1", "one"))
    for turn in range(turns):
        pairs = [(f"k{key}", f"{turn}") for key in range(3)]
        room.send(*pairs, producer_id=7, producer_epoch=0, base_sequence=3 * turn)
    room.split()
    room.checkpoint()
    return room


def restate(broker: Broker, change: Callable[[CheckpointImage], object]) -> None:
    """Its checkpoint says something else."""
    image = load_checkpoint(broker.read_disk)
    change(image)
    write_checkpoint(broker.read_disk, image, image.file_number + 1).close()
