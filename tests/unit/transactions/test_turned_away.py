"""A batch is not taken before one that was refused and comes first."""

from __future__ import annotations

import pytest

from cairnmq.transactions import turned_away
from cairnmq.transactions.messages import Producer
from cairnmq.transactions.turned_away import TurnedAway

ME = Producer(7, 3)


def test_what_comes_behind_waits() -> None:
    away = TurnedAway()
    assert not away.misses(1, ME, 5)
    away.note(1, ME, 5)
    away.note(1, ME, 10)
    assert not away.misses(1, ME, 5) and away.misses(1, ME, 6) and away.misses(1, ME, 10)
    assert not away.misses(2, ME, 10) and not away.misses(1, Producer(8, 3), 10), "of another queue or producer"
    away.forget(1, 7)
    assert not away.misses(1, ME, 10) and not len(away)


def test_epochs() -> None:
    away = TurnedAway()
    away.note(1, ME, 5)
    later = Producer(7, 4)
    assert not away.misses(1, later, 10)
    away.note(1, later, 0)
    assert away.misses(1, later, 1) and not away.misses(1, ME, 10)
    away.note(1, later, 9)
    assert away.misses(1, later, 1)
    away.forget_all()
    assert not away.misses(1, later, 1)


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turned_away, "MOST", 2)
    away = TurnedAway()
    for queue in range(3):
        away.note(queue, ME, 0)
    assert [away.misses(queue, ME, 1) for queue in range(3)] == [False, True, True]
