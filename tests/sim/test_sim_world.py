"""A whole broker under faults, from one seed: what clients were told holds, and defects of its shells are found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from zlib import crc32

import pytest

from cairnmq.testing.brokers.sim_world import FAULTS, FaultyWorld
from sim import broker_bugs
from sim.planted import find

SEEDS = range(12)
FOUND = {
    "told_before_written": 0,
    "told_before_synced": 2,
    "successor_without_checkpoint": 48,
    "end_of_splitter_missed": 10,
}


def trace(seed: int) -> int:
    """A number for everything that went over the network and to the disks."""
    world, seen = FaultyWorld(seed), list[tuple[float, str, int]]()
    world.network.observe = lambda name, data: seen.append((world.loop.time(), name, crc32(data)))
    world.run()
    assert len(seen) > 100
    return crc32(repr((seen, world.struck, world.workload.told)).encode())


def test_what_was_acknowledged_is_there_whatever_strikes() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        world = FaultyWorld(seed)
        world.run()
        met.update(world.struck)
        assert world.workload.is_answered, "everybody was answered"
    assert set(met) == set(FAULTS)


def test_a_faulty_world_replays_in_another_process() -> None:
    script = "from sim.test_sim_world import trace; print(trace(2))"
    paths = os.pathsep.join(filter(None, sys.path))
    told = {
        int(
            subprocess.check_output(
                [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
            )
        )
        for seed in ("1", "2")
    }
    assert told == {trace(2)} and trace(3) not in told


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_of_the_shells_is_found(bug: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    getattr(broker_bugs, bug)(monkeypatch)
    find(lambda seed: FaultyWorld(seed).run(), 100, seed)
