"""Where journals, partitions and groups go."""

from __future__ import annotations

from collections import Counter

import pytest

from cairnmq.replication.placement import BrokerPlace, cycle_of, replica_sets, ring_of


def places(*racks: str | None) -> list[BrokerPlace]:
    return [BrokerPlace(number, rack) for number, rack in enumerate(racks, 1)]


@pytest.mark.parametrize("factor", [1, 2, 3])
@pytest.mark.parametrize("led", [1, 2, 3])
def test_each_broker_is_preferred_for_as_many(factor: int, led: int) -> None:
    sets = replica_sets(places(None, None, None), factor, led)
    assert Counter(replicas[0] for replicas in sets) == {1: led, 2: led, 3: led}
    assert all(len(set(replicas)) == factor for replicas in sets)


def test_a_broker_that_dies_leaves_its_journals_to_different_successors() -> None:
    sets = replica_sets(places(None, None, None), 3, led=2)
    assert {replicas[1] for replicas in sets if replicas[0] == 1} == {2, 3}


def test_replicas_are_on_distinct_racks_where_there_are_enough() -> None:
    brokers = places("a", "a", "b", "b", "c", "c")
    racks = {place.broker: place.rack for place in brokers}
    for replicas in replica_sets(brokers, 3, led=3):
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}
    for replicas in replica_sets(places("a", "a", "b"), 3, led=1):
        assert len(replicas) == 3, "fewer racks than replicas: still all of them"


def test_racks_alternate_on_the_ring() -> None:
    assert [place.rack for place in ring_of(places("a", "a", "b", "b"))] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("factor", [0, 4])
def test_a_factor_above_the_live_brokers_is_refused(factor: int) -> None:
    with pytest.raises(ValueError, match=f"replication factor {factor} with 3 live brokers"):
        replica_sets(places(None, None, None), factor, led=1)


def test_neighbours_have_different_preferred_leaders_and_topics_begin_elsewhere() -> None:
    journals = list(enumerate(replica_sets(places(None, None, None), 3, led=2)))
    leaders = dict((number, replicas[0]) for number, replicas in journals)
    cycle = cycle_of(journals, bytes(16))
    assert sorted(cycle) == [number for number, _ in journals]
    around = [leaders[number] for number in (*cycle, cycle[0])]
    assert all(one != other for one, other in zip(around, around[1:], strict=False))
    assert cycle_of(journals, bytes([1, *bytes(15)])) == (*cycle[1:], cycle[0])
