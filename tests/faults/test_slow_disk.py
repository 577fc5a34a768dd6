"""A disk whose syncs, or writes, take seconds: whoever needs none of them does not wait."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Producer

from cairnmq.client.blocking import Client
from cairnmq.client.data import LATEST
from faults.disks import Rules
from faults.scene import PLACES, SECONDS, Scene

SLOW_MS = 2000
QUICK_SECONDS = 1.0  # of an answer that waits for no disk, on a machine that others use too


def seconds_of_answers(scene: Scene, seconds: float) -> list[float]:
    """How long metadata, a read of the tail and /health took, again and again.

    With a client of our own on one connection: librdkafka's first question about offsets waits 0.7 s in one of some
    500 consumers, however fast the answer comes, so it cannot tell who was slow."""
    topic, partition = PLACES[2].topic, PLACES[2].partition
    taken = []
    with Client.connect(scene.broker.bootstrap) as client:

        def read_tail() -> None:
            end = client.list_offsets(topic, [partition], LATEST)[partition].offset
            [fetched] = client.fetch({topic: {partition: end - 1}}, max_wait_ms=0)
            assert fetched.batches, "nothing at the end of the queue"

        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for act in (lambda: client.metadata([topic]), read_tail, scene.reasons):
                started = time.monotonic()
                act()
                taken.append(time.monotonic() - started)
    return taken


def test_slow_syncs_delay_nobody_else(make_scene: Callable[..., Scene], rules: Rules) -> None:
    scene = make_scene(environment=rules.environment)
    load = scene.load(300)
    load.wait_for(200, SECONDS)
    rules.put(f"sync ~{SLOW_MS} /journals/0/")
    before = load.acked_count
    taken = seconds_of_answers(scene, 1.5 * SLOW_MS / 1000)
    assert max(taken) < QUICK_SECONDS, f"{max(taken):.2f} s; {len(taken)} answers"
    assert scene.reasons() == [], "slow is not broken"
    assert load.acked_count > before, "acknowledged when synced, late as that is"
    started = time.monotonic()
    unsynced = Producer({"bootstrap.servers": scene.broker.bootstrap, "acks": 1, "linger.ms": 0})
    scene.client.create_topic("written", 1)
    unsynced.produce("written", b"acknowledged when written")
    assert unsynced.flush(SECONDS) == 0
    assert time.monotonic() - started < QUICK_SECONDS
    rules.put()
    load.wait_for(200, SECONDS)
    scene.ends_well(kill=False)


def test_slow_writes_move_to_a_thread(make_scene: Callable[..., Scene], rules: Rules) -> None:
    """The first slow one stalls the loop once; it cannot be known before. After it nobody waits."""
    scene = make_scene(environment=rules.environment)
    load = scene.load(300)
    load.wait_for(200, SECONDS)
    rules.put("write ~700 /journals/0/")
    load.wait_for(1, SECONDS)
    time.sleep(1.0)
    taken = seconds_of_answers(scene, 3.0)
    slow = [each for each in taken if each > 0.5]
    assert len(slow) <= 2, f"{len(slow)} of {len(taken)} answers were slow: {slow}"
    rules.put()
    load.wait_for(200, SECONDS)
    scene.ends_well(kill=False)
