"""A group as it is stored: one keyed fact per group, whose latest value is all that a restart needs.

Stored are the ends of rebalances and the moment a group becomes empty. Joins under way are not: their members ask
again.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from cairnmq.decision import KeyedRecord
from cairnmq.groups.stored_consumer_group import ConsumerRecord

SPACE = "group"


class MemberRecord(Struct, frozen=True, array_like=True):
    """A member at the end of a rebalance. `protocols` are (name, metadata) in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class ClassicRecord(Struct, frozen=True, array_like=True, tag="classic"):
    """A group of the classic protocol; the tag tells it from those of other protocols in the same space.

    `since_ms`: when it was stored. Offsets of a group without members age from then.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    members: tuple[MemberRecord, ...] = ()


GroupRecord: TypeAlias = ClassicRecord | ConsumerRecord

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[GroupRecord] = msgspec.msgpack.Decoder(ClassicRecord | ConsumerRecord)


def put(group_id: str, record: GroupRecord) -> KeyedRecord:
    return SPACE, group_id.encode(), _encoder.encode(record)


def drop(group_id: str) -> KeyedRecord:
    return SPACE, group_id.encode(), None


def decode(value: bytes) -> GroupRecord:
    return _decoder.decode(value)
