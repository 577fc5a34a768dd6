"""Coordinators on replicas with real storage: no acknowledged commit is forgotten by the next one, and planted bugs are
found."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from cairnmq.testing.oracle import Violation
from cairnmq.testing.replicas.group_world import GroupWorld
from sim import group_bugs

SEEDS = range(8500, 8550)
FOUND = {
    "commits_are_answered_when_written": 1,
    "commits_are_answered_when_replicated": 11,
}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What disks refuse is logged for each group."""
    caplog.set_level(logging.CRITICAL, "cairnmq.broker")


@pytest.mark.parametrize("first", SEEDS[::25])
def test_no_commit_is_forgotten(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 25):
        world = GroupWorld(seed)
        world.run()
        met += world.counts
    for kind in ("commits", "group decisions", "loads", "demotions", "recoveries", "deaths", "blackouts", "crash"):
        assert met[kind], f"no world of {first} to {first + 24} met {kind}"
    assert met["loads"] > 2 * 25, "coordinators do not move"


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str, seed: int) -> None:
    GroupWorld(seed).run()  # without it there is nothing to find
    getattr(group_bugs, bug)(monkeypatch)
    with pytest.raises(Violation, match="is gone|went back|is stored as"):
        GroupWorld(seed).run()
