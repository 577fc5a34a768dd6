"""Reads from followers (KIP-392): when a follower may answer, and which followers a leader sends readers to.

A follower shows what lies below the ends that its leader told it, and no more, so what it serves is never taken back.
It may be late. How late it is counts from the time at which it asked: whatever the leader showed then, the follower
shows once it has taken the reply. It knows nothing of an epoch before the first such reply, so it serves nothing in it.

A leader sends readers only to members of the ISR that are less late than half of what they may be. So a reader that a
follower has sent back is not sent there again for the same reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairnmq.replication.leader import JournalLeader
    from cairnmq.replication.records import ClusterView

READERS_MS = 10_000  # a reader is one for so long after its last request


def sends_within_ms(lag_max_ms: int) -> int:
    """How late a follower may be for its leader to send readers to it."""
    return lag_max_ms // 2


def readable(leader: JournalLeader, view: ClusterView, now_ms: int, within_ms: int) -> list[int]:
    """Brokers to read from instead of the leader's. None before it is certain how far queues are."""
    others = [member for member in leader.record.isr if member != leader.me]
    return leader.followers.readable(view, others, now_ms, within_ms) if leader.ready else []


class FollowerReads:
    """Of one journal, while one leader is followed in one epoch. All times are those of this process's own clock."""

    __slots__ = ("_current_ms", "_read_ms")

    def __init__(self) -> None:
        self._current_ms: int | None = None
        self._read_ms: int | None = None

    def shows(self, end: int, replicated_end: int, asked_ms: int) -> None:
        """The reply to what was asked at `asked_ms` told that everything before `replicated_end` is replicated, and
        readers here are shown what lies before `end`."""
        if end >= replicated_end and (self._current_ms is None or asked_ms > self._current_ms):
            self._current_ms = asked_ms

    def lag_ms(self, now_ms: int) -> int | None:
        """For how long this replica may have lacked something that its leader shows; None: nobody knows."""
        return None if self._current_ms is None else max(0, now_ms - self._current_ms)

    def may_serve(self, now_ms: int, lag_max_ms: int) -> bool:
        """Whether readers may be answered from this replica."""
        lag_ms = self.lag_ms(now_ms)
        return lag_ms is not None and lag_ms <= lag_max_ms

    def has_all_of(self, then_ms: int) -> bool:
        """Everything is shown here that the leader showed at that time. A reader that was ahead then reads what is not
        there."""
        return self._current_ms is not None and self._current_ms >= then_ms

    def read(self, now_ms: int) -> None:
        """Somebody reads here."""
        self._read_ms = now_ms

    def has_readers(self, now_ms: int) -> bool:
        """Whether somebody waits here for what the leader shows: it tells of each step then."""
        return self._read_ms is not None and now_ms - self._read_ms <= READERS_MS
