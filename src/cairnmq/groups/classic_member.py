"""A member of a classic group, with the requests of it that wait."""

from __future__ import annotations

from typing import Generic, TypeVar

from cairnmq.decision import Ticket
from cairnmq.groups.deadlines import Deadline
from cairnmq.groups.memory_estimate import MEMBER_BYTES, protocols_weight, texts_weight
from cairnmq.groups.messages import DescribedMember, Join, JoinedMember, Protocols
from cairnmq.groups.stored_group import MemberRecord

G = TypeVar("G")


class Member(Generic[G]):
    __slots__ = (
        "member_id", "instance_id", "client_id", "client_host", "session_ms", "rebalance_ms", "protocols",
        "assignment", "is_new", "join", "sync", "session",
    )  # fmt: skip

    def __init__(self, record: MemberRecord, session: Deadline[G]) -> None:
        self.member_id = record.member_id
        self.instance_id = record.instance_id
        self.client_id = record.client_id
        self.client_host = record.client_host
        self.session_ms = record.session_ms
        self.rebalance_ms = record.rebalance_ms
        self.protocols: Protocols = record.protocols
        self.assignment = record.assignment
        self.session = session
        self.is_new = False  # its first join is not answered yet
        self.join: Ticket | None = None
        self.sync: Ticket | None = None

    def update(self, command: Join) -> None:
        self.protocols = command.protocols
        self.session_ms = command.session_ms
        self.rebalance_ms = command.rebalance_ms
        self.client_id = command.client_id
        self.client_host = command.client_host

    @property
    def held_bytes(self) -> int:
        named = texts_weight((self.member_id, self.instance_id, self.client_id))
        return MEMBER_BYTES + named + protocols_weight(self.protocols) + len(self.assignment)

    def growth(self, command: Join) -> int:
        """How much more it would hold after this join; its assignment is not part of that."""
        grown = texts_weight((command.client_id,)) + protocols_weight(command.protocols)
        return grown - texts_weight((self.client_id,)) - protocols_weight(self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def record(self) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_ms,
            self.rebalance_ms,
            self.protocols,
            self.assignment,
        )

    def joined(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))

    def described(self, protocol: str | None) -> DescribedMember:
        """Without a protocol there is no agreement yet, so neither metadata nor an assignment to show."""
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol is None else self.metadata(protocol),
            b"" if protocol is None else self.assignment,
        )


def record_of(command: Join, member_id: str) -> MemberRecord:
    """A member that has just come."""
    return MemberRecord(
        member_id,
        command.instance_id,
        command.client_id,
        command.client_host,
        command.session_ms,
        command.rebalance_ms,
        command.protocols,
        b"",
    )
