"""The states of a classic group, and which may follow which. Every change of state goes through here.

Empty -> PreparingRebalance -> CompletingRebalance -> Stable
           (members join)       (leader assigns)
"""

from __future__ import annotations

from cairnmq.groups.messages import State

NEXT: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset((State.PREPARING,)),
    State.PREPARING: frozenset((State.COMPLETING, State.EMPTY)),  # Empty: nobody has come
    State.COMPLETING: frozenset((State.STABLE, State.PREPARING)),
    State.STABLE: frozenset((State.PREPARING,)),
}


def follow(before: State, after: State) -> State:
    """`after`, if it may follow."""
    assert after in NEXT[before], f"a classic group cannot go from {before} to {after}"
    return after
