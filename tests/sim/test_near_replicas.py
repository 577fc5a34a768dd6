"""Consumers that read from followers: nothing is shown too early, missed, or shown too late; planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.errors import Fault
from cairnmq.testing.replicas.near_world import NearWorld
from sim import near_bugs

SEEDS = range(9000, 9040)
FOUND: dict[str, int] = {}


@pytest.mark.parametrize("first", SEEDS[::20])
def test_what_is_read_is_true(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 20):
        world = NearWorld(seed)
        world.run()
        met += world.counts
    kinds = ("sent to a follower", "read from a follower", "sent back", "read", "read committed")
    for kind in (*kinds, "OFFSET_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "recoveries", "cuts"):
        assert met[kind], f"no world of {first} to {first + 19} met {kind}"


def test_a_seed_replays() -> None:
    runs = []
    for _ in range(2):
        world = NearWorld(7)
        world.run()
        runs.append((world.judge.truth, world.store.kept, world.counts))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str, seed: int) -> None:
    NearWorld(seed).run()  # without it there is nothing to find
    getattr(near_bugs, bug)(monkeypatch)
    with pytest.raises((AssertionError, Fault)):
        NearWorld(seed).run()
