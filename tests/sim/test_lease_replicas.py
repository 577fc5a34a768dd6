"""Leases under pauses and suspended machines: only who was heard lately answers acks=1, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.testing.replicas.judge import Broken
from cairnmq.testing.replicas.lease_world import LeaseWorld
from sim import lease_bugs

SEEDS = range(9500, 9520)
FOUND = {
    "lease_counts_from_the_response_of_the_store": 2,
    "lease_counts_from_the_request_of_a_follower": 0,
    "lease_goes_on_after_a_suspend": 12,
}


def test_nobody_answers_alone_for_long() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        world = LeaseWorld(seed)
        world.run()
        met += world.counts
        met["elections"] += world.store.elections
    for kind in ("acknowledged", "not acknowledged", "elections", "pause", "suspend", "kill", "cut", "lose_store"):
        assert met[kind], f"no world met {kind}"


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str, seed: int) -> None:
    LeaseWorld(seed).run()  # without it there is nothing to find
    getattr(lease_bugs, bug)(monkeypatch)
    with pytest.raises(Broken, match="answers alone"):
        LeaseWorld(seed).run()
