"""Clients are told for a while of brokers that live no more."""

from __future__ import annotations

from cairnmq.broker.cluster.departures import TOLD_MS, Departures
from cairnmq.broker.leadership import KnownBroker

ONE, TWO, THREE = (KnownBroker(node, f"host-{node}", 9092) for node in (1, 2, 3))


def test_for_a_while() -> None:
    departures = Departures()
    departures.see([ONE, TWO, THREE], 1_000)
    assert departures.told(1_000) == ()
    departures.see([TWO], 2_000)
    assert departures.told(2_000) == departures.told(2_000 + TOLD_MS - 1) == (ONE, THREE)
    departures.see([TWO], 3_000)
    assert departures.told(2_000 + TOLD_MS) == (), "its time counts from when it was seen to be gone"


def test_one_that_is_back() -> None:
    departures = Departures()
    departures.see([ONE, TWO], 1_000)
    departures.see([ONE], 2_000)
    moved = KnownBroker(2, "elsewhere", 9092)
    departures.see([ONE, moved], 3_000)
    assert departures.told(3_000) == ()
    departures.see([ONE], 4_000)
    assert departures.told(4_000) == (moved,)


def test_one_that_was_never_seen() -> None:
    departures = Departures()
    departures.see([ONE], 1_000)
    departures.see([ONE], 2_000)
    assert departures.told(2_000) == ()
