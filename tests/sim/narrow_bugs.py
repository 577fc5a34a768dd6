"""Bugs of limits in a cluster, planted one at a time: the simulation of machines with too little room must find each
within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from cairnmq.replication.follower_room import FollowerRoom
from cairnmq.replication.history import EpochHistory
from cairnmq.replication.leader import JournalLeader
from cairnmq.replication.messages import ENDLESS
from cairnmq.replication.records import Member
from cairnmq.testing.replicas.machine import ModelJournal

Plant = Callable[[pytest.MonkeyPatch], None]


def keep_from_ignores_a_slow_replica(patch: pytest.MonkeyPatch) -> None:
    """The quickest follower decides instead of the slowest."""

    def needed_from(room: FollowerRoom, replicas: Collection[int], me: int, first: int) -> int:
        return max((room._needs_from(broker, first) for broker in replicas if broker != me), default=ENDLESS)

    patch.setattr(FollowerRoom, "needed_from", needed_from)


def keep_from_forgets_the_silent(patch: pytest.MonkeyPatch) -> None:
    """A replica that was not heard in this epoch is taken for one that needs nothing."""
    needs_from = FollowerRoom._needs_from

    def eager(room: FollowerRoom, broker: int, first: int) -> int:
        return needs_from(room, broker, first) if broker in room._told else ENDLESS

    patch.setattr(FollowerRoom, "_needs_from", eager)


def backlog_of_followers_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowerRoom, "is_short", lambda room, member: False)


def producers_wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A follower without room stays in the ISR."""
    patch.setattr(FollowerRoom, "look", lambda room, members, now_ms: None)


def follower_without_room_joins(patch: pytest.MonkeyPatch) -> None:
    """It leaves, comes back, and makes producers wait anew."""
    may_join = JournalLeader._may_join

    def eager(leader: JournalLeader, *what: object) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(FollowerRoom, "is_short", lambda room, member: False)
            return may_join(leader, *what)  # type: ignore[arg-type]

    patch.setattr(JournalLeader, "_may_join", eager)


def slow_follower_makes_its_leader_resign(patch: pytest.MonkeyPatch) -> None:
    """As if nobody had heard of it: the one without room is elected."""
    shrink = JournalLeader._shrink

    def hasty(leader: JournalLeader, leaving: list[Member], *what: object) -> object:
        leader.room.heard_short = frozenset()
        return shrink(leader, leaving, *what)  # type: ignore[arg-type]

    patch.setattr(JournalLeader, "_shrink", hasty)


def file_of_the_last_entry_is_removed(patch: pytest.MonkeyPatch) -> None:
    """Then nobody can tell any more whether a follower that ends there has the same epoch before it."""
    remove_below = ModelJournal.remove_below
    patch.setattr(
        ModelJournal, "remove_below", lambda journal, position, size: remove_below(journal, position + 1, size)
    )


def epoch_before_the_journal_is_not_missed(patch: pytest.MonkeyPatch) -> None:
    """A follower of an epoch that the leader's journal does not reach back to is asked to cut instead."""
    patch.setattr(EpochHistory, "reaches", lambda history, epoch: True)
