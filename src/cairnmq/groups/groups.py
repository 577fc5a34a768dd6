"""Every group of this broker and its committed offsets. Pure: commands and the time in, decisions out.

`apply` is the only way into what is stored, and `load` of that gives the same groups again. A group whose facts could
not be stored is put back to what was (`reload`), as if the broker had restarted for this one group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from cairnmq.decision import Decision, KeyedRecord, Ticket
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups import stored_group
from cairnmq.groups.classic import ClassicGroup
from cairnmq.groups.consumer_group import ConsumerGroup
from cairnmq.groups.consumer_messages import JOINS, ConsumerGroupView, Report
from cairnmq.groups.deadlines import Deadlines
from cairnmq.groups.group import CLASSIC, CONSUMER_PROTOCOL, Group
from cairnmq.groups.memory_estimate import DEADLINE_BYTES
from cairnmq.groups.messages import (
    Described,
    GroupDecision,
    Identity,
    Join,
    Joined,
    Left,
    Limits,
    Standing,
    State,
    Sync,
    Synced,
)
from cairnmq.groups.migration import downgraded, emptied, may_downgrade, upgraded
from cairnmq.groups.offset_commits import OffsetCommits
from cairnmq.groups.offsets import Offsets
from cairnmq.groups.pending import SPACE as PENDING_SPACE
from cairnmq.groups.pending import PendingOffsets
from cairnmq.groups.stored_consumer_group import MEMBER_SPACE, decode_member, drop_member, member_key
from cairnmq.groups.topic_pattern import Patterns
from cairnmq.groups.topic_view import NoTopics, TopicView


class Listed(Struct, frozen=True, gc=False):
    group_id: str
    protocol_type: str
    state: State
    type: str = CLASSIC
    members: int = 0


class Groups:
    """`view`: the topics as of now, set by whoever calls."""

    def __init__(self, offsets: Offsets, limits: Limits) -> None:
        self.offsets = offsets
        self.limits = limits
        self.view: TopicView = NoTopics()
        self.pending = PendingOffsets()
        self._stored: dict[str, bytes] = {}
        self._stored_members: dict[str, dict[str, bytes]] = {}  # of groups of the consumer protocol
        self._live: dict[str, Group] = {}
        self._deadlines: Deadlines[Any] = Deadlines()  # of groups of either kind
        self._patterns = Patterns()
        self.commits = OffsetCommits(self._live, offsets, self.pending, limits, self._deadlines)

    # ------------------------------------------------------------------------------------------------- stored form

    @classmethod
    def load(
        cls,
        stored: Iterable[tuple[bytes, bytes]],
        offsets: Offsets,
        limits: Limits,
        members: Iterable[tuple[bytes, bytes]] = (),
    ) -> Groups:
        groups = cls(offsets, limits)
        for key, value in stored:
            groups.apply((stored_group.SPACE, key, value))
        for key, value in members:
            groups.apply((MEMBER_SPACE, key, value))
        for group_id, value in groups._stored.items():
            groups._live[group_id] = groups._load(group_id, value)
        return groups

    def _load(self, group_id: str, value: bytes) -> Group:
        found = stored_group.decode(value)
        if isinstance(found, stored_group.ClassicRecord):
            return ClassicGroup.load(group_id, found, self.limits, self._deadlines)
        members = map(decode_member, self._stored_members.get(group_id, {}).values())
        return ConsumerGroup.load(group_id, found, members, self.limits, self._deadlines, self._patterns)

    def orphaned_members(self) -> list[KeyedRecord]:
        """What a crash in the middle of a change left behind: members of no group."""
        return [
            drop_member(group_id, member_id)
            for group_id, members in self._stored_members.items()
            if self._kind(group_id) != CONSUMER_PROTOCOL
            for member_id in members
        ]

    def apply(self, fact: KeyedRecord) -> None:
        space, key, value = fact
        if space == PENDING_SPACE:
            self.pending.apply(fact)
        elif space == MEMBER_SPACE:
            self._apply_member(key, value)
        elif space != stored_group.SPACE:
            self.offsets.apply(fact)
        elif value is None:
            self._stored.pop(key.decode(), None)
        else:
            self._stored[key.decode()] = value

    def _apply_member(self, key: bytes, value: bytes | None) -> None:
        whose = member_key(key)
        if value is not None:
            self._stored_members.setdefault(whose.group, {})[whose.member_id] = value
            return
        members = self._stored_members.get(whose.group, {})
        members.pop(whose.member_id, None)
        if not members:
            self._stored_members.pop(whose.group, None)

    def set_date(self, now_ms: int, wall_ms: int) -> None:
        """The date of a moment of the clock that commands bring."""
        self._deadlines.wall_ahead_ms = wall_ms - now_ms

    def resume(self, now_ms: int) -> None:
        """After a load: the sessions of all members begin."""
        for group in self._live.values():
            group.resume(now_ms, self.view)

    def reload(self, group_id: str, now_ms: int) -> GroupDecision:
        """Back to what is stored; whoever waits in the group is sent to find its coordinator again."""
        out: GroupDecision = Decision()
        group = self._live.pop(group_id, None)
        if group is not None:
            group.abandon(ErrorCode.NOT_COORDINATOR, out)
        value = self._stored.get(group_id)
        if value is not None:
            self._live[group_id] = self._load(group_id, value)
            self._live[group_id].resume(now_ms, self.view)
        return out

    def drain(self, now_ms: int) -> Iterator[tuple[str, GroupDecision]]:
        """The broker stops: nobody should wait for an answer that will not come."""
        for group_id in list(self._live):
            yield group_id, self.reload(group_id, now_ms)

    def held_bytes(self) -> int:
        """What members brought, live and stored, and ids that were given and not used: each has a deadline."""
        live = sum(member.held_bytes for group in self._live.values() for member in group.members.values())
        stored = sum(map(len, self._stored.values()))
        stored += sum(len(value) for members in self._stored_members.values() for value in members.values())
        return live + stored + DEADLINE_BYTES * len(self._deadlines)

    def report_growth(self, report: Report) -> int:
        """How much more would be held after a heartbeat of the consumer protocol."""
        group = self._live.get(report.group_id)
        if not isinstance(group, ConsumerGroup):
            group = ConsumerGroup(report.group_id, self.limits, self._deadlines, self._patterns)
        return group.growth(report)

    def join_growth(self, command: Join) -> int:
        group = self._live.get(command.group_id)
        if group is None or _takes_any_kind(group):
            group = ClassicGroup(command.group_id, self.limits, self._deadlines)
        return group.join_growth(command)

    def sync_growth(self, command: Sync) -> int:
        group = self._live.get(command.group_id)
        return 0 if group is None else group.sync_growth(command)

    # ----------------------------------------------------------------------------------------------------- members

    def join(self, command: Join, ticket: Ticket, now_ms: int, fresh_id: str) -> GroupDecision:
        out: GroupDecision = Decision()
        error = self._join_error(command)
        if error:
            out.respond(ticket, Joined(error, command.member_id))
            return out
        group = self._live.get(command.group_id)
        if isinstance(group, ConsumerGroup) and _takes_any_kind(group):
            self._join_emptied(group, command, ticket, now_ms, fresh_id, out)
            return out
        if group is None:
            group = self._live[command.group_id] = ClassicGroup(command.group_id, self.limits, self._deadlines)
        group.join(command, ticket, now_ms, self.view, fresh_id, out)
        self._settle(group, now_ms, out)
        return out

    def _join_emptied(
        self, group: ConsumerGroup, command: Join, ticket: Ticket, now_ms: int, fresh_id: str, out: GroupDecision
    ) -> None:
        """A member of the classic protocol comes to a group that all others have left."""
        classic = emptied(group, self._deadlines)
        changed_over = stored_group.put(command.group_id, classic.record())
        classic.join(command, ticket, now_ms, self.view, fresh_id, out)
        if classic.members or classic.pending:  # else it was refused, and the group stays what it is
            out.records.insert(0, changed_over)
            self._live[command.group_id] = classic

    def _join_error(self, command: Join) -> ErrorCode:
        if not command.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not self.limits.session_min_ms <= command.session_ms <= self.limits.session_max_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if command.member_id and command.group_id not in self._live:
            return ErrorCode.UNKNOWN_MEMBER_ID
        elsewhere = self.limits.elsewhere().with_members
        return self.limits.room_error(command.group_id, self._live, elsewhere=elsewhere)

    def sync(self, command: Sync, ticket: Ticket, now_ms: int) -> GroupDecision:
        out: GroupDecision = Decision()
        group = self._live.get(command.group_id)
        if group is None:
            out.respond(ticket, Synced(_absent(command.group_id)))
        else:
            group.sync(command, ticket, now_ms, self.view, out)
        return out

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        group = self._live.get(group_id)
        if group is None:
            return _absent(group_id)
        return group.heartbeat(member_id, instance_id, generation, now_ms, self.view)

    def leave(self, group_id: str, identities: Sequence[Identity], ticket: Ticket, now_ms: int) -> GroupDecision:
        out: GroupDecision = Decision()
        group = self._live.get(group_id)
        if group is None:
            error = _absent(group_id)
            if error is ErrorCode.UNKNOWN_MEMBER_ID:  # then it is told of each member, as by a group that exists
                out.respond(ticket, Left(ErrorCode.NONE, [(identity, error) for identity in identities]))
            else:
                out.respond(ticket, Left(error))
        else:
            group.leave(identities, ticket, now_ms, self.view, out)
            self._settle(group, now_ms, out)
        return out

    # -------------------------------------------------------------------------------------------- consumer protocol

    def report(self, report: Report, ticket: Ticket, now_ms: int, fresh_id: str) -> GroupDecision:
        """A heartbeat of the consumer protocol. The first one makes the group, or changes a classic one over."""
        out: GroupDecision = Decision()
        group = self._live.get(report.group_id)
        if isinstance(group, ConsumerGroup):
            group.report(report, ticket, now_ms, self.view, fresh_id, out)
            self._settle(group, now_ms, out)
            return out
        assert group is None or isinstance(group, ClassicGroup), group
        fresh = self._fresh(report, group)
        if isinstance(fresh, Refusal):
            out.respond(ticket, Standing(fresh.code, fresh.message))
            return out
        fresh.report(report, ticket, now_ms, self.view, fresh_id, out)
        ((_, answer),) = out.responses
        if answer.error:
            fresh.abandon(answer.error, out)  # nothing has happened: the group stays what it is
            return out
        if group is not None:
            group.abandon(ErrorCode.REBALANCE_IN_PROGRESS, out)
        out.records += [drop_member(report.group_id, left) for left in self._stored_members.get(report.group_id, ())]
        self._live[report.group_id] = fresh
        fresh.resume(now_ms, self.view)
        fresh.flush(out, former=True)
        return out

    def _fresh(self, report: Report, classic: ClassicGroup | None) -> ConsumerGroup | Refusal:
        if report.epoch != JOINS:
            if classic is None:
                return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {report.group_id} not found.")
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {report.group_id} is not a consumer group.")
        if self.limits.room_error(report.group_id, self._live, elsewhere=self.limits.elsewhere().with_members):
            return Refusal(
                ErrorCode.POLICY_VIOLATION, f"There are {len(self._live)} groups; cairn.groups.max allows no more."
            )
        if classic is not None and classic.members:
            return upgraded(classic, self._deadlines, self._patterns, self.view)
        return ConsumerGroup(report.group_id, self.limits, self._deadlines, self._patterns)

    # -------------------------------------------------------------------------------------------------------- time

    @property
    def wake_ms(self) -> int:
        """When `advance` has something to do."""
        return self._deadlines.wake_ms

    def advance(self, now_ms: int) -> Iterator[tuple[str, GroupDecision]]:
        """What follows from the time alone, group by group."""
        for deadline in self._deadlines.reached(now_ms):
            out: GroupDecision = Decision()
            group: Group = deadline.group
            group.expire(deadline, now_ms, self.view, out)
            self._settle(group, now_ms, out)
            if out.records or out.responses:
                yield group.group_id, out

    def _settle(self, group: Group, now_ms: int, out: GroupDecision) -> None:
        """What a change of a group comes to: records, another kind of group, or no group if nobody ever joined it."""
        if isinstance(group, ConsumerGroup):
            if may_downgrade(group):
                self._downgrade(group, now_ms, out)
            else:
                group.flush(out)
        elif group.unused and self._live.get(group.group_id) is group:
            del self._live[group.group_id]

    def _downgrade(self, group: ConsumerGroup, now_ms: int, out: GroupDecision) -> None:
        """Without speakers of the consumer protocol it is a classic group again."""
        classic = downgraded(group, self._deadlines, now_ms, self.view, out)
        stored = self._stored_members.get(group.group_id, {})
        out.records += [drop_member(group.group_id, left) for left in {**stored, **dict.fromkeys(group.roster.known())}]
        group.abandon(ErrorCode.REBALANCE_IN_PROGRESS, out)
        self._live[group.group_id] = classic

    # ----------------------------------------------------------------------------------------------------- offsets

    def fetch_error(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether such a member may read committed offsets."""
        group = self._live.get(group_id)
        return ErrorCode.NONE if group is None else group.fetch_error(member_id, epoch)

    def expire_offsets(
        self, group_id: str, date_ms: int, retention_ms: int, topic_name: Callable[[bytes], str | None]
    ) -> GroupDecision:
        """What has become too old in a group, and the group itself if nothing is left of it."""
        out: GroupDecision = Decision()
        out.records, kept = self.commits.expired(group_id, date_ms, retention_ms, topic_name)
        group = self._live.get(group_id)
        if group is not None and not kept and group.state is State.EMPTY and not group.pending:
            out.records.append(stored_group.drop(group_id))
            del self._live[group_id]
        return out

    def orphaned(self, topic_ids: frozenset[bytes]) -> list[KeyedRecord]:
        """What must be stored about offsets of topics that are not among these, and about members of no group."""
        return [*self.commits.orphaned(topic_ids), *self.orphaned_members()]

    # ------------------------------------------------------------------------------------------------------ admin

    def _kind(self, group_id: str) -> str | None:
        group = self._live.get(group_id)
        return None if group is None else group.kind

    def exists(self, group_id: str) -> bool:
        """A group exists through its members, or through its offsets."""
        return group_id in self._live or group_id in self.offsets.groups()

    def ids(self) -> Collection[str]:
        return self._live.keys() | self.offsets.groups()

    def listed(self) -> Iterator[Listed]:
        for group_id, group in self._live.items():
            yield Listed(group_id, group.protocol_type or "", group.state, group.kind, len(group.members))
        for group_id in self.offsets.groups():
            if group_id not in self._live:
                yield Listed(group_id, "", State.EMPTY)

    def describe_consumers(self, group_id: str) -> ConsumerGroupView | None:
        """A group of the consumer protocol."""
        group = self._live.get(group_id)
        return None if group is None else group.describe_consumers()

    def describe(self, group_id: str) -> Described | None:
        """A group of the classic protocol, or of none."""
        group = self._live.get(group_id)
        if group is not None:
            return group.describe()
        return Described(group_id, State.EMPTY, "", "") if group_id in self.offsets.groups() else None

    def delete(self, group_id: str) -> tuple[ErrorCode, GroupDecision]:
        """The group and its offsets; it is gone at once, the answer waits for the facts."""
        out: GroupDecision = Decision()
        if not self.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND, out
        group = self._live.get(group_id)
        if group is not None:
            if group.state is not State.EMPTY:
                return ErrorCode.NON_EMPTY_GROUP, out
            group.abandon(ErrorCode.UNKNOWN_MEMBER_ID, out)
            del self._live[group_id]
            out.records.append(stored_group.drop(group_id))
        out.records += self.commits.of_group(group_id)
        return ErrorCode.NONE, out


def _takes_any_kind(group: Group) -> bool:
    """An empty group of the consumer protocol becomes what the next member speaks."""
    return group.kind == CONSUMER_PROTOCOL and not group.members


def _absent(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
