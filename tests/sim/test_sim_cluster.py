"""Three whole brokers under faults, from one seed: what clients were told holds, everybody is in the ISR again."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.testing.brokers.sim_cluster import FAULTS, ClusterWorld
from sim import cluster_bugs
from sim.planted import find
from sim.replays import number_of, told_elsewhere

SEEDS = range(8)
FOUND = {"links_are_not_opened_again": 6}


def trace(seed: int) -> int:
    return number_of(ClusterWorld(seed), 1000)


def test_what_was_acknowledged_is_there_whoever_leads() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        world = ClusterWorld(seed)
        world.run()
        met.update(world.struck)
        assert world.workload.is_answered, "everybody was answered"
    assert set(met) == set(FAULTS)


def test_a_cluster_replays_in_another_process() -> None:
    told = told_elsewhere("sim.test_sim_cluster", 2)
    assert told == {trace(2)} and trace(3) not in told


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_of_a_cluster_s_shells_is_found(bug: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    getattr(cluster_bugs, bug)(monkeypatch)
    find(lambda seed: ClusterWorld(seed).run(), 100, seed)
