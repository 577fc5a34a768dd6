"""What both kinds of group can do: the classic one, in which a member assigns, and that of the consumer protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cairnmq.decision import Ticket
from cairnmq.errors import ErrorCode
from cairnmq.groups.consumer_messages import ConsumerGroupView
from cairnmq.groups.deadlines import Deadline
from cairnmq.groups.messages import Described, GroupDecision, Identity, Join, State, Sync
from cairnmq.groups.offset_messages import OffsetCommit
from cairnmq.groups.topic_view import TopicView

CLASSIC, CONSUMER_PROTOCOL = "classic", "consumer"  # as tools show the kind of a group


class HoldsMemory(Protocol):
    @property
    def held_bytes(self) -> int: ...


class Group(Protocol):
    """`view` is the topics as of now, `out` the decision that the call adds to. A group of the consumer protocol serves
    the requests of classic members too."""

    @property
    def kind(self) -> str: ...

    @property
    def group_id(self) -> str: ...

    @property
    def state(self) -> State: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def since_ms(self) -> int:
        """When it became empty, or was last changed; a date."""
        ...

    @property
    def members(self) -> Mapping[str, HoldsMemory]: ...

    @property
    def pending(self) -> Mapping[str, object]:
        """Member ids that were given and not used yet."""
        ...

    @property
    def unused(self) -> bool:
        """Nobody is in it, nobody is on the way, and it was never stored."""
        ...

    # Its life.

    def resume(self, now_ms: int, view: TopicView) -> None:
        """After a load: every member has a whole session to be heard of."""
        ...

    def abandon(self, error: ErrorCode, out: GroupDecision) -> None:
        """This object ends: requests that wait are responded to, and no deadline of it may act any more."""
        ...

    def expire(self, deadline: Deadline[Any], now_ms: int, view: TopicView, out: GroupDecision) -> None:
        """A time limit of this group has passed."""
        ...

    # Requests of classic members.

    def join(
        self, command: Join, ticket: Ticket, now_ms: int, view: TopicView, fresh_id: str, out: GroupDecision
    ) -> None:
        """`fresh_id` is the member's id if it has none."""
        ...

    def sync(self, command: Sync, ticket: Ticket, now_ms: int, view: TopicView, out: GroupDecision) -> None: ...

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, view: TopicView
    ) -> ErrorCode: ...

    def leave(
        self, identities: Sequence[Identity], ticket: Ticket, now_ms: int, view: TopicView, out: GroupDecision
    ) -> None: ...

    def join_growth(self, command: Join) -> int:
        """How much more would be held after this join, if it is let in."""
        ...

    def sync_growth(self, command: Sync) -> int:
        """How much more would be held after this sync."""
        ...

    # Offsets.

    @property
    def ages_offsets(self) -> bool:
        """Whether offsets of it may become too old now."""
        ...

    def commit_error(self, command: OffsetCommit, now_ms: int) -> ErrorCode:
        """Whether this reader may commit offsets."""
        ...

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether this reader may read committed offsets."""
        ...

    def subscribed(self) -> frozenset[str] | None:
        """Topics that the members read, None if the broker cannot know."""
        ...

    # What tools see: one of the two is None.

    def describe(self) -> Described | None: ...

    def describe_consumers(self) -> ConsumerGroupView | None: ...
