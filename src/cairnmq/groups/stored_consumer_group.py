"""A group of the consumer protocol as it is stored: a header, and one keyed fact per member.

A change of many facts is not one write, and a crash may keep only the first of them. So a header that owes a target
(`target_epoch` below `epoch`) goes first and the final one last: whatever is found in between, the target is computed
anew. Members of a group whose header says another protocol, or that has none, count for nothing.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cairnmq.decision import KeyedRecord
from cairnmq.groups.partitions import Stored

MEMBER_SPACE = "group-member"


class ConsumerRecord(Struct, frozen=True, array_like=True, tag="consumer"):
    """The header. `since_ms`: when it was last without members. `topics`: a digest of the subscribed topics as they
    were when the epoch was decided."""

    epoch: int
    target_epoch: int
    since_ms: int
    topics: bytes = b""


class ClassicPart(Struct, frozen=True, array_like=True):
    """What is known of a member that speaks the classic protocol."""

    session_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMemberRecord(Struct, frozen=True, array_like=True):
    """A member: what it said of itself, what it should read, and how far it is on the way there."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    topics: tuple[str, ...]
    regex: str
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: int
    assigned: Stored
    revoking: Stored
    target: Stored
    classic: ClassicPart | None = None


class MemberKey(Struct, frozen=True, array_like=True, gc=False):
    group: str
    member_id: str


_encoder = msgspec.msgpack.Encoder()
_keys = msgspec.msgpack.Decoder(MemberKey)
_members = msgspec.msgpack.Decoder(ConsumerMemberRecord)


def put_member(group_id: str, record: ConsumerMemberRecord) -> KeyedRecord:
    return MEMBER_SPACE, _encoder.encode(MemberKey(group_id, record.member_id)), _encoder.encode(record)


def drop_member(group_id: str, member_id: str) -> KeyedRecord:
    return MEMBER_SPACE, _encoder.encode(MemberKey(group_id, member_id)), None


def member_key(key: bytes) -> MemberKey:
    return _keys.decode(key)


def decode_member(value: bytes) -> ConsumerMemberRecord:
    return _members.decode(value)
