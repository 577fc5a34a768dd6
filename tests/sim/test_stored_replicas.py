"""Replicas on real storage: nothing promised is lost, live state is what the journals say, planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.errors import Fault
from cairnmq.testing.replicas.stored_world import StoredWorld
from sim import stored_replica_bugs

SEEDS = range(7000, 7060)
FOUND = {
    "follower_folds_above_the_replicated_end": 2,
    "recovery_folds_all_it_finds": 2,
    "cut_goes_to_the_durable_end": 4,
    "cut_is_not_synced": 99,
    "cut_keeps_the_synced_end": 18,
    "acks_1_is_visible_when_written": 3,
    "moved_start_counts_when_written": 4,
    "moved_start_is_told_when_written": 2,
    "moved_start_of_an_earlier_leader_is_told_at_once": 6,
    "follower_moves_log_starts": 2,
    "follower_writes_its_own_log_starts": 0,
    "undo_is_dropped_at_the_write": 4,
    "undo_forgets_producers": 4,
    "undo_goes_oldest_first": 4,
    "duplicate_is_acknowledged_above_the_replicated_end": 2,
    "unknown_queue_is_skipped": 2,
    "claims_of_leaders_are_believed": 20,
    "replicated_is_taken_for_durable": 2,
    "own_sync_is_taken_for_durable": 2,
    "replicated_is_split": 2,
    "synced_is_split": 2,
    "part_of_a_group_counts_as_all": 4,
    "cut_last_entry_is_written": 2,
    "promotion_folds_without_undo": 2,
    "promotion_folds_nothing": 2,
    "head_of_an_epoch_waits_for_a_record": 1,
    "sync_outlives_a_cut": 4,
}


@pytest.mark.parametrize("first", SEEDS[::20])
def test_nothing_promised_is_lost(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 20):
        world = StoredWorld(seed)
        world.run()
        met += world.counts
    kinds = (
        "promotions",
        "demotions",
        "cuts",
        "recoveries",
        "deaths",
        "blackouts",
        "crash",
        "duplicates",
        "markers",
        "deletions",
    )
    for kind in (*kinds, "WRITTEN", "REPLICATED", "DURABLE"):
        assert met[kind], f"no world of {first} to {first + 19} met {kind}"


def test_a_seed_replays() -> None:
    runs = []
    for _ in range(2):
        world = StoredWorld(7)
        world.run()
        runs.append((world.judge.truth, world.store.kept, world.counts))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str, seed: int) -> None:
    StoredWorld(seed).run()  # without it there is nothing to find
    getattr(stored_replica_bugs, bug)(monkeypatch)
    with pytest.raises((AssertionError, Fault)):
        StoredWorld(seed).run()
