"""A disk whose syncs, or writes, take seconds: whoever needs none of them does not wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.client.records import LATEST
from cairnmq.codec.records import Record, build_batch
from faults.disks import Rules
from faults.scene import PLACES, SECONDS, Scene
from stall_watch import StallWatch

SLOW_MS = 4000
QUICK_SECONDS = SLOW_MS / 2000  # of an answer that waits for no disk, on a machine that others use too


class Clock:
    """Seconds that answers took, without those in which the machine let nobody run."""

    def __init__(self, watch: StallWatch) -> None:
        self.watch = watch
        self.taken: list[float] = []

    def time(self, act: Callable[[], object]) -> None:
        started = time.monotonic()
        act()
        taken = time.monotonic() - started
        self.taken.append(taken - self.watch.lost_since(started))


@pytest.fixture
def clock() -> Iterator[Clock]:
    with StallWatch() as watch:
        yield Clock(watch)


def ask(scene: Scene, client: Client, clock: Clock, seconds: float) -> None:
    """Metadata, a read of the tail and /health, again and again.

    With a client of our own on one connection: librdkafka's first question about offsets waits 0.7 s in one of some
    500 consumers, however fast the answer comes, so it cannot tell who was slow."""
    topic, partition = PLACES[2].topic, PLACES[2].partition

    def read_tail() -> None:
        end = client.list_offsets(topic, [partition], LATEST)[partition].offset
        [fetched] = client.fetch({topic: {partition: end - 1}}, max_wait_ms=0)
        assert fetched.batches, "nothing at the end of the queue"

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for act in (lambda: client.metadata([topic]), read_tail, scene.reasons):
            clock.time(act)


def test_slow_syncs_delay_nobody_else(make_scene: Callable[..., Scene], rules: Rules, clock: Clock) -> None:
    scene = make_scene(environment=rules.environment)
    load = scene.load(300)
    load.wait_for(200, SECONDS)
    rules.put(f"sync ~{SLOW_MS} /journals/0/")
    before = load.acked_count
    written = build_batch([Record(0, 0, None, b"acknowledged when written")])
    with Client.connect(scene.broker.bootstrap) as client:
        ask(scene, client, clock, 1.5 * SLOW_MS / 1000)
        assert scene.reasons() == [], "slow is not broken"
        assert load.acked_count > before, "acknowledged when synced, late as that is"
        clock.time(lambda: client.create_topics([NewTopic("written", 1)]))
        clock.time(lambda: client.produce("written", 0, written, acks=1))
    assert max(clock.taken) < QUICK_SECONDS, f"{max(clock.taken):.2f} s; {len(clock.taken)} answers"
    rules.put()
    load.wait_for(200, SECONDS)
    scene.ends_well(kill=False)


def test_slow_writes_move_to_a_thread(make_scene: Callable[..., Scene], rules: Rules, clock: Clock) -> None:
    """The first slow one stalls the loop once; it cannot be known before. After it nobody waits."""
    scene = make_scene(environment=rules.environment)
    load = scene.load(300)
    load.wait_for(200, SECONDS)
    rules.put("write ~2000 /journals/0/")
    load.wait_for(1, SECONDS)
    time.sleep(1.0)
    with Client.connect(scene.broker.bootstrap) as client:
        ask(scene, client, clock, 5.0)
    slow = [each for each in clock.taken if each > 1.5]
    assert len(slow) <= 2, f"{len(slow)} of {len(clock.taken)} answers were slow: {slow}"
    rules.put()
    load.wait_for(200, SECONDS)
    scene.ends_well(kill=False)
