"""The members of a classic group: their names, the protocols they know, who leads, and their requests that wait."""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

from cairnmq.decision import Ticket
from cairnmq.errors import ErrorCode
from cairnmq.groups.classic_member import Member
from cairnmq.groups.deadlines import Deadline
from cairnmq.groups.messages import GroupDecision, Join, Joined, Synced
from cairnmq.groups.subscription import subscribed_topics

G = TypeVar("G")


class ClassicRoster(Generic[G]):
    """`static`: instance id -> member id. `supporters`: protocol -> how many members know it. `joining`: members whose
    join is parked. `unsynced`: members that have not asked for their assignment in this generation."""

    def __init__(self) -> None:
        self.members: dict[str, Member[G]] = {}
        self.static: dict[str, str] = {}
        self.supporters: Counter[str] = Counter()
        self.leader: str | None = None
        self.joining = 0
        self.unsynced: set[str] = set()

    # ------------------------------------------------------------------------------------------------------- looking

    def stranger(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member; a static member that was replaced is fenced."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def named(self, instance_id: str | None) -> str:
        """The id of the static member of this name; empty if there is none."""
        return self.static.get(instance_id or "", "")

    def all_know(self, protocol: str) -> bool:
        return self.supporters[protocol] == len(self.members)

    @property
    def rebalance_ms(self) -> int:
        """The longest that a member may take to join again."""
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def subscribed(self, protocol: str | None) -> frozenset[str] | None:
        """Topics of consumers; None if a subscription cannot be read."""
        found: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(protocol))
            if topics is None:
                return None
            found.update(topics)
        return frozenset(found)

    # ------------------------------------------------------------------------------------------------------ changing

    def add(self, member: Member[G]) -> None:
        self.members[member.member_id] = member
        self.supporters.update({name for name, _ in member.protocols})
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def update(self, member: Member[G], command: Join) -> None:
        self.supporters.subtract({name for name, _ in member.protocols})
        member.update(command)
        self.supporters.update({name for name, _ in member.protocols})

    def rename(self, member: Member[G], member_id: str, session: Deadline[G]) -> None:
        """In place: members keep their order, and the first one may become leader."""
        former = member.member_id
        renamed = {member_id if key == former else key: value for key, value in self.members.items()}
        self.members.clear()
        self.members.update(renamed)
        member.member_id = member_id
        member.session.disarm()
        member.session = session
        assert member.instance_id is not None, "only a static member changes its id"
        self.static[member.instance_id] = member_id
        if self.leader == former:
            self.leader = member_id
        if former in self.unsynced:
            self.unsynced.discard(former)
            self.unsynced.add(member_id)

    def remove(self, member: Member[G], out: GroupDecision) -> None:
        self.respond_to_join(member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, ""), out)
        self.respond_to_sync(member, Synced(ErrorCode.UNKNOWN_MEMBER_ID), out)
        member.session.disarm()
        del self.members[member.member_id]
        self.unsynced.discard(member.member_id)
        self.supporters.subtract({name for name, _ in member.protocols})
        self.supporters += Counter()  # drops what nobody knows any more
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    # ------------------------------------------------------------------------------------------------------ electing

    def elect_leader(self) -> bool:
        """The leader must be somebody who is here; False if nobody is."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            here = next((member for member in self.members.values() if member.join is not None), None)
            if here is None:
                return False
            self.leader = here.member_id
        return True

    def elect_protocol(self) -> str | None:
        """Of the protocols that all members know, the one that most of them like best."""
        known = {name for name, count in self.supporters.items() if count == len(self.members)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in known) for member in self.members.values() if known
        )
        return votes.most_common(1)[0][0] if votes else None

    # --------------------------------------------------------------------------------------------- requests that wait

    def park_join(self, member: Member[G], ticket: Ticket, out: GroupDecision) -> None:
        self.respond_to_join(member, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id), out)  # it asks again
        member.join = ticket
        self.joining += 1

    def respond_to_join(self, member: Member[G], response: Joined, out: GroupDecision) -> None:
        if member.join is not None:
            out.respond(member.join, response)
            member.join = None
            self.joining -= 1

    def respond_to_sync(self, member: Member[G], response: Synced, out: GroupDecision) -> None:
        if member.sync is not None:
            out.respond(member.sync, response)
            member.sync = None
