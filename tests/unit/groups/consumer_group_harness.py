"""One group of the consumer protocol and a clock that only the test moves. Members do what they are told, or not.

Every decision's facts are stored at once, so at any moment `restart` can ask what a broker would find.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from cairnmq.errors import ErrorCode
from cairnmq.groups.consumer_group import ConsumerGroup
from cairnmq.groups.consumer_messages import JOINS, Report
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import (
    ConsumerLimits,
    GroupDecision,
    Identity,
    Join,
    Joined,
    Limits,
    Standing,
    Sync,
    Synced,
)
from cairnmq.groups.offsets import SPACE as OFFSET_SPACE
from cairnmq.groups.offsets import Offsets
from cairnmq.groups.partitions import NOTHING, Partitions, each
from cairnmq.groups.stored_consumer_group import MEMBER_SPACE
from cairnmq.groups.stored_group import SPACE
from cairnmq.groups.subscription import partitions_of, read_assignment
from cairnmq.testing.fake_topics import FakeTopics
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import ConsumerProtocolSubscription

GROUP = "g"
SESSION_MS, REBALANCE_MS = 10_000, 30_000
LIMITS = Limits(initial_delay_ms=0, consumer=ConsumerLimits(session_ms=SESSION_MS))


class Hall:
    def __init__(self, limits: Limits = LIMITS, partitions: int = 4) -> None:
        self.limits = limits
        self.groups = Groups(Offsets(), limits)
        self.topics = FakeTopics()
        self.topics.put("orders", partitions)
        self.now_ms = 1_000_000
        self.stored: dict[tuple[str, bytes], bytes] = {}
        self.answers: dict[object, Any] = {}
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Partitions] = {}
        self._numbers = itertools.count(1)

    # What members say. Without anything said, a heartbeat says what a good client would.

    def join(self, name: str, *topics: str, **more: Any) -> Standing:
        subscribed = None if more.get("regex") is not None else list(topics or ("orders",))
        more = {"topics": subscribed, "rebalance_ms": REBALANCE_MS, **more}
        return self.say(name, JOINS, owned=NOTHING, **more)

    def beat(self, name: str, **more: Any) -> Standing:
        return self.say(name, self.epochs[name], **{"owned": self.owned[name], **more})

    def say(self, name: str, epoch: int, **more: Any) -> Standing:
        report = Report(GROUP, name, epoch, f"client-{name}", "/10.0.0.1", **more)
        self.groups.view = self.topics.view
        self.take(self.groups.report(report, name, self.now_ms, f"fresh-{next(self._numbers)}"))
        told = self.answers.pop(name)
        assert isinstance(told, Standing)
        if not told.error and told.epoch > 0:
            self.epochs[name] = told.epoch
            if told.assigned is not None:
                self.owned[name] = told.assigned
        return told

    def settle(self, *names: str) -> None:
        for _ in range(3):
            for name in names:
                assert self.beat(name).error == ErrorCode.NONE

    def numbers(self, name: str, topic: str = "orders") -> list[int]:
        """The partitions that a member has of a topic."""
        known = self.topics.get(topic)
        return sorted(index for topic_id, index in each(self.owned[name]) if known and topic_id == known.topic_id)

    # What members of the classic protocol do.

    def classic_join(self, name: str, member_id: str = "", **more: Any) -> Joined | None:
        owned = more.pop("owned", [])
        rows = [ConsumerProtocolSubscription.TopicPartition(topic="orders", partitions=owned)] if owned else []
        subscription = ConsumerProtocolSubscription(topics=["orders"], owned_partitions=rows)
        metadata = b"\0\1" + b"".join(encode(subscription, 1))
        protocols = more.pop("protocols", (("range", metadata),))
        fields: dict[str, Any] = {"instance_id": None, "protocol_type": "consumer", "needs_id": False, **more}
        command = Join(
            GROUP, member_id, fields.pop("instance_id"), f"client-{name}", "/10.0.0.2", SESSION_MS, REBALANCE_MS,
            fields.pop("protocol_type"), protocols, **fields,
        )  # fmt: skip
        self.groups.view = self.topics.view
        self.take(self.groups.join(command, name, self.now_ms, name))
        joined: Joined | None = self.answers.pop(name, None)
        if joined is not None and not joined.error:
            self.epochs[name] = joined.generation
        return joined

    def classic_sync(self, name: str, assignments: dict[str, bytes] | None = None, **more: Any) -> Synced:
        self.groups.view = self.topics.view
        command = Sync(GROUP, self.epochs[name], name, assignments=assignments or {}, **more)
        self.take(self.groups.sync(command, name, self.now_ms))
        synced: Synced = self.answers.pop(name)
        if not synced.error:
            assignment = read_assignment(synced.assignment)
            assert assignment is not None
            self.owned[name] = partitions_of(assignment.assigned_partitions, self.topics.view)
        return synced

    def classic_beat(self, name: str) -> ErrorCode:
        return self.groups.heartbeat(GROUP, name, None, self.epochs[name], self.now_ms)

    def classic_leave(self, *identities: Identity) -> list[ErrorCode]:
        self.groups.view = self.topics.view
        self.take(self.groups.leave(GROUP, identities, "leave", self.now_ms))
        return [code for _, code in self.answers.pop("leave").members]

    # What happens.

    def pass_time(self, ms: int, *names: str) -> None:
        """Time passes in steps of a second; these members send heartbeats."""
        for _ in range(ms // 1000):
            self.now_ms += 1000
            self.groups.view = self.topics.view
            for _, decision in self.groups.advance(self.now_ms):
                self.take(decision)
            for name in names:
                self.beat(name)

    def restart(self) -> None:
        def rows(wanted: str) -> Sequence[tuple[bytes, bytes]]:
            return [(key, value) for (space, key), value in self.stored.items() if space == wanted]

        self.groups = Groups.load(rows(SPACE), Offsets.load(rows(OFFSET_SPACE)), self.limits, rows(MEMBER_SPACE))
        self.groups.view = self.topics.view
        self.groups.resume(self.now_ms)

    def take(self, decision: GroupDecision) -> None:
        for fact in decision.records:
            self.groups.apply(fact)
            space, key, value = fact
            if value is None:
                self.stored.pop((space, key), None)
            else:
                self.stored[space, key] = value
        self.answers |= dict(decision.responses)

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups._live[GROUP]
        assert isinstance(group, ConsumerGroup), "not a group of the consumer protocol"
        return group

    @property
    def kind(self) -> tuple[str, str]:
        (listed,) = self.groups.listed()
        return listed.type, listed.state
