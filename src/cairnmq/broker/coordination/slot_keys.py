"""Which slot a coordinator's fact belongs to: that of its group or transactional id, which its key says."""

from __future__ import annotations

from cairnmq.codec.crc32c import crc32c
from cairnmq.groups.offsets import SPACE as OFFSET_SPACE
from cairnmq.groups.offsets import group_of as group_of_offset
from cairnmq.groups.pending import SPACE as PENDING_SPACE
from cairnmq.groups.pending import group_of as group_of_pending
from cairnmq.groups.stored_consumer_group import MEMBER_SPACE, member_key
from cairnmq.groups.stored_group import SPACE as GROUP_SPACE
from cairnmq.transactions.record import SPACE as TRANSACTION_SPACE
from cairnmq.types import SlotPlace, Slots


def owner_of(space: str, key: bytes) -> bytes | None:
    """The group or transactional id; None: a fact of the node, which is in no slot."""
    if space == OFFSET_SPACE:
        return group_of_offset(key).encode()
    if space in (GROUP_SPACE, TRANSACTION_SPACE):
        return key
    if space == MEMBER_SPACE:
        return member_key(key).group.encode()
    return group_of_pending(key).encode() if space == PENDING_SPACE else None


def place_of(slots: Slots, space: str, key: bytes) -> SlotPlace | None:
    owner = owner_of(space, key)
    return slots.of(crc32c(owner)) if owner is not None else None
