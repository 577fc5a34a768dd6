"""Topics on the simulated machine: made, deleted and configured while everything goes on."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.testing.sim_metadata import change, turn

if TYPE_CHECKING:
    from cairnmq.testing.sim_storage import World


def draw_config(rng: Random) -> LogConfig:
    return LogConfig(
        segment_bytes=rng.choice((2800, 5000, 12_000)),
        segment_ms=rng.choice((200, 10**9)),
        index_interval_bytes=rng.choice((1, 300, 4096)),
        retention_ms=rng.choice((-1, -1, 400)),
        retention_bytes=rng.choice((-1, -1, 4000)),
        append_time=rng.random() < 0.25,
        flush=rng.choice(("commit", "commit", "interval", "none")),
        flush_ms=rng.choice((20, 100, 500)),
        flush_messages=rng.choice((4, 2**63 - 1)),
        model=rng.choice(("auto", "auto", "shared", "dedicated")),
    )


def administer(world: World) -> None:
    """What people do with a broker; rarest what changes topics."""
    world.rng.choices((new_topic, drop_topic, configure, turn), (1, 1, 1, 4))[0](world)


def new_topic(world: World, *, at_once: bool = False) -> None:
    """It is there when the journal has the witness of the change, or at once: in a world that begins."""
    if len(world.specs) >= 6:
        return
    names = [topic for topic in ("alpha", "beta", "gamma") if all(s.topic != topic for s in world.specs.values())]
    if not names:
        return
    config = world.draw_config()
    topic_id = world.rng.randbytes(16)
    count, first = world.rng.randint(1, 3), world.metadata.now.next_queue_id
    specs = [
        QueueSpec(first + partition, names[0], partition, topic_id, config, world.new_journal_of(first + partition))
        for partition in range(count)
    ]

    def made() -> None:
        if all(spec.topic != names[0] for spec in world.specs.values()):
            world.specs.update((spec.queue_id, spec) for spec in specs)
            world.engine.add_queues(specs)

    if at_once:
        world.metadata.give(queues=count)
        made()
    else:
        change(world, queues=count, told=made)


def drop_topic(world: World) -> None:
    topics = sorted({spec.topic for spec in world.specs.values()})
    if len(topics) < 2:
        return
    topic = world.rng.choice(topics)
    change(world)
    gone = [spec for spec in world.specs.values() if spec.topic == topic]
    for spec in gone:
        del world.specs[spec.queue_id]
        for lane in world.lanes.values():
            lane.visible_by.pop(spec.queue_id, None)
    world.engine.drop_queues([spec.queue_id for spec in gone])
    world.topic_dropped(gone[0].topic_id)
    if world.splitter is not None:
        world.with_splitter(lambda splitter: splitter.drop([(s.queue_id, s.directory) for s in gone]))


def configure(world: World) -> None:
    queue = world.any_queue()
    if queue is None:
        return
    change(world)
    spec = replace(queue.spec, config=world.draw_config())
    world.specs[spec.queue_id] = spec
    world.engine.configure(spec)
    if world.splitter is not None:
        world.splitter.configure(spec)
