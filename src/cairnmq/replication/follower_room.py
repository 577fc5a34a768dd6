"""How much room the followers of one journal have left: which part of the journal they may still need (R33), and who
makes producers wait (R34).

A follower copies faster than its splitter splits, and its disk may be smaller. Producers wait before it is full, as
they wait for the leader's own splitter. One that makes them wait for the lag time without a break leaves the ISR, and
does not come back before it has room again.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from cairnmq.replication.messages import ENDLESS, FetchPosition, Room
from cairnmq.replication.records import Member

BACKLOG_MAX_PERCENT = 90
"""Of what a follower's splitter may be behind. The rest is for what it has not copied yet."""

FULL_PERCENT = 100
"""A follower with such a backlog takes no more bytes."""


def is_behind(room: Room) -> bool:
    """Its splitter is so far behind that producers are to wait."""
    return room.backlog_percent >= BACKLOG_MAX_PERCENT


class _Told(Struct, gc=False):
    """What one life of a broker told last."""

    member: Member
    end_max: int  # it may have this much by now: the leader's own end then
    room: Room
    at_ms: int
    waited_since_ms: int | None = None  # since when producers wait for it


class FollowerRoom:
    """`free_bytes_min`: a disk with less is as good as full. `checkpointed` is the leader's own position; whoever
    appends says whether `producers_wait` for followers."""

    __slots__ = (
        "_free_bytes_min",
        "_gone",
        "_told",
        "_wait_max_ms",
        "checkpointed",
        "heard_short",
        "overdue",
        "producers_wait",
    )

    def __init__(self, wait_max_ms: int, free_bytes_min: int) -> None:
        self.checkpointed = 0
        self.producers_wait = False
        self.heard_short: frozenset[Member] = (
            frozenset()
        )  # they have said so lately: it is not that nobody reaches them
        self.overdue: frozenset[Member] = frozenset()  # they have made producers wait for too long
        self._wait_max_ms = wait_max_ms
        self._free_bytes_min = free_bytes_min
        self._told: dict[int, _Told] = {}
        self._gone: set[int] = set()

    def of(self, broker: int) -> Room | None:
        """What a follower told last; None: nothing in this epoch."""
        told = self._told.get(broker)
        return told.room if told is not None else None

    def count(self, asked: FetchPosition, end: int, now_ms: int) -> None:
        """A request that passed every check. `end`: the leader's own, now."""
        broker = asked.follower.broker
        self._gone.discard(broker)
        told = self._told.get(broker)
        if told is None or told.member != asked.follower:
            self._told[broker] = _Told(asked.follower, end, asked.room, now_ms)
            return
        told.end_max, told.room, told.at_ms = end, asked.room, now_ms
        if not self.is_short(told.member):
            told.waited_since_ms = None

    def gone(self, broker: int) -> None:
        """The journal does not go back to where that replica is. Keeping more would not help it."""
        self._gone.add(broker)

    def needed_from(self, replicas: Collection[int], me: int, first: int) -> int:
        """The others need the journal from this position on, or not at all (`ENDLESS`). `first`: it begins there. Of a
        replica that was not heard in this epoch nobody knows: 0, and the limit of each broker decides."""
        return min((self._needs_from(broker, first) for broker in replicas if broker != me), default=ENDLESS)

    def _needs_from(self, broker: int, first: int) -> int:
        told = self._told.get(broker)
        if broker in self._gone or (told is not None and told.end_max < first):
            return ENDLESS
        return told.room.checkpointed if told is not None else 0

    def keep_from(self, replicas: Collection[int], me: int, first: int) -> int:
        """All replicas keep the journal from here on."""
        return min(self.checkpointed, self.needed_from(replicas, me, first))

    def is_short(self, member: Member) -> bool:
        """This very life of a follower is nearly full."""
        told = self._told.get(member.broker)
        if told is None or told.member != member:
            return False
        return is_behind(told.room) or told.room.free_bytes < self._free_bytes_min

    def short(self, members: Collection[Member]) -> list[Member]:
        """Producers wait for these."""
        return sorted(member for member in members if self.is_short(member))

    def look(self, members: Collection[Member], now_ms: int) -> None:
        """Call it now and then: who has made producers wait for too long. Only those that are heard: others lag."""
        heard, overdue = [], []
        for member in members:
            if not self.is_short(member):
                continue
            told = self._told[member.broker]
            if told.waited_since_ms is None and self.producers_wait:
                told.waited_since_ms = now_ms
            if now_ms - told.at_ms > self._wait_max_ms:
                continue
            heard.append(member)
            if told.waited_since_ms is not None and now_ms - told.waited_since_ms > self._wait_max_ms:
                overdue.append(member)
        self.heard_short, self.overdue = frozenset(heard), frozenset(overdue)
