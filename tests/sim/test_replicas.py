"""The replication core on simulated machines: no promise is broken, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.testing.replicas.judge import Broken
from cairnmq.testing.replicas.world import ReplicaWorld
from sim import replica_bugs

SEEDS = range(6000, 6030)
FOUND = {
    "ack_before_the_isr_has_it": 0,
    "commit_acknowledged_when_written": 2,
    "own_sync_is_enough": 25,
    "proposed_member_does_not_count": 4,
    "shrink_without_a_sync": 27,
    "shrink_forgets_earlier_epochs": 70,
    "replicated_end_moves_while_shrinking": 30,
    "in_doubt_taken_for_refused": 4,
    "member_joins_without_the_durable_end": 1,
    "restart_keeps_its_place": 3,
    "clean_marker_is_not_consumed": 3,
    "diverging_follower_counts": 4,
    "no_question_where_journals_part": 0,
    "parting_without_epochs": 0,
    "restarted_member_is_elected": 0,
    "recovery_takes_the_first": 60,
    "recovery_does_not_wait_for_all": 3,
    "damaged_replica_is_elected": 34,
    "former_controller_still_decides": 6,
    "election_keeps_the_epoch": 0,
    "recovery_is_not_remembered": 16,
    "doubtful_write_is_told_as_refused": 8,
    "replaced_leader_goes_on": 79,
    "follower_cuts_to_the_replicated_end": 4,
    "epoch_falls_at_an_election": 0,
}


@pytest.mark.parametrize("first", SEEDS[::10])
def test_nothing_promised_is_lost(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 10):
        world = ReplicaWorld(seed)
        world.run()
        met += world.counts
        met["elections"] += world.store.elections
    for kind in ("acknowledged", "elections", "kill", "lose_power", "pause", "cut", "lose_store", "stop", "spite"):
        assert met[kind], f"no world of {first} to {first + 9} met {kind}"


def test_a_seed_replays() -> None:
    runs = []
    for _ in range(2):
        world = ReplicaWorld(7)
        world.run()
        runs.append((world.schedule.events, world.store.revision, world.counts))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("bug", "seed"), FOUND.items(), ids=FOUND)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str, seed: int) -> None:
    getattr(replica_bugs, bug)(monkeypatch)
    with pytest.raises((Broken, AssertionError)):
        ReplicaWorld(seed).run()
