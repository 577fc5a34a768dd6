"""How far the followers of one journal are, as their requests told in this epoch."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from cairnmq.replication.messages import FetchPosition, Room
from cairnmq.replication.records import ClusterView, Member


class Follower(Struct, gc=False):
    """How far one life of a broker is, as its last request in this epoch told."""

    member: Member
    end: int
    synced: int
    asked_ms: int
    asked_end: int  # the leader's end at that time
    caught_up_ms: int  # the last time at which it had all that the leader had
    has_had_all: bool = False  # in this epoch; else `caught_up_ms` is when it began
    has_readers: bool = False


class Progress(Struct, frozen=True):
    """For a person. -1 where nothing is known. `lag_ms`: for how long the replica has not had all."""

    broker: int
    end: int = -1
    synced: int = -1
    lag_ms: int = -1
    room: Room | None = None


class FollowersProgress:
    """`began_ms`: when the epoch began, for those that were not heard in it."""

    __slots__ = ("_began_ms", "_followers")

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._followers: dict[int, Follower] = {}

    def known(self, broker: int) -> Follower | None:
        """The life of a broker that was heard last."""
        return self._followers.get(broker)

    def ends_of(self, member: Member) -> tuple[int, int] | None:
        """What this very life has written and synced; None: it was not heard in this epoch."""
        follower = self._followers.get(member.broker)
        return None if follower is None or follower.member != member else (follower.end, follower.synced)

    def caught_up_ms(self, member: Member) -> int:
        """When it last had all."""
        follower = self._followers.get(member.broker)
        return follower.caught_up_ms if follower is not None and follower.member == member else self._began_ms

    def count(self, asked: FetchPosition, end: int, now_ms: int) -> None:
        """A request that passed every check. `end`: the leader's own, now."""
        known = self._followers.get(asked.follower.broker)
        if known is None or known.member != asked.follower:
            caught_up = now_ms if asked.end >= end else self._began_ms
            known = Follower(asked.follower, asked.end, asked.synced, now_ms, end, caught_up)
            self._followers[asked.follower.broker] = known
        elif asked.end < known.end:
            return  # overtaken by a later request
        elif asked.end >= end:
            known.caught_up_ms = now_ms
        elif asked.end >= known.asked_end:
            known.caught_up_ms = max(known.caught_up_ms, known.asked_ms)
        known.has_had_all = known.has_had_all or asked.end >= min(end, known.asked_end)
        known.end, known.asked_ms, known.asked_end = asked.end, now_ms, end
        known.synced = max(known.synced, asked.synced)
        known.has_readers = asked.has_readers

    def had_all_ms(self, member: Member) -> int | None:
        """When this very life last had all; None: not in this epoch, as far as is known."""
        follower = self._followers.get(member.broker)
        is_known = follower is not None and follower.member == member and follower.has_had_all
        return self.caught_up_ms(member) if is_known else None

    def readable(self, view: ClusterView, members: Iterable[Member], now_ms: int, within_ms: int) -> list[int]:
        """Those of these members that had all a short time ago, live, and are not about to stop (KIP-392)."""
        return [
            member.broker
            for member in members
            if view.is_live(member)
            and not view.brokers[member.broker].stopping
            and (had_all_ms := self.had_all_ms(member)) is not None
            and now_ms - had_all_ms <= within_ms
        ]

    @property
    def have_readers(self) -> bool:
        """Whether somebody reads from any of them."""
        return any(follower.has_readers for follower in self._followers.values())

    def of(self, broker: int, end: int, now_ms: int, room: Room | None = None) -> Progress:
        """Of a replica, while the leader is at `end`. `room`: what it has left."""
        follower = self._followers.get(broker)
        if follower is None:
            return Progress(broker)
        lag_ms = 0 if follower.end >= end else max(0, now_ms - follower.caught_up_ms)
        return Progress(broker, follower.end, follower.synced, lag_ms, room)
