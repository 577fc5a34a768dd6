"""What readers ask about a group's offsets, and what they are told, without versions and encodings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Never, TypeAlias

from msgspec import Struct

from cairnmq.decision import Decision
from cairnmq.errors import ErrorCode


class Position(Struct, frozen=True, gc=False):
    """How far a reader is in a partition."""

    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetCommit(Struct, frozen=True):
    """Positions of a group's reader, who may be a member of it.

    `producer_id`: the producer whose transaction decides whether they count; None: they count at once. Its epoch and
    that of the transaction's coordinator tell later which transaction it was. `retention_ms`: how long they live, if
    the client says so. `knows_epochs`: the client can tell the epochs of the consumer protocol from generations.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    positions: Sequence[Position] = ()
    producer_id: int | None = None
    retention_ms: int = -1
    knows_epochs: bool = True
    producer_epoch: int = -1
    coordinator_epoch: int = -1


class CommittedPlace(Struct, frozen=True, gc=False):
    """A partition whose offset is to be deleted."""

    topic: str
    topic_id: bytes
    partition: int


class OffsetErrors(Struct, frozen=True):
    """One error for each position or place, in their order; `error` is one that stands for the whole request."""

    errors: Sequence[ErrorCode] = ()
    error: ErrorCode = ErrorCode.NONE

    def unless_stored(self, failed: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> OffsetErrors:
        """The same, if the records could not be stored."""
        return OffsetErrors([error or failed for error in self.errors], self.error)


OffsetDecision: TypeAlias = Decision[OffsetErrors, Never]
