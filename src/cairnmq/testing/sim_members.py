"""Members of groups for the simulator: clients of both protocols that know only what they were answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from cairnmq.errors import ErrorCode
from cairnmq.groups.consumer_messages import JOINS, LEAVES, Report
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import GroupDecision, Identity, Join, Joined, Response, Standing, Sync, Synced
from cairnmq.groups.offset_messages import OffsetCommit
from cairnmq.groups.partitions import NOTHING, Partitions, stored
from cairnmq.groups.subscription import partitions_of, read_assignment
from cairnmq.testing.sim_ledger import CLASSIC, CONSUMER, Ledger
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

SESSION_MS, REBALANCE_MS = 6_000, 6_000
OK = ErrorCode.NONE
OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
       ErrorCode.GROUP_ID_NOT_FOUND)  # fmt: skip


class Member:
    """One client of one group. `number`: its generation, or its epoch."""

    kind = ""

    def __init__(self, name: str, group: str, instance: str | None, topics: Sequence[str]) -> None:
        self.name = name
        self.group = group
        self.instance = instance
        self.topics = topics
        self.member_id = name
        self.number = -1
        self.owned: Partitions = NOTHING
        self.asked = 0  # requests so far
        self.waiting = False

    def act(self, groups: Groups, now_ms: int, ledger: Ledger) -> GroupDecision | None:
        """What it does next, if it need not wait for an answer."""
        raise NotImplementedError

    def leave(self, groups: Groups, now_ms: int) -> GroupDecision:
        raise NotImplementedError

    def hear(self, answer: Response, groups: Groups, ledger: Ledger) -> None:
        raise NotImplementedError

    def out(self) -> None:
        """It is no member (any more)."""
        self.owned, self.number = NOTHING, -1

    def forget(self) -> None:
        """The broker went away: no answer will come."""
        self.asked += 1
        self.waiting = False

    def is_current(self, groups: Groups) -> bool:
        """Whether the group takes what it says for the word of a member."""
        command = OffsetCommit(self.group, self.member_id, self.instance, self.number, producer_id=0)
        return not groups.commits.error(command, 0)

    def ticket(self, groups: Groups, ledger: Ledger) -> Callable[[Response | None], None]:
        self.asked += 1
        self.waiting = True
        asked = self.asked

        def deliver(answer: Response | None) -> None:
            if asked != self.asked:
                return
            self.waiting = False
            if answer is not None:
                self.hear(answer, groups, ledger)

        return deliver


class ConsumerMember(Member):
    """Of the consumer protocol: every heartbeat says everything."""

    kind = CONSUMER

    def __init__(self, name: str, group: str, instance: str | None, topics: Sequence[str]) -> None:
        super().__init__(name, group, instance, topics)
        self.number = JOINS

    def act(self, groups: Groups, now_ms: int, ledger: Ledger) -> GroupDecision:
        owned = NOTHING if self.number == JOINS else self.owned
        report = Report(
            self.group, self.member_id, self.number, self.name, "/host", self.instance, None, REBALANCE_MS,
            self.topics, None, None, owned,
        )  # fmt: skip
        return groups.report(report, self.ticket(groups, ledger), now_ms, f"{self.name}-{self.asked}")

    def leave(self, groups: Groups, now_ms: int) -> GroupDecision:
        return groups.report(Report(self.group, self.member_id, LEAVES, instance_id=self.instance), None, now_ms, "")

    def hear(self, answer: Response, groups: Groups, ledger: Ledger) -> None:
        assert isinstance(answer, Standing), answer
        if answer.error in OUT:
            self.out()
        elif answer.error == OK and answer.epoch > 0:
            self.number = answer.epoch
            ledger.told(self.group, CONSUMER, answer.epoch)
            if answer.assigned is not None:
                self.owned = answer.assigned

    def out(self) -> None:
        super().out()
        self.number = JOINS


class ClassicMember(Member):
    """Of the classic protocol; gives everything up before it joins."""

    kind = CLASSIC

    def __init__(self, name: str, group: str, instance: str | None, topics: Sequence[str]) -> None:
        super().__init__(name, group, instance, topics)
        self.member_id = ""
        self.joined: Joined | None = None  # it has yet to ask for its assignment

    def act(self, groups: Groups, now_ms: int, ledger: Ledger) -> GroupDecision | None:
        if self.waiting:
            return None
        if self.joined is not None:
            given = self._assignments(self.joined, groups) if self.joined.leader == self.member_id else {}
            command = Sync(self.group, self.number, self.member_id, self.instance, assignments=given)
            return groups.sync(command, self.ticket(groups, ledger), now_ms)
        if self.number >= 0:
            error = groups.heartbeat(self.group, self.member_id, self.instance, self.number, now_ms)
            if error == OK:
                return None
            if error in OUT:
                self.out()
        self.owned = NOTHING
        metadata = b"\0\1" + b"".join(encode(ConsumerProtocolSubscription(topics=list(self.topics)), 1))
        join = Join(
            self.group, self.member_id, self.instance, self.name, "/host", SESSION_MS, REBALANCE_MS, "consumer",
            (("range", metadata),),
        )  # fmt: skip
        return groups.join(join, self.ticket(groups, ledger), now_ms, f"{self.name}-{self.asked}")

    def _assignments(self, joined: Joined, groups: Groups) -> dict[str, bytes]:
        """As leader: partition n to member n, whatever they subscribe to."""
        given = {}
        for number, member in enumerate(joined.members):
            rows = [
                ConsumerProtocolAssignment.TopicPartition(
                    topic=topic.name, partitions=list(range(number, topic.count, len(joined.members)))
                )
                for topic in groups.view.topics.values()
            ]
            message = ConsumerProtocolAssignment(assigned_partitions=rows)
            given[member.member_id] = b"\0\1" + b"".join(encode(message, 1))
        return given

    def leave(self, groups: Groups, now_ms: int) -> GroupDecision:
        return groups.leave(self.group, [Identity(self.member_id, self.instance)], None, now_ms)

    def hear(self, answer: Response, groups: Groups, ledger: Ledger) -> None:
        if isinstance(answer, Joined):
            if answer.error in (OK, ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = answer.member_id
            if answer.error == OK:
                self.number, self.joined = answer.generation, answer
        elif isinstance(answer, Synced):
            self.joined = None
            if answer.error == OK:
                ledger.told(self.group, CLASSIC, self.number)
                assignment = read_assignment(answer.assignment)
                assert assignment is not None
                self.owned = partitions_of(assignment.assigned_partitions, groups.view)
        assert isinstance(answer, Joined | Synced), answer
        if answer.error in OUT:
            self.out()

    def out(self) -> None:
        super().out()
        self.member_id, self.joined = "", None

    def forget(self) -> None:
        super().forget()
        self.joined = None


def new_member(rng: Random, number: int, groups: Sequence[str], topics: Sequence[str]) -> Member:
    kind = rng.choice((ClassicMember, ConsumerMember, ConsumerMember))
    instance = f"i{rng.randrange(2)}" if rng.random() < 0.2 else None
    return kind(f"m{number}", rng.choice(groups), instance, tuple(topics))


def owners(members: Sequence[Member], groups: Groups) -> dict[tuple[str, bytes, int], list[str]]:
    """Who of the members that their groups take for current reads what."""
    found: dict[tuple[str, bytes, int], list[str]] = {}
    for member in members:
        if member.is_current(groups):
            for topic_id, indexes in stored(member.owned):
                for index in indexes:
                    found.setdefault((member.group, topic_id, index), []).append(member.name)
    return found
