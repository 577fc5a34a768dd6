"""Replication factors side by side, journals that are made once, assignments by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.cluster_image import ClusterImage, after
from cairnmq.metadata.cluster_records import BrokerEntry, decode_journal, encode_broker
from cairnmq.metadata.image import QueueRange, Topic
from cairnmq.metadata.journal_choice import HAND_MADE_MAX, Choice, choose, choose_assigned, factor_of
from cairnmq.metadata.store import Change, Check, NextEpoch, Put
from cairnmq.replication.records import BrokerRecord, JournalRecord, Member
from cairnmq.types import Epoch

ID = bytes(16)


def cluster(*live: int, dead: Sequence[int] = ()) -> ClusterImage:
    """Broker b is in epoch 10 + b, its key at revision 20 + b."""
    entries = {b: BrokerEntry(BrokerRecord(b, 10 + b), "h", b, "i", b) for b in (*live, *dead)}
    changes = [Change(f"brokers/{b}", encode_broker(entry), 20 + b) for b, entry in entries.items()]
    changes += [Change(f"live/{b}", str(10 + b).encode(), 30 + b) for b in live]
    return after(ClusterImage(), changes, 40)


def chosen(choice: Choice | Refusal) -> Choice:
    assert isinstance(choice, Choice), choice
    return choice


def refused(choice: Choice | Refusal) -> Refusal:
    assert isinstance(choice, Refusal), choice
    return choice


def records(choice: Choice) -> list[JournalRecord]:
    values = [op.value for op in choice.ops if isinstance(op, Put) and op.key.startswith("journals/")]
    return [decode_journal(value) for value in values]


def carried_out(image: ClusterImage, choice: Choice, revision: int = 50) -> ClusterImage:
    changes = [Change(op.key, op.value, revision) for op in choice.ops if isinstance(op, Put)]
    return after(image, changes, image.view.last_epoch + bool(changes))


def test_the_first_topic_of_a_factor_makes_its_journals() -> None:
    choice = chosen(choose(cluster(1, 2, 3), 3, ID, led=2))
    made = records(choice)
    assert [record.journal for record in made] == [1, 2, 3, 4, 5, 6] and sorted(choice.cycle) == [1, 2, 3, 4, 5, 6]
    assert Counter(record.replicas[0] for record in made) == {1: 2, 2: 2, 3: 2}
    for record in made:
        assert record.leader == record.isr[0] == Member(record.replicas[0], 10 + record.replicas[0])
        assert [member.broker for member in record.isr] == list(record.replicas) and record.epoch == 41
    assert choice.ops[0] == NextEpoch(Epoch(41)) and choice.ops[-1] == Put("ids/next-journal", b"7")
    assert [op for op in choice.ops if isinstance(op, Check)] == [Check(f"brokers/{b}", 20 + b) for b in (1, 2, 3)]


def test_the_second_one_takes_them() -> None:
    image = cluster(1, 2, 3)
    first = chosen(choose(image, 3, ID, led=1))
    second = chosen(choose(carried_out(image, first), 3, b"\1" * 16, led=1))
    assert second.ops == () and second.cycle == first.cycle[1:] + first.cycle[:1], "each topic begins elsewhere"


def test_factors_side_by_side() -> None:
    image, cycles = cluster(1, 2, 3), dict[int, tuple[int, ...]]()
    for factor in (1, 2, 3):
        choice = chosen(choose(image, factor, ID, led=1))
        assert {len(record.replicas) for record in records(choice)} == {factor}
        cycles[factor], image = choice.cycle, carried_out(image, choice)
    assert sorted(cycles[1] + cycles[2] + cycles[3]) == list(range(1, 10))
    for factor, cycle in cycles.items():
        assert chosen(choose(image, factor, ID, led=1)) == Choice(cycle)
        assert factor_of(image, Topic("t", ID, (QueueRange(1, 5, cycle),))) == factor


@pytest.mark.parametrize(("factor", "says"), [(4, "needs 4 live brokers; live: brokers 1, 3"), (0, "the minimum is 1")])
def test_a_factor_that_cannot_be(factor: int, says: str) -> None:
    refusal = refused(choose(cluster(1, 3, dead=[2]), factor, ID, led=2))
    assert refusal.code == ErrorCode.INVALID_REPLICATION_FACTOR and says in refusal.message


def test_a_factor_above_the_live_brokers_is_refused_although_there_are_journals() -> None:
    image = cluster(1, 2)
    image = carried_out(image, chosen(choose(image, 2, ID, led=1)))
    image = after(image, [Change("live/2", None, 60)], 41)
    assert refused(choose(image, 2, ID, led=1)).code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_broker_that_comes_later_gets_journals_too() -> None:
    image = cluster(1, 2)
    image = carried_out(image, chosen(choose(image, 1, ID, led=1)))
    late = cluster(1, 2, 3)
    image = carried_out(late, Choice((), tuple(chosen(choose(cluster(1, 2), 1, ID, led=1)).ops)))
    choice = chosen(choose(image, 1, ID, led=1))
    assert [record.replicas for record in records(choice)] == [(3,)] and sorted(choice.cycle) == [1, 2, 3]


def test_no_queue_goes_where_no_replica_is_live() -> None:
    image = cluster(1, 2, 3)
    image = carried_out(image, chosen(choose(image, 1, ID, led=1)))
    image = after(image, [Change("live/2", None, 60)], 41)
    assert sorted(chosen(choose(image, 1, ID, led=1)).cycle) == [1, 3]


def test_more_partitions_go_on_in_turn() -> None:
    image = cluster(1, 2, 3)
    first = chosen(choose(image, 3, ID, led=1))
    more = chosen(choose(carried_out(image, first), 3, ID, led=1, first=5))
    assert more.cycle == first.cycle[2:] + first.cycle[:2]


# ---------------------------------------------------------------------------------------------------------- by hand


def test_assignments() -> None:
    image = cluster(1, 2, 3)
    choice = chosen(choose_assigned(image, [[1, 2], [3, 1], [1, 2], [3, 1]]))
    assert [record.replicas for record in records(choice)] == [(1, 2), (3, 1)] and choice.cycle == (1, 2)
    again = chosen(choose_assigned(carried_out(image, choice), [[3, 1], [1, 2], [1, 2]]))
    assert again == Choice((2, 1, 1)), "journals with these replicas are there"


def test_the_order_of_replicas_says_who_leads() -> None:
    image = cluster(1, 2)
    image = carried_out(image, chosen(choose_assigned(image, [[1, 2]])))
    assert [record.replicas for record in records(chosen(choose_assigned(image, [[2, 1]])))] == [(2, 1)]


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        ([[]], "there are none"),
        ([[1, 1]], "one of them is named twice"),
        ([[1, 8]], "there is no broker 8"),
        ([[1, 4]], "the live ones are brokers 1, 2, 3"),
        ([[1, 2], [3]], "all partitions of a topic have the same number of replicas"),
    ],
)
def test_assignments_that_cannot_be(assignments: list[list[int]], says: str) -> None:
    refusal = refused(choose_assigned(cluster(1, 2, 3, dead=[4]), assignments))
    assert refusal.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and says in refusal.message


def test_a_dead_broker_keeps_its_journals() -> None:
    image = cluster(1, 2)
    image = carried_out(image, chosen(choose_assigned(image, [[1, 2]])))
    image = after(image, [Change("live/2", None, 60)], 41)
    assert chosen(choose_assigned(image, [[1, 2]])).cycle == (1,)


def test_hands_make_no_more_journals_than_a_cluster_can_bear() -> None:
    image = cluster(*range(1, 10))
    pairs = [[a, b] for a in range(1, 10) for b in range(1, 10) if a != b]
    image = carried_out(image, chosen(choose_assigned(image, pairs[:HAND_MADE_MAX])))
    refusal = refused(choose_assigned(image, [pairs[HAND_MADE_MAX]]))
    assert "a cluster has at most 64" in refusal.message
    assert chosen(choose_assigned(image, pairs[:3])).ops == ()
