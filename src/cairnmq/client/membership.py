"""One member of a consumer group by the consumer protocol (KIP-848): the coordinator assigns, the member follows.

Pure; session.py says what a plan is.

A member reports with heartbeats. Each response may name the partitions it should own; it stops reading what is no
longer among them, says so with the next heartbeat, and only then may another member have those.
"""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.client.errors import Refused
from cairnmq.client.session import Plan, Session
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition
from cairnmq.wire.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

JOINING, LEAVING = 0, -1  # epochs that say so
REBALANCE_TIMEOUT_MS = 60_000  # how long this member may take to give partitions up
_REMOVED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class Member:
    """What a member knows, and what it says next. `owned` is what it reads, `target` what the group wants it to."""

    def __init__(self, group: str, member_id: str, topics: Iterable[str]) -> None:
        self.group = group
        self.member_id = member_id
        self.epoch = JOINING
        self.owned: frozenset[tuple[bytes, int]] = frozenset()
        self.target: frozenset[tuple[bytes, int]] = frozenset()
        self.removals = 0  # times that the group went on without it
        self._topics = sorted(topics)
        self._reported: tuple[object, object] | None = None  # what the coordinator has confirmed
        self._next = 0.0

    def subscribe(self, topics: Iterable[str]) -> None:
        self._topics = sorted(topics)

    def due(self, now: float) -> bool:
        """Time for a heartbeat, or something to say that should not wait for it."""
        return now >= self._next or self._reported != (self._topics, self.owned)

    def follow(self) -> None:
        """Reading has stopped where it should, and may begin where it should."""
        self.owned = self.target

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Only what has changed, except when it joins."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, rebalance_timeout_ms=-1
        )
        topics, owned = self._reported or (None, None)
        if self.epoch == JOINING:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        if topics != self._topics or self.epoch == JOINING:
            request.subscribed_topic_names = self._topics
        if owned != self.owned or self.epoch == JOINING:
            by_topic: dict[bytes, list[int]] = {}
            for topic_id, index in sorted(self.owned):
                by_topic.setdefault(topic_id, []).append(index)
            rows = ConsumerGroupHeartbeatRequest.TopicPartitions
            request.topic_partitions = [rows(topic_id=each, partitions=found) for each, found in by_topic.items()]
        return request

    def sent(self) -> None:
        """Until the response is here nothing is confirmed: after a lost one all is said again."""
        self._reported = None

    def received(self, response: ConsumerGroupHeartbeatResponse, said: tuple[object, object], now: float) -> None:
        """`said` is what `state` was when the request was made."""
        if response.error_code in _REMOVED:
            self.epoch, self.owned, self.target = JOINING, frozenset(), frozenset()
            self.removals += 1
            return
        if response.error_code:
            raise Refused(response.error_code, f"group {self.group}", response.error_message)
        self.epoch = response.member_epoch
        self._reported = said
        self._next = now + response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            self.target = frozenset((row.topic_id, index) for row in rows for index in row.partitions)

    @property
    def state(self) -> tuple[object, object]:
        return self._topics, self.owned


def heartbeat(session: Session, member: Member, now: float) -> Plan[None]:
    """Joins with the first one."""

    def attempt() -> Plan[None]:
        node = yield from session.coordinator(member.group)
        request, said = member.request(), member.state
        member.sent()
        response = yield from session.ask(node, request, ConsumerGroupHeartbeatResponse)
        member.received(response, said, now)

    yield from session.retrying(attempt)


def leave(session: Session, member: Member) -> Plan[None]:
    """Asked once: whoever does not hear it finds out when the session of the member times out."""
    node = yield from session.coordinator(member.group)
    request = ConsumerGroupHeartbeatRequest(
        group_id=member.group, member_id=member.member_id, member_epoch=LEAVING, rebalance_timeout_ms=-1
    )
    yield from session.ask(node, request, ConsumerGroupHeartbeatResponse)


def named(session: Session, partitions: Iterable[tuple[bytes, int]]) -> Plan[list[TopicPartition]]:
    """Assignments name topics by id; one that was deleted meanwhile is left out."""
    wanted = sorted(partitions)
    if any(not session.name_of("", topic_id) for topic_id, _ in wanted):
        yield from session.retrying(lambda: session.metadata(None))
    found = [TopicPartition(session.name_of("", topic_id), index) for topic_id, index in wanted]
    return [place for place in found if place.topic]
