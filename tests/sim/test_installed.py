"""Installs on real storage: what a replica takes over is what its leader has, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from sim import installed_bugs
from sim.installed_world import InstalledWorld
from sim.planted import find

SEEDS = range(7000, 7020)
FOUND = {
    "an_install_without_producers": 0,
    "an_install_without_facts": 7,
    "an_install_without_aborted_transactions": 0,
    "a_log_start_that_moves_leaves_epochs": 0,
    "what_came_before_a_tombstone_went_is_kept": 64,
    "the_journal_is_not_held": 0,
    "the_journal_of_before_stays": 15,
}


def test_what_is_taken_over_is_what_the_leader_has() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        world = InstalledWorld(seed)
        world.run()
        met += world.counts
    assert met["compared"] > 20 and met["passes"] > 20 and met["crashes"] > 5, met


@pytest.mark.parametrize("bug", FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    getattr(installed_bugs, bug)(monkeypatch)
    find(lambda seed: InstalledWorld(seed).run(), 100, FOUND[bug])
