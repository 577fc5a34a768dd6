"""Topics on the simulated machine: made, deleted and configured while everything goes on."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.queue_log import QueueSpec

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


def new_topic(world: World) -> None:
    if len(world.specs) >= 6:
        return
    names = [topic for topic in ("alpha", "beta", "gamma") if all(s.topic != topic for s in world.specs.values())]
    if not names:
        return
    config = world.draw_config()
    topic_id = world.rng.randbytes(16)
    specs = []
    for partition in range(world.rng.randint(1, 3)):
        specs.append(QueueSpec(world.next_queue, names[0], partition, topic_id, config))
        world.next_queue += 1
    world.specs.update((spec.queue_id, spec) for spec in specs)
    world.engine.add_queues(specs)


def drop_topic(world: World) -> None:
    topics = sorted({spec.topic for spec in world.specs.values()})
    if len(topics) < 2:
        return
    topic = world.rng.choice(topics)
    gone = [spec for spec in world.specs.values() if spec.topic == topic]
    for spec in gone:
        del world.specs[spec.queue_id]
        for lane in world.lanes:
            lane.visible_by.pop(spec.queue_id, None)
    world.engine.drop_queues([spec.queue_id for spec in gone])
    world.topic_dropped(gone[0].topic_id)
    if world.splitter is not None:
        world.with_splitter(lambda splitter: splitter.drop([(s.queue_id, s.directory) for s in gone]))


def configure(world: World) -> None:
    queue = world.any_queue()
    if queue is None:
        return
    spec = replace(queue.spec, config=world.draw_config())
    world.specs[spec.queue_id] = spec
    world.engine.configure(spec)
    if world.splitter is not None:
        world.splitter.configure(spec)
