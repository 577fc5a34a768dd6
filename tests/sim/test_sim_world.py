"""A whole broker under faults, from one seed: what clients were told holds, and defects of its shells are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.testing.brokers.sim_world import FAULTS, FaultyWorld
from sim import broker_bugs
from sim.planted import find
from sim.replays import number_of, told_elsewhere

SEEDS = range(12)
FOUND = {
    "told_before_written": 0,
    "told_before_synced": 2,
    "successor_without_checkpoint": 48,
    "end_of_splitter_missed": 10,
}


def trace(seed: int) -> int:
    return number_of(FaultyWorld(seed), 100)


def test_what_was_acknowledged_is_there_whatever_strikes() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        world = FaultyWorld(seed)
        world.run()
        met.update(world.struck)
        assert world.workload.is_answered, "everybody was answered"
    assert set(met) == set(FAULTS)


def test_a_faulty_world_replays_in_another_process() -> None:
    told = told_elsewhere("sim.test_sim_world", 2)
    assert told == {trace(2)} and trace(3) not in told


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_of_the_shells_is_found(bug: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    getattr(broker_bugs, bug)(monkeypatch)
    find(lambda seed: FaultyWorld(seed).run(), 100, seed)
