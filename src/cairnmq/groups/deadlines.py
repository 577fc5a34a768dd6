"""One heap for every time limit of every group. A limit that only moves later costs nothing until it is reached."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

NEVER = 1 << 62

G = TypeVar("G")


class Limit(Enum):
    """What has taken too long."""

    SESSION = auto()  # a member is silent
    PENDING = auto()  # a member id was given and not used
    JOIN = auto()  # members have not come (back) to the group
    SYNC = auto()  # members have not asked for their assignment
    REBALANCE = auto()  # a member has not given back what it must


class Deadline(Generic[G]):
    """A moment that may move. `due_ms` is when it is meant, `queued_ms` the earliest heap entry that looks at it."""

    __slots__ = ("limit", "group", "member_id", "due_ms", "queued_ms", "_entry")

    def __init__(self, limit: Limit, group: G, member_id: str = "") -> None:
        self.limit = limit
        self.group = group
        self.member_id = member_id
        self.due_ms = NEVER
        self.queued_ms = NEVER
        self._entry = 0

    def disarm(self) -> None:
        """Its heap entry stays until it is reached, and then does nothing."""
        self.due_ms = NEVER


class Deadlines(Generic[G]):
    """`wall_ahead_ms`: how far the wall clock is ahead of the steady one that time limits run by."""

    def __init__(self) -> None:
        self.wall_ahead_ms = 0
        self._heap: list[tuple[int, int, Deadline[G]]] = []
        self._entries = count(1)

    def arm(self, deadline: Deadline[G], due_ms: int) -> None:
        deadline.due_ms = due_ms
        if due_ms < deadline.queued_ms:
            self._push(deadline, due_ms)

    def date_ms(self, now_ms: int) -> int:
        """A moment as it is stored: the steady clock begins anew with every run."""
        return now_ms + self.wall_ahead_ms

    @property
    def wake_ms(self) -> int:
        """When to look again; NEVER if nothing is limited."""
        return self._heap[0][0] if self._heap else NEVER

    def reached(self, now_ms: int) -> Iterator[Deadline[G]]:
        """Every deadline that is due, one after another: what is done about one may disarm the next."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, entry, deadline = heappop(heap)
            if entry != deadline._entry:
                continue  # an earlier entry has taken its place
            deadline.queued_ms = NEVER
            if deadline.due_ms == NEVER:
                continue
            if deadline.due_ms > now_ms:
                self._push(deadline, deadline.due_ms)
                continue
            deadline.due_ms = NEVER
            yield deadline

    def _push(self, deadline: Deadline[G], due_ms: int) -> None:
        deadline._entry = next(self._entries)
        deadline.queued_ms = due_ms
        heappush(self._heap, (due_ms, deadline._entry, deadline))

    def __len__(self) -> int:
        return len(self._heap)
