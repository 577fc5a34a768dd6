"""Guards: what was asked elsewhere, and may be overtaken by the end of the transaction."""

from __future__ import annotations

import pytest

from cairnmq.transactions.guards import Guards
from cairnmq.transactions.messages import Producer


@pytest.mark.parametrize(
    ("epoch", "raised", "is_open"),
    [(4, False, False), (5, True, False), (4, True, True), (3, False, True), (6, True, False)],
)
def test_an_end_closes_guards_of_its_transaction(epoch: int, raised: bool, is_open: bool) -> None:
    guards = Guards()
    guard = guards.open(7, Producer(100, 4))
    guards.ended(7, Producer(100, epoch), raised=raised)
    assert guard.is_open is is_open and len(guards) == is_open


def test_other_places_and_producers_stay_open() -> None:
    guards = Guards()
    others = [guards.open(8, Producer(100, 4)), guards.open("7", Producer(100, 4)), guards.open(7, Producer(101, 4))]
    both = [guards.open(7, Producer(100, 4)) for _ in range(2)]
    guards.ended(7, Producer(100, 4), raised=False)
    assert [guard.is_open for guard in (*others, *both)] == [True, True, True, False, False]


def test_nothing_is_left_of_those_that_are_done() -> None:
    guards = Guards()
    first, second = guards.open(7, Producer(100, 4)), guards.open(7, Producer(100, 4))
    guards.done(first)
    guards.done(first)
    assert second.is_open and not first.is_open and len(guards) == 1
    guards.done(second)
    assert not len(guards)


def test_the_loss_of_leadership_closes_all() -> None:
    guards = Guards()
    several = [guards.open(place, Producer(100 + place, 4)) for place in range(3)]
    guards.close_all()
    assert not any(guard.is_open for guard in several) and not len(guards)
