"""The leader of one journal in one epoch: which members count, how far everything is replicated, when the ISR changes.

Two ends follow from the members' own (R1). The *replicated end*: every member of the ISR has written this much. The
*durable end*: every member has synced it. Neither falls within an epoch. Three rules keep them true:

- While a change of the ISR is under way, both the old and the proposed members count, because either may be the truth
  (R8, the maximal ISR). A change whose outcome is not known stays under way.
- A member leaves only when all that remain have synced everything that may have been acknowledged, and the replicated
  end stands still until the outcome is known (R11). So what was acknowledged without a sync does not come to depend on
  the page cache of the last replica.
- Members are lives of brokers. The position of an earlier life never counts for a later one (R9).

Followers with too little room slow producers down, and leave when they do so for too long (`room`).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.replication.follower_room import FollowerRoom
from cairnmq.replication.followers_progress import Follower, FollowersProgress, Progress
from cairnmq.replication.history import EpochHistory
from cairnmq.replication.messages import (
    Accepted,
    Diverging,
    FencedEpoch,
    FetchPosition,
    FetchReply,
    Gone,
    StaleBroker,
    UnknownEpoch,
)
from cairnmq.replication.records import ClusterView, JournalRecord, Kept, Member, Proposal


class LeaderSettings(Struct, frozen=True):
    """How patient a leader is. `prompt`: a member whose session has ended leaves without waiting for the lag time.
    `free_bytes_min`: with less on its disk a follower slows producers down."""

    lag_max_ms: int = 10_000
    prompt: bool = True
    free_bytes_min: int = 0


class JournalLeader:
    """Lives as long as this broker leads the journal in this epoch. `start` is where the epoch began, its segment head.

    `history` is that of the own journal and shared with it; `end` in it is what this broker has written."""

    __slots__ = (
        "_proposed",
        "_settings",
        "_shrinking",
        "durable_end",
        "durable_wanted",
        "first",
        "followers",
        "history",
        "kept",
        "me",
        "replicated_end",
        "room",
        "start",
        "synced",
    )

    def __init__(
        self,
        me: Member,
        kept: Kept,
        history: EpochHistory,
        *,
        start: int,
        synced: int,
        replicated_end: int,
        durable_end: int,
        now_ms: int,
        first: int = 0,
        settings: LeaderSettings = LeaderSettings(),  # noqa: B008 - a frozen value
    ) -> None:
        assert kept.record.leader == me and me in kept.record.isr and history.last_epoch == kept.record.epoch
        self.me = me
        self.kept = kept
        self.history = history
        self.start = start
        self.synced = synced
        self.first = first
        self.replicated_end = replicated_end
        self.durable_end = durable_end
        self.durable_wanted = 0  # somebody waits until the durable end is here
        self.room = FollowerRoom(settings.lag_max_ms, settings.free_bytes_min)
        self._settings = settings
        self.followers = FollowersProgress(now_ms)
        self._proposed: JournalRecord | None = None  # sent, and its outcome is not known
        self._shrinking = False

    # ------------------------------------------------------------------------------------------------ what counts

    @property
    def record(self) -> JournalRecord:
        """As the store is known to have it."""
        return self.kept.record

    @property
    def epoch(self) -> int:
        """The epoch of this leadership."""
        return self.kept.record.epoch

    @property
    def in_flight(self) -> bool:
        """Whether a change of the record is under way."""
        return self._proposed is not None

    @property
    def ready(self) -> bool:
        """All of earlier epochs is replicated: coordinators may act, and the end of a queue may be told (R24)."""
        return self.replicated_end > self.start

    def members(self) -> set[Member]:
        """The maximal ISR."""
        counted = set(self.record.isr)
        if self._proposed is not None:
            counted.update(self._proposed.isr)
        return counted

    def in_sync(self) -> int:
        """How many members min.insync.replicas is compared with: those of the record alone."""
        return len(self.record.isr)

    def _ends_of(self, member: Member) -> tuple[int, int] | None:
        if member == self.me:
            return self.history.end, self.synced
        return self.followers.ends_of(member)

    def _advance(self) -> None:
        ends = [self._ends_of(member) for member in self.members()]
        known = [one for one in ends if one is not None]
        if len(known) < len(ends):
            return
        if not self._shrinking:
            self.replicated_end = max(self.replicated_end, min(end for end, _ in known))
        self.durable_end = max(self.durable_end, min(self.replicated_end, *(synced for _, synced in known)))

    # ---------------------------------------------------------------------------------------------- what happened

    def written(self) -> None:
        """More was appended to the own journal; `history` has its end."""
        self._advance()

    def synced_to(self, end: int) -> None:
        """The own disk has everything up to here."""
        assert self.synced <= end <= self.history.end
        self.synced = end
        self._advance()

    def fetched(self, asked: FetchPosition, view: ClusterView, now_ms: int) -> FetchReply:
        """A follower's request. Its position counts only after every check (R15)."""
        if asked.epoch != self.epoch:
            return FencedEpoch(self.epoch) if asked.epoch < self.epoch else UnknownEpoch()
        registered = view.brokers.get(asked.follower.broker)
        if registered is None or registered.broker_epoch < asked.follower.broker_epoch:
            return UnknownEpoch()
        if registered.broker_epoch > asked.follower.broker_epoch:
            return StaleBroker()
        # Whatever the follower has there, nothing here tells whether it is the same.
        if asked.end < self.first or (self.first and not self.history.reaches(asked.last_epoch)):
            self.room.gone(asked.follower.broker)
            return Gone(self.first)
        parting = self.history.parting(asked.last_epoch, asked.end)
        if parting is not None:
            return Diverging(parting)
        self.followers.count(asked, self.history.end, now_ms)
        self.room.count(asked, self.history.end, now_ms)
        self._advance()
        sync = asked.synced < self.sync_wanted(view, now_ms)
        keep_from = self.room.keep_from(self.record.replicas, self.me.broker, self.first)
        return Accepted(self.replicated_end, self.durable_end, sync, now_ms, keep_from)

    def _safe_end(self) -> int:
        """All that may have been acknowledged by this leader or an earlier one."""
        return max(self.replicated_end, self.start)

    def sync_wanted(self, view: ClusterView, now_ms: int) -> int:
        """How far the own disk and the followers' should be synced at once: for producers that wait, for a member that
        is about to leave, and for splitters that others wait for: they split what everybody has synced."""
        hurried = self.room.producers_wait or self._leaving(view, now_ms)
        return max(self.durable_wanted, self._safe_end() if hurried else 0)

    def progress(self, now_ms: int) -> list[Progress]:
        """How far each replica is."""
        own = Progress(self.me.broker, self.history.end, self.synced, 0)
        return [
            own
            if broker == self.me.broker
            else self.followers.of(broker, self.history.end, now_ms, self.room.of(broker))
            for broker in self.record.replicas
        ]

    # ----------------------------------------------------------------------------------------- changes of the ISR

    def _lags(self, member: Member, now_ms: int) -> bool:
        return now_ms - self.followers.caught_up_ms(member) > self._settings.lag_max_ms

    def _leaving(self, view: ClusterView, now_ms: int) -> list[Member]:
        return [
            member
            for member in self.record.isr
            if member != self.me
            and (
                _is_stale(member, view)
                or self._lags(member, now_ms)
                or member in self.room.overdue
                or (self._settings.prompt and _is_gone(member, view))
            )
        ]

    def propose(self, view: ClusterView, now_ms: int) -> Proposal | None:
        """The change to send now, if there is one; call it now and then. None is sent while one is under way."""
        if self._proposed is not None:
            return None
        self.room.look(self.members(), now_ms)
        leaving = self._leaving(view, now_ms)
        if leaving:
            return self._shrink(leaving, view)
        for broker in self.record.replicas:
            follower = self.followers.known(broker)
            if follower is not None and self._may_join(follower, view, now_ms):
                return self._send(self.record.joined_by(follower.member), (self.me, follower.member))
        return None

    def _may_join(self, follower: Follower, view: ClusterView, now_ms: int) -> bool:
        """It must not pull back either end, nor lack the beginning of this epoch (R9), nor make producers wait."""
        return (
            self.record.member(follower.member.broker) is None
            and view.is_live(follower.member)
            and follower.end >= max(self.start, self.replicated_end)
            and follower.synced >= self.durable_end
            and not self._lags(follower.member, now_ms)
            and not self.room.is_short(follower.member)
        )

    def _shrink(self, leaving: list[Member], view: ClusterView) -> Proposal | None:
        """All at once: one that lags could not wait for another that lags to sync."""
        record = self.record.without(leaving)
        silent = [member for member in leaving if member not in self.room.heard_short]
        if record.isr == (self.me,) and record.resigned is None and any(map(view.is_live, silent)):
            # It may be this broker that nobody reaches. Somebody else tries once, before one replica has to do.
            return self._send(replace(self.record, leader=None, resigned=self.me.broker), (self.me,))
        safe = self._safe_end()
        for member in record.isr:
            ends = self._ends_of(member)
            if ends is None or ends[1] < safe:
                return None  # `sync_wanted` asks for it
        self._shrinking = True
        return self._send(record, (self.me,))

    def admit_weak(self) -> Proposal | None:
        """To be done before the first acks=all that does not wait for a sync: R21 trusts journals without the mark."""
        if self._proposed is not None or self.record.weak:
            return None
        return self._send(replace(self.record, weak=True), (self.me,))

    def resign(self) -> Proposal | None:
        """This broker cannot write or sync (R13): another one is to lead. None while a change is under way."""
        if self._proposed is not None:
            return None
        return self._send(replace(self.record, leader=None, resigned=self.me.broker), (self.me,))

    def _send(self, record: JournalRecord, registered: tuple[Member, ...]) -> Proposal:
        self._proposed = record
        return Proposal(record, self.kept.revision, registered)

    def refused(self) -> None:
        """The change was certainly not made. The record is to be read again before anything else is proposed."""
        self._proposed, self._shrinking = None, False
        self._advance()

    def seen(self, kept: Kept) -> bool:
        """The record as the store has it now; False if this leadership is over. Whatever was under way is decided: a
        change expects the revision that it was made for."""
        if kept.revision <= self.kept.revision:
            return True
        if kept.record.epoch != self.epoch or kept.record.leader != self.me:
            return False
        self.kept = kept
        self._proposed, self._shrinking = None, False
        self._advance()
        return True


def _is_stale(member: Member, view: ClusterView) -> bool:
    """Its broker lives another life by now."""
    registered = view.brokers.get(member.broker)
    return registered is not None and registered.broker_epoch > member.broker_epoch


def _is_gone(member: Member, view: ClusterView) -> bool:
    """Its session has ended. Nobody waits for the lag time to find that out once more."""
    return member.broker in view.brokers and member.broker not in view.live
