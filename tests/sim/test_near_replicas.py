"""Consumers that read from followers: nothing is shown too early, missed, or shown too late; planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.errors import Fault
from cairnmq.testing.replicas.near_world import NearWorld
from sim import near_bugs

SEEDS = range(9000, 9040)
FOUND = {
    "follower_shows_what_it_has_copied": 0,
    "follower_shows_what_is_not_durable": 0,
    "lateness_counts_from_the_reply": 17,
    "whoever_gets_a_reply_is_current": 8,
    "lateness_is_not_looked_at": 1,
    "epoch_of_the_reader_is_not_looked_at": 0,
    "next_epoch_is_served_before_its_leader_was_heard": 34,
    "marker_that_is_hidden_decides": 0,
    "aborted_transactions_are_not_remembered": 1,
    "failed_write_comes_back_behind_a_file_that_is_cut": 14,
}


@pytest.mark.parametrize("first", SEEDS[::20])
def test_what_is_read_is_true(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 20):
        world = NearWorld(seed)
        world.run()
        met += world.counts
    kinds = ("sent to a follower", "read from a follower", "sent back", "read", "read committed")
    for kind in (*kinds, "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "recoveries", "cuts"):
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
