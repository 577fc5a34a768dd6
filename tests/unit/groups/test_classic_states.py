"""The table of states of a classic group."""

from __future__ import annotations

import pytest

from cairnmq.groups.classic_states import NEXT, follow
from cairnmq.groups.messages import State


def test_a_rebalance_goes_round() -> None:
    state = State.EMPTY
    for after in (State.PREPARING, State.COMPLETING, State.STABLE, State.PREPARING, State.EMPTY):
        state = follow(state, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [(before, after) for before in NEXT for after in State if after not in NEXT[before]],
)
def test_nothing_else_follows(before: State, after: State) -> None:
    with pytest.raises(AssertionError, match="cannot go from"):
        follow(before, after)
