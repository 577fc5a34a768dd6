"""Replicas that lose disks, or their place, come back: no promise is broken, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.testing.replicas.install_world import InstallWorld
from cairnmq.testing.replicas.judge import Broken
from sim import install_bugs

SEEDS = range(7000, 7020)
FOUND = {
    "an_install_is_left_when_another_leads": 63,
    "positions_that_are_gone_are_skipped": 0,
    "the_checkpoint_does_not_tell_its_epoch": 0,
    "the_clean_stop_survives_the_disk": 0,
    "the_snapshot_is_taken_at_the_end_of_the_journal": 19,
    "what_is_gone_is_taken_for_the_same": 0,
}


@pytest.mark.parametrize("first", SEEDS[::10])
def test_every_replica_comes_back_and_nothing_promised_is_lost(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 10):
        world = InstallWorld(seed)
        world.run()
        met += world.counts
    assert met["installs"] > 20 and met["wipes"] > 0 and met["acknowledged"] > 1000


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str, seed: int) -> None:
    getattr(install_bugs, bug)(monkeypatch)
    with pytest.raises((Broken, AssertionError)):
        InstallWorld(seed).run()
