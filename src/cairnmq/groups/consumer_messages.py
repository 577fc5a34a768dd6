"""What members of the consumer protocol (KIP-848) say and are told, without versions and encodings."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairnmq.groups.messages import State
from cairnmq.groups.partitions import Partitions

JOINS, LEAVES, LEAVES_FOR_NOW = 0, -1, -2  # what a member epoch may mean instead of an epoch


class Report(Struct, frozen=True):
    """A member's heartbeat: who it is, and whatever has changed since the last one (None: nothing)."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_ms: int = -1
    topics: Sequence[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def is_full(self) -> bool:
        """A member that is not sure what the coordinator knows says everything."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_ms != -1 and self.owned is not None and subscribes


class ConsumerMemberView(Struct, frozen=True):
    """A member as tools see it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int
    topics: Sequence[str]
    regex: str
    assigned: Partitions
    target: Partitions
    is_classic: bool


class ConsumerGroupView(Struct, frozen=True):
    """A group as tools see it."""

    group_id: str
    state: State
    epoch: int
    target_epoch: int
    assignor: str
    members: Sequence[ConsumerMemberView]
