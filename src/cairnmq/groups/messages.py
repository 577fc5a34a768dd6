"""What members ask of a group, and what it answers, without versions and encodings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Never, TypeAlias

from msgspec import Struct

from cairnmq.decision import Decision
from cairnmq.errors import ErrorCode
from cairnmq.groups.partitions import Partitions

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]  # (name, metadata) in order of preference


class State(StrEnum):
    """Kafka's names, as tools show them. Dead is what a group that does not exist is said to be."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"  # of the consumer protocol: the target is older than the group
    RECONCILING = "Reconciling"  # of the consumer protocol: members are on their way to the target
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerLimits(Struct, frozen=True):
    """The broker's settings for groups of the consumer protocol. `assignors`: the first is the default."""

    session_ms: int = 45_000
    interval_ms: int = 5_000
    size_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    may_upgrade: bool = True
    may_downgrade: bool = True


class GroupCounts(Struct, frozen=True, gc=False):
    """How many groups there are, as far as limits go."""

    with_members: int = 0
    with_offsets: int = 0


class Limits(Struct, frozen=True):
    """The broker's settings for groups. `metadata_max`: bytes of a text committed with an offset. All from
    `session_min_ms` to `new_member_ms` are for classic groups. `elsewhere`: what this broker has in other journals."""

    groups_max: int = 100_000
    metadata_max: int = 4096
    session_min_ms: int = 6_000
    session_max_ms: int = 1_800_000
    initial_delay_ms: int = 3_000
    size_max: int = 2**31 - 1
    # A new member does not know its id and cannot send heartbeats while its join is parked; its client may be gone.
    new_member_ms: int = 300_000
    consumer: ConsumerLimits = ConsumerLimits()
    elsewhere: Callable[[], GroupCounts] = GroupCounts

    def room_error(self, group_id: str, *kinds: Collection[str], elsewhere: int = 0) -> ErrorCode:
        """Anyone may name new groups, and each of them is kept. One of two kinds counts twice."""
        is_new = not any(group_id in groups for groups in kinds)
        has_room = sum(map(len, kinds)) + elsewhere < self.groups_max
        return ErrorCode.POLICY_VIOLATION if is_new and not has_room else ErrorCode.NONE


class Join(Struct, frozen=True):
    """`needs_id`: the client understands that it must ask again with the id it is given. `may_skip`: it understands
    being leader without having to assign."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: Protocols
    needs_id: bool = True
    may_skip: bool = True


class Sync(Struct, frozen=True):
    """`protocol_type` and `protocol` are checked if they are given; only the leader's `assignments` count."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = {}


class Identity(Struct, frozen=True):
    """Who is to leave. Without a member id the instance id alone says it (an administrator's request)."""

    member_id: str
    instance_id: str | None = None


class JoinedMember(Struct, frozen=True, gc=False):
    """What the leader must know of a member to assign its part."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(Struct, frozen=True):
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class Synced(Struct, frozen=True):
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Left(Struct, frozen=True):
    """`members`: each identity with the answer to it."""

    error: ErrorCode
    members: Sequence[tuple[Identity, ErrorCode]] = ()


class Standing(Struct, frozen=True):
    """The answer to a heartbeat of the consumer protocol: the epoch that the member is at, and what it may read if that
    has changed."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assigned: Partitions | None = None


Response: TypeAlias = Joined | Synced | Left | Standing
GroupDecision: TypeAlias = Decision[Response, Never]  # nothing is done for a group but storing and responding


class DescribedMember(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Described(Struct, frozen=True):
    """A group as tools see it; metadata and assignments only while it is stable."""

    group_id: str
    state: State
    protocol_type: str
    protocol: str
    members: Sequence[DescribedMember] = ()
