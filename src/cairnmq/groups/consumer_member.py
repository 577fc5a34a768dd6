"""A member of a group of the consumer protocol, and how it moves from what it reads to what it should read.

A member is at an epoch: it has acknowledged what it was given up to there. Partitions that it must give back stay its
own until it no longer reports them, and what others still own is not given to it.

    STABLE ----new target----> UNREVOKED ----gave back----> UNRELEASED ----others gave back----> STABLE
                               (old epoch)                  (new epoch)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Generic, TypeVar

from cairnmq.groups import partitions as parts
from cairnmq.groups.consumer_messages import ConsumerMemberView, Report
from cairnmq.groups.deadlines import Deadline, Limit
from cairnmq.groups.memory_estimate import MEMBER_BYTES, protocols_weight, texts_weight
from cairnmq.groups.partitions import NOTHING, Partitions
from cairnmq.groups.stored_consumer_group import ClassicPart, ConsumerMemberRecord

G = TypeVar("G")

Owner = Callable[[bytes, int], "str | None"]


class Progress(IntEnum):
    """How far a member is. The numbers are stored."""

    STABLE = 0
    UNREVOKED = 1  # it has partitions that it must give back
    UNRELEASED = 2  # it waits for partitions that others have not given back


class ConsumerMember(Generic[G]):
    __slots__ = (
        "member_id", "instance_id", "rack_id", "client_id", "client_host", "rebalance_ms", "topics", "regex",
        "assignor", "epoch", "previous_epoch", "state", "assigned", "revoking", "target", "classic",
        "session", "rebalance", "join", "sync",
    )  # fmt: skip

    def __init__(self, member_id: str, group: G) -> None:
        self.member_id = member_id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_ms = -1
        self.topics: tuple[str, ...] = ()
        self.regex = ""
        self.assignor: str | None = None
        self.epoch = 0
        self.previous_epoch = 0
        self.state = Progress.STABLE
        self.assigned: Partitions = NOTHING
        self.revoking: Partitions = NOTHING
        self.target: Partitions = NOTHING
        self.classic: ClassicPart | None = None
        self.session = Deadline(Limit.SESSION, group, member_id)
        self.rebalance = Deadline(Limit.REBALANCE, group, member_id)  # it must give back what it is asked for
        self.join = Deadline(Limit.JOIN, group, member_id)  # a classic member must come back
        self.sync = Deadline(Limit.SYNC, group, member_id)  # a classic member must ask for its assignment

    @property
    def held_bytes(self) -> int:
        """What it brought; partitions are the broker's doing."""
        named = texts_weight((self.member_id, self.instance_id, self.rack_id, self.client_id, self.regex))
        brought = 0 if self.classic is None else protocols_weight(self.classic.protocols)
        return MEMBER_BYTES + named + texts_weight(self.topics) + brought

    def growth(self, report: Report) -> int:
        """How much more it would hold after this heartbeat; what that does not say is kept."""
        told = (report.member_id or None, report.instance_id, report.rack_id, report.client_id, report.regex)
        held = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.regex)
        grown = texts_weight(told)
        grown -= texts_weight(had for had, now in zip(held, told, strict=True) if now is not None)
        if report.topics is not None:
            grown += texts_weight(set(report.topics)) - texts_weight(self.topics)
        return grown

    @classmethod
    def load(cls, record: ConsumerMemberRecord, group: G) -> ConsumerMember[G]:
        member = cls(record.member_id, group)
        member.copy(record)
        return member

    def copy(self, record: ConsumerMemberRecord) -> None:
        """All but the id: a static member that comes back has a new one."""
        self.instance_id = record.instance_id
        self.rack_id = record.rack_id
        self.client_id = record.client_id
        self.client_host = record.client_host
        self.rebalance_ms = record.rebalance_ms
        self.topics = record.topics
        self.regex = record.regex
        self.assignor = record.assignor
        self.epoch = record.epoch
        self.previous_epoch = record.previous_epoch
        self.state = Progress(record.state)
        self.assigned = parts.gathered(record.assigned)
        self.revoking = parts.gathered(record.revoking)
        self.target = parts.gathered(record.target)
        self.classic = record.classic

    def record(self) -> ConsumerMemberRecord:
        return ConsumerMemberRecord(
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_ms,
            self.topics,
            self.regex,
            self.assignor,
            self.epoch,
            self.previous_epoch,
            int(self.state),
            parts.stored(self.assigned),
            parts.stored(self.revoking),
            parts.stored(self.target),
            self.classic,
        )

    def disarm(self) -> None:
        for deadline in (self.session, self.rebalance, self.join, self.sync):
            deadline.disarm()

    @property
    def held(self) -> Partitions:
        """What nobody else may have."""
        return parts.union(self.assigned, self.revoking) if self.revoking else self.assigned

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is Progress.STABLE and self.epoch == target_epoch

    def view(self) -> ConsumerMemberView:
        return ConsumerMemberView(
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.epoch,
            self.topics,
            self.regex,
            self.assigned,
            self.target,
            self.classic is not None,
        )

    # ------------------------------------------------------------------------------------------------ reconciliation

    def reconcile(
        self, target_epoch: int, owned: Partitions | None, owner: Owner, allowed: Mapping[bytes, object] | None
    ) -> bool:
        """One step towards the target. `owned` is what the member says it has, None if it does not say; `allowed`, if
        its subscription has just changed, are the topics of the new one. True if anything is another now."""
        before = (self.epoch, self.state, self.assigned, self.revoking)
        if self.state is Progress.STABLE and self.epoch == target_epoch:
            if allowed is not None:
                self._give_up(allowed, owned)
        elif self.state is Progress.UNREVOKED and _still_has(owned, self.revoking):
            if allowed is not None:
                self._give_up(allowed, owned)
        else:
            self._go_on(target_epoch, owned, owner)
        if before == (self.epoch, self.state, self.assigned, self.revoking):
            return False
        # The answer may be lost on the way, so the epoch before is still taken: that one, and none older.
        self.previous_epoch = before[0]
        return True

    def _go_on(self, target_epoch: int, owned: Partitions | None, owner: Owner) -> None:
        kept = parts.common(self.assigned, self.target)
        abandoned = parts.minus(self.assigned, self.target)
        if abandoned and _still_has(owned, abandoned):
            self.state, self.assigned, self.revoking = Progress.UNREVOKED, kept, abandoned
            return
        wanted = parts.minus(self.target, kept)
        free = parts.gathered(
            (topic_id, [index for index in indexes if owner(topic_id, index) in (None, self.member_id)])
            for topic_id, indexes in wanted.items()
        )
        self.state = Progress.STABLE if parts.count(free) == parts.count(wanted) else Progress.UNRELEASED
        self.assigned, self.revoking = parts.union(kept, free), NOTHING
        self.epoch = target_epoch

    def _give_up(self, allowed: Mapping[bytes, object], owned: Partitions | None) -> None:
        """What it no longer subscribes to goes at once, without waiting for a new target."""
        gone = {topic_id: indexes for topic_id, indexes in self.assigned.items() if topic_id not in allowed}
        if not gone:
            return
        self.assigned = parts.minus(self.assigned, gone)
        revoking = parts.union(self.revoking, gone)
        if _still_has(owned, revoking):
            self.state, self.revoking = Progress.UNREVOKED, revoking

    def waits(self, owner: Owner) -> bool:
        """Whether something that it should read is still with another member."""
        wanted = parts.minus(self.target, self.assigned)
        return any(owner(*place) not in (None, self.member_id) for place in parts.each(wanted))


def _still_has(owned: Partitions | None, revoked: Partitions) -> bool:
    """A member that does not say what it has may have everything."""
    return owned is None or not parts.disjoint(owned, revoked)
