"""Replicas with too little room: nobody waits for ever, nothing is removed too early, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.testing.replicas.judge import Broken
from cairnmq.testing.replicas.narrow_world import NarrowWorld
from sim import narrow_bugs

SEEDS = range(9000, 9040)
FOUND = {
    "keep_from_ignores_a_slow_replica": 0,
    "keep_from_forgets_the_silent": 4,
    "backlog_of_followers_is_ignored": 15,
    "producers_wait_for_ever": 18,
    "follower_without_room_joins": 3,
    "slow_follower_makes_its_leader_resign": 33,
    "file_of_the_last_entry_is_removed": 0,
    "epoch_before_the_journal_is_not_missed": 89,
}


@pytest.mark.parametrize("first", SEEDS[::20])
def test_room_runs_out(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 20):
        world = NarrowWorld(seed)
        world.run()
        met += world.counts
        met["out"] += sum(len(narrow.out) for narrow in world.narrow.values())
    for kind in ("acknowledged", "slow", "stick", "fill", "shrinks", "kill", "lose_power", "out"):
        assert met[kind], f"no world of {first} to {first + 19} met {kind}"


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str, seed: int) -> None:
    NarrowWorld(seed).run()  # without it there is nothing to find
    getattr(narrow_bugs, bug)(monkeypatch)
    with pytest.raises((Broken, AssertionError)):
        NarrowWorld(seed).run()
