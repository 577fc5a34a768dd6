"""Where journals and partitions go. Fixed when they are made; changing a journal's replicas is a later issue."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from msgspec import Struct


class BrokerPlace(Struct, frozen=True):
    """A broker and its rack."""

    broker: int
    rack: str | None = None


def ring_of(brokers: Sequence[BrokerPlace]) -> list[BrokerPlace]:
    """All brokers, one of each rack after the other, so that neighbours are in different racks where that can be."""
    racks: dict[str, list[BrokerPlace]] = {}
    for place in sorted(brokers, key=lambda one: one.broker):
        racks.setdefault(place.rack or "", []).append(place)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [place for each in rounds for place in each if place is not None]


def replica_sets(brokers: Sequence[BrokerPlace], factor: int, led: int) -> list[tuple[int, ...]]:
    """The journals of a replication factor: each broker is first, and so preferred to lead, in `led` of them.

    The others follow on the ring, from another start in each, so that a broker that dies leaves its journals to
    different successors; racks that have no replica yet come first."""
    if not 1 <= factor <= len(brokers):
        raise ValueError(f"replication factor {factor} with {len(brokers)} live brokers")
    ring = ring_of(brokers)
    sets = []
    for number in range(led):
        for at, first in enumerate(ring):
            others = ring[at + 1 :] + ring[:at]
            turn = number % max(len(others), 1)
            sets.append(_spread(first, others[turn:] + others[:turn], factor))
    return sets


def _spread(first: BrokerPlace, others: list[BrokerPlace], factor: int) -> tuple[int, ...]:
    chosen, racks, left = [first.broker], {first.rack}, []
    for place in others:
        if place.rack is None or place.rack not in racks:
            chosen.append(place.broker)
            racks.add(place.rack)
        else:
            left.append(place.broker)
    return tuple([*chosen, *left][:factor])


def cycle_of(journals: Sequence[tuple[int, tuple[int, ...]]], topic_id: bytes) -> tuple[int, ...]:
    """The order in which a topic's partitions go to the journals of its factor: neighbours have different preferred
    leaders, and each topic begins elsewhere."""
    by_leader: dict[int, list[int]] = {}
    for journal, replicas in sorted(journals):
        by_leader.setdefault(replicas[0], []).append(journal)
    rounds = zip_longest(*(by_leader[leader] for leader in sorted(by_leader)))
    cycle = [journal for each in rounds for journal in each if journal is not None]
    start = topic_id[0] % len(cycle)
    return tuple(cycle[start:] + cycle[:start])
