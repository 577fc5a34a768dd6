"""One group of the consumer protocol (KIP-848): the server assigns, and members follow at their own pace.

The group's epoch grows when what it must read or who reads it changes. From it follows the target, who should read
what. With every heartbeat a member moves towards it: it gives back first, and gets what nobody has any more. So no
partition ever has two owners, and whoever is not concerned does not stop.

Pure: time, topics and new member ids come in, records and responses go out. Members of the classic protocol in such a
group are in classic_in_consumer.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from cairnmq.decision import Ticket
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups import classic_in_consumer
from cairnmq.groups import partitions as parts
from cairnmq.groups import stored_group as group_record
from cairnmq.groups.assignors import ASSIGNORS, Seat
from cairnmq.groups.consumer_member import ConsumerMember, Progress
from cairnmq.groups.consumer_messages import JOINS, LEAVES, LEAVES_FOR_NOW, ConsumerGroupView, Report
from cairnmq.groups.consumer_roster import ConsumerRoster
from cairnmq.groups.deadlines import Deadline, Deadlines
from cairnmq.groups.group import CONSUMER_PROTOCOL
from cairnmq.groups.messages import Described, GroupDecision, Identity, Join, Limits, Standing, State, Sync
from cairnmq.groups.offset_messages import OffsetCommit
from cairnmq.groups.partitions import NOTHING, Partitions
from cairnmq.groups.stored_consumer_group import ConsumerMemberRecord, ConsumerRecord
from cairnmq.groups.subscribed_topics import SubscribedTopics
from cairnmq.groups.subscription import CONSUMER
from cairnmq.groups.topic_pattern import Patterns
from cairnmq.groups.topic_view import TopicView

GroupMember: TypeAlias = "ConsumerMember[ConsumerGroup]"

NEW = 1  # a group's epoch before anybody has joined, as Kafka has it since 4.3; 0 is what members join with
_SESSION, _INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


class ConsumerGroup:
    kind = CONSUMER_PROTOCOL
    unused = False
    protocol_type = CONSUMER
    ages_offsets = True  # those of topics that nobody in the group reads
    pending: Mapping[str, object] = MappingProxyType({})  # no id waits to be used: members bring their own

    def __init__(
        self, group_id: str, limits: Limits, deadlines: Deadlines[ConsumerGroup], patterns: Patterns | None = None
    ) -> None:
        self.group_id = group_id
        self.limits = limits
        self.epoch = NEW
        self.target_epoch = NEW
        self.since_ms = 0
        self.topics = SubscribedTopics(patterns or Patterns())
        self.roster: ConsumerRoster[ConsumerGroup] = ConsumerRoster(group_id, self.topics)
        self.members = self.roster.members
        self.deadlines = deadlines
        self._stored = ConsumerRecord(0, 0, 0)

    # -------------------------------------------------------------------------------------------------- stored form

    @classmethod
    def load(
        cls,
        group_id: str,
        record: ConsumerRecord,
        members: Iterable[ConsumerMemberRecord],
        limits: Limits,
        deadlines: Deadlines[ConsumerGroup],
        patterns: Patterns | None = None,
    ) -> ConsumerGroup:
        """As stored. Sessions run from `resume` on."""
        group = cls(group_id, limits, deadlines, patterns)
        group.epoch = record.epoch
        group.target_epoch = record.target_epoch
        group.since_ms = record.since_ms
        group.topics.digest = record.topics
        group._stored = record
        for stored in sorted(members, key=lambda row: row.member_id):
            group.roster.add(ConsumerMember.load(stored, group))
        group.roster.forget_changes()
        return group

    def record(self) -> ConsumerRecord:
        return ConsumerRecord(self.epoch, self.target_epoch, self.since_ms, self.topics.digest)

    def flush(self, out: GroupDecision, *, former: bool = False) -> None:
        """The records of everything that has changed. `former`: the group was of another protocol until now, so its
        members count from the moment the header says so."""
        records = self.roster.take_changes()
        header = self.record()
        if former:
            records.append(group_record.put(self.group_id, header))
        elif header != self._stored or len(records) > 1:
            owing = ConsumerRecord(self.epoch, min(self.target_epoch, self.epoch - 1), self.since_ms, header.topics)
            records.insert(0, group_record.put(self.group_id, owing))
            if header != owing:
                records.append(group_record.put(self.group_id, header))
        out.records += records
        self._stored = header

    def resume(self, now_ms: int, view: TopicView) -> None:
        """After a load: every member has a whole session to be heard of, and its whole time to give back."""
        self.topics.resolve(view)
        for member in self.members.values():
            self.touch(member, now_ms, view)
            if member.state is Progress.UNREVOKED and member.classic is None:
                self.deadlines.arm(member.rebalance, now_ms + member.rebalance_ms)

    def abandon(self, error: ErrorCode, out: GroupDecision) -> None:
        """This object ends: no deadline of it may act any more. Nobody waits in it."""
        for member in self.members.values():
            member.disarm()

    # ------------------------------------------------------------------------------------------------ classic members

    def join(
        self, command: Join, ticket: Ticket, now_ms: int, view: TopicView, fresh_id: str, out: GroupDecision
    ) -> None:
        out.respond(ticket, classic_in_consumer.join(self, command, now_ms, view, fresh_id))

    def sync(self, command: Sync, ticket: Ticket, now_ms: int, view: TopicView, out: GroupDecision) -> None:
        out.respond(ticket, classic_in_consumer.sync(self, command, now_ms, view))

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, view: TopicView
    ) -> ErrorCode:
        return classic_in_consumer.heartbeat(self, member_id, instance_id, generation, now_ms, view)

    def leave(
        self, identities: Sequence[Identity], ticket: Ticket, now_ms: int, view: TopicView, out: GroupDecision
    ) -> None:
        out.respond(ticket, classic_in_consumer.leave(self, identities, now_ms, view))

    def join_growth(self, command: Join) -> int:
        return classic_in_consumer.join_growth(self, command)

    def sync_growth(self, command: Sync) -> int:
        return 0  # the broker assigns

    # ---------------------------------------------------------------------------------------------------- heartbeats

    def report(
        self, report: Report, ticket: Ticket, now_ms: int, view: TopicView, fresh_id: str, out: GroupDecision
    ) -> None:
        """`fresh_id` is the member's id if it has none (clients of version 0)."""
        if report.epoch in (LEAVES, LEAVES_FOR_NOW):
            answer = self._leave(report, now_ms, view)
        else:
            answer = self._beat(report, now_ms, view, fresh_id)
        if isinstance(answer, Refusal):
            answer = Standing(answer.code, answer.message)
        out.respond(ticket, answer)

    def _beat(self, report: Report, now_ms: int, view: TopicView, fresh_id: str) -> Standing | Refusal:
        member_id = report.member_id or fresh_id
        refusal = self.full(report.member_id) or self._entry_refusal(report, member_id)
        refusal = refusal or self.topics.refusal(report.regex)
        if refusal is not None:
            return refusal
        member = self.enter(member_id, report.instance_id)
        before = member.assigned
        renewed = self._update(member, report)
        self.advance(member, renewed, report.owned, now_ms, view)
        self.touch(member, now_ms, view)
        whole = report.epoch == JOINS or report.is_full or member.assigned != before
        return Standing(
            ErrorCode.NONE,
            None,
            member.member_id,
            member.epoch,
            self._time(_INTERVAL, view, self.limits.consumer.interval_ms),
            member.assigned if whole else None,
        )

    def full(self, member_id: str) -> Refusal | None:
        size_max = self.limits.consumer.size_max
        if len(self.members) < size_max or (member_id and member_id in self.members):
            return None
        text = f"The consumer group has reached its maximum capacity of {size_max} members."
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, text)

    def _entry_refusal(self, report: Report, member_id: str) -> Refusal | None:
        joins = report.epoch == JOINS
        if report.instance_id is None:
            member = self.members.get(member_id)
            if member is None:
                return None if joins else self.roster.unknown(member_id)
            return _epoch_refusal(member, report)
        holder = self.roster.static.get(report.instance_id)
        if joins:
            if holder is None or holder == member_id:
                return None
            former = self.members[holder]
            if former.classic is None and former.epoch != LEAVES_FOR_NOW:
                text = (
                    f"Static member {member_id} with instance id {report.instance_id} cannot join the group because "
                    f"the instance id is owned by {holder} member."
                )
                return Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, text)
            return None
        return self.roster.stranger(member_id, report.instance_id) or _epoch_refusal(self.members[member_id], report)

    def growth(self, report: Report) -> int:
        """How much more would be held of whoever says this, if it is let in."""
        former = self.roster.known_as(report)
        if former is not None:
            return former.growth(report)
        if report.epoch != JOINS:
            return 0  # it is told to join
        fresh = ConsumerMember(report.member_id, self)
        return fresh.held_bytes + fresh.growth(report)

    def enter(self, member_id: str, instance_id: str | None) -> GroupMember:
        """The member of this id: as it is, new, or as who takes the place of a static member."""
        member = self.members.get(member_id)
        if member is not None:
            return member
        holder = self.roster.static.get(instance_id) if instance_id is not None else None
        member = ConsumerMember(member_id, self)
        if holder is not None:
            former = self.members[holder]
            self.roster.remove(former)
            member.copy(former.record())
            member.epoch = member.previous_epoch = JOINS
        self.roster.add(member)
        return member

    def _update(self, member: GroupMember, report: Report) -> bool:
        """Takes over what a heartbeat says; True if the member subscribes to something else now."""
        said = (
            member.instance_id if report.instance_id is None else report.instance_id,
            member.rack_id if report.rack_id is None else report.rack_id,
            member.rebalance_ms if report.rebalance_ms == -1 else report.rebalance_ms,
            member.assignor if report.assignor is None else report.assignor,
            report.client_id,
            report.client_host,
            None,
        )
        topics = member.topics if report.topics is None else tuple(sorted(set(report.topics)))
        return self.roster.describe(member, said, topics, member.regex if report.regex is None else report.regex)

    # ----------------------------------------------------------------------------------------------------- the target

    def advance(
        self, member: GroupMember, renewed: bool, owned: Partitions | None, now_ms: int, view: TopicView
    ) -> None:
        """The group's epoch, its target and this member's place, as they follow from topics and subscriptions."""
        self.refresh(view, bump=renewed or self.epoch < NEW)
        if self.epoch > self.target_epoch:
            self._assign(view)
        allowed = self.topics.ids(member.topics, member.regex, view) if renewed else None
        before = member.held
        if member.reconcile(
            self.target_epoch, owned, self.roster.owner, None if allowed is None else dict.fromkeys(allowed)
        ):
            self.roster.hold(member, before)
            self.roster.changed(member)
            if member.state is not Progress.UNREVOKED:
                member.rebalance.disarm()
            elif member.classic is None:
                self.deadlines.arm(member.rebalance, now_ms + member.rebalance_ms)

    def refresh(self, view: TopicView, *, bump: bool) -> None:
        """A new epoch if the subscribed topics are not what they were, or for another reason that the caller knows."""
        if bump or not self.topics.is_current(view):
            renewed = self.topics.renew(view)
            if bump or renewed:
                self.epoch += 1

    def subscribed(self) -> frozenset[str]:
        """Topics that the members read."""
        return self.topics.names()

    def _assign(self, view: TopicView) -> None:
        known: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}
        seats = []
        for member in self.members.values():
            key = (member.topics, member.regex)
            if key not in known:
                known[key] = self.topics.ids(*key, view)
            seats.append(Seat(member.member_id, member.instance_id, known[key], member.target))
        counts = {}
        for topic_id in frozenset().union(*known.values()):
            topic = view.topic_by_id(topic_id)
            assert topic is not None, "ids come from this view"
            counts[topic_id] = topic.count
        for member_id, target in ASSIGNORS[self.assignor](seats, counts).items():
            member = self.members[member_id]
            if member.target is not target and member.target != target:
                member.target = target
                self.roster.changed(member)
        self.target_epoch = self.epoch

    @property
    def assignor(self) -> str:
        """The one that most members prefer; those without a wish do not count."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return min(votes, key=lambda name: (-votes[name], name)) if votes else self.limits.consumer.assignors[0]

    # ------------------------------------------------------------------------------------------------------- leaving

    def _leave(self, report: Report, now_ms: int, view: TopicView) -> Standing | Refusal:
        refusal = self.roster.stranger(report.member_id, report.instance_id)
        if refusal is not None:
            return refusal
        member = self.members[report.member_id]
        if report.epoch == LEAVES_FOR_NOW and report.instance_id is not None:
            # It is back within its session, most likely: its partitions wait for it.
            before = member.held
            member.epoch, member.revoking = LEAVES_FOR_NOW, NOTHING
            self.roster.hold(member, before)
            member.rebalance.disarm()
            self.roster.changed(member)
        else:
            self.fence([member], now_ms, view)
        return Standing(ErrorCode.NONE, None, report.member_id, report.epoch)

    def fence(self, members: Iterable[GroupMember], now_ms: int, view: TopicView) -> None:
        """These are out, and whatever they had is free."""
        for member in members:
            self.roster.remove(member)
        if not self.members:
            self.since_ms = self.deadlines.date_ms(now_ms)
        self.refresh(view, bump=True)

    def expire(self, deadline: Deadline[ConsumerGroup], now_ms: int, view: TopicView, out: GroupDecision) -> None:
        """A member has not kept a time limit."""
        member = self.members.get(deadline.member_id)
        if member is not None:
            self.fence([member], now_ms, view)

    # ----------------------------------------------------------------------------------------------------- others' view

    def commit_error(self, command: OffsetCommit, now_ms: int) -> ErrorCode:
        """Whether offsets may be committed."""
        transactional = command.producer_id is not None
        if command.generation < 0 and not self.members:
            return ErrorCode.NONE
        anonymous = not command.member_id and command.instance_id is None
        if transactional and command.generation == -1 and anonymous:
            return ErrorCode.NONE
        member = self.members.get(command.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and member.classic is None and not command.knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        return _commit_epoch_error(member, command.generation)

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether committed offsets may be read; tools read them without saying who they are."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _commit_epoch_error(member, epoch)

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.epoch > self.target_epoch:
            return State.ASSIGNING
        settled = all(member.is_reconciled(self.target_epoch) for member in self.members.values())
        return State.STABLE if settled else State.RECONCILING

    def describe(self) -> Described | None:
        return None

    def describe_consumers(self) -> ConsumerGroupView:
        return ConsumerGroupView(
            self.group_id,
            self.state,
            self.epoch,
            self.target_epoch,
            self.assignor,
            [member.view() for member in self.members.values()],
        )

    # ------------------------------------------------------------------------------------------------------- members

    def touch(self, member: GroupMember, now_ms: int, view: TopicView) -> None:
        """Heard of: its session begins anew."""
        if member.classic is not None:
            session_ms = member.classic.session_ms
        else:
            session_ms = self._time(_SESSION, view, self.limits.consumer.session_ms)
        self.deadlines.arm(member.session, now_ms + session_ms)

    def _time(self, name: str, view: TopicView, default_ms: int) -> int:
        configs = view.group_configs.get(self.group_id)
        return int(configs[name]) if configs and name in configs else default_ms


def _epoch_refusal(member: GroupMember, report: Report) -> Refusal | None:
    """Epoch 0 is taken of a member too: it has given up everything and comes back."""
    if report.epoch in (JOINS, member.epoch):
        return None
    if report.epoch > member.epoch:
        size = "greater"
    elif report.epoch == member.previous_epoch and report.owned is not None and parts.within(
        report.owned, member.assigned
    ):  # fmt: skip
        return None  # the answer with the new epoch was lost
    else:
        size = "smaller"
    text = (
        f"The consumer group member has a {size} member epoch ({report.epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _commit_epoch_error(member: GroupMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
