"""Transactions over simulated brokers: they end the same way everywhere, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.testing.replicas.judge import Broken
from cairnmq.testing.replicas.transaction_world import TransactionWorld
from sim import transaction_bugs

SEEDS = range(7000, 7024)
FOUND = {  # each within a hundred seeds from 0, 100 or 200 on
    "nobody_is_asked": 100,
    "complete_before_all_markers": 101,
    "marker_without_a_leader_counts_as_written": 101,
    "late_end_of_offsets_ends_the_next_transaction": 55,
    "link_without_a_number": 62,
    "decision_is_told_before_it_is_durable": 100,
    "offsets_are_ended_without_waiting": 0,
    "coordinator_forgets_what_was_prepared": 100,
    "guard_is_not_closed_by_a_marker": 37,
    "coordinator_acts_before_its_epoch_is_durable": 227,
}


@pytest.mark.parametrize("first", SEEDS[::8])
def test_transactions_end_as_they_were_told(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 8):
        world = TransactionWorld(seed)
        world.run()
        met += world.counts + world.judge.counts
    for kind in ("commits", "aborts", "markers", "kill"):
        assert met[kind], f"no world of {first} to {first + 7} met {kind}"


def test_a_seed_replays() -> None:
    runs = []
    for _ in range(2):
        world = TransactionWorld(7)
        world.run()
        runs.append((world.schedule.events, world.store.revision, world.judge.counts))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str, seed: int) -> None:
    getattr(transaction_bugs, bug)(monkeypatch)
    with pytest.raises((Broken, AssertionError)):
        TransactionWorld(seed).run()
