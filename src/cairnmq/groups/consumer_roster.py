"""The members of a group of the consumer protocol: their names, their partitions, and which of them to store."""

from __future__ import annotations

from typing import Generic, TypeVar

from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups import partitions as parts
from cairnmq.groups.consumer_member import ConsumerMember
from cairnmq.groups.consumer_messages import Report
from cairnmq.groups.partitions import NOTHING, Partitions
from cairnmq.groups.stored_consumer_group import drop_member, put_member
from cairnmq.groups.subscribed_topics import SubscribedTopics

G = TypeVar("G")


class ConsumerRoster(Generic[G]):
    """`static`: instance id -> member id. `classic`: how many members speak the classic protocol."""

    def __init__(self, group_id: str, topics: SubscribedTopics) -> None:
        self.members: dict[str, ConsumerMember[G]] = {}
        self.static: dict[str, str] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        self.classic = 0
        self.topics = topics
        self._group_id = group_id
        self._changed: dict[str, None] = {}  # members to store; in order
        self._gone: dict[str, None] = {}

    # ------------------------------------------------------------------------------------------------------- looking

    def unknown(self, member_id: str) -> Refusal:
        text = f"Member {member_id} is not a member of group {self._group_id}."
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, text)

    def stranger(self, member_id: str, instance_id: str | None) -> Refusal | None:
        """None for a member; a static member that was replaced is fenced."""
        if instance_id is None:
            return None if member_id in self.members else self.unknown(member_id)
        holder = self.static.get(instance_id)
        if holder is None:
            return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder != member_id:
            text = f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}."
            return Refusal(ErrorCode.FENCED_INSTANCE_ID, text)
        return None

    def holder(self, instance_id: str) -> ConsumerMember[G] | None:
        """The member that a static name belongs to."""
        member_id = self.static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def known_as(self, report: Report) -> ConsumerMember[G] | None:
        """The member that says this, or whose place it asks for."""
        member = self.members.get(report.member_id)
        return self.holder(report.instance_id) if member is None and report.instance_id is not None else member

    def owner(self, topic_id: bytes, index: int) -> str | None:
        return self.owners.get((topic_id, index))

    @property
    def only_classic(self) -> bool:
        """No member speaks the consumer protocol any more."""
        return bool(self.members) and self.classic == len(self.members)

    # ------------------------------------------------------------------------------------------------------ changing

    def add(self, member: ConsumerMember[G]) -> None:
        self.members[member.member_id] = member
        self.classic += member.classic is not None
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.topics.add(member.topics, member.regex)
        self.hold(member, NOTHING)
        self._changed[member.member_id] = None
        self._gone.pop(member.member_id, None)

    def remove(self, member: ConsumerMember[G]) -> None:
        member.disarm()
        del self.members[member.member_id]
        self.classic -= member.classic is not None
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        self.topics.remove(member.topics, member.regex)
        for place in parts.each(member.held):
            if self.owners.get(place) == member.member_id:
                del self.owners[place]
        self._changed.pop(member.member_id, None)
        self._gone[member.member_id] = None

    def describe(
        self, member: ConsumerMember[G], said: tuple[object, ...], topics: tuple[str, ...], regex: str
    ) -> bool:
        """Sets what a member says of itself; True if its subscription is another now."""
        was_classic, former_name = member.classic is not None, member.instance_id
        fields = ("instance_id", "rack_id", "rebalance_ms", "assignor", "client_id", "client_host", "classic")
        for field, value in zip(fields, said, strict=True):
            if getattr(member, field) != value:
                setattr(member, field, value)
                self.changed(member)
        self.classic += (member.classic is not None) - was_classic
        if former_name is not None and self.static.get(former_name) == member.member_id:
            del self.static[former_name]
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        renewed = topics != member.topics or regex != member.regex
        if renewed:
            self.topics.remove(member.topics, member.regex)
            member.topics, member.regex = topics, regex
            self.topics.add(topics, regex)
            self.changed(member)
        return renewed

    def hold(self, member: ConsumerMember[G], before: Partitions) -> None:
        """The index of owners, after a member's partitions have changed."""
        after = member.held
        for place in parts.each(parts.minus(before, after)):
            if self.owners.get(place) == member.member_id:
                del self.owners[place]
        for place in parts.each(parts.minus(after, before)):
            self.owners[place] = member.member_id

    # ------------------------------------------------------------------------------------------------------- storing

    def changed(self, member: ConsumerMember[G]) -> None:
        """It is to be stored."""
        self._changed[member.member_id] = None

    def known(self) -> list[str]:
        """Members that are stored, or on their way to be, or to be no more."""
        return [*self.members, *self._gone]

    def take_changes(self) -> list[KeyedRecord]:
        """What must be stored of members; from then on they count as stored."""
        records = [drop_member(self._group_id, member_id) for member_id in self._gone]
        records += [put_member(self._group_id, self.members[member_id].record()) for member_id in self._changed]
        self.forget_changes()
        return records

    def forget_changes(self) -> None:
        self._changed.clear()
        self._gone.clear()
