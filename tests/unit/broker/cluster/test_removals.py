"""Brokers that are taken for dead because their addresses refuse connections."""

from __future__ import annotations

from cairnmq.broker.cluster.removals import PATIENCE_SESSIONS, Removals


def test_one_that_lives_is_not_removed_again_and_again() -> None:
    removals = Removals(1000)
    assert removals.may_remove(2, 7, 0) and removals.may_remove(2, 7, 500)
    assert not removals.may_remove(2, 8, 900), "it has registered again"
    assert removals.may_remove(3, 8, 900)
    over = PATIENCE_SESSIONS * 1000
    assert not removals.may_remove(2, 9, over - 1) and removals.may_remove(2, 9, over)
    assert not removals.may_remove(2, 10, over + 1)
