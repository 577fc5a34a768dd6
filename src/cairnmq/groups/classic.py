"""One group of the classic protocol: who is in it, which phase of a rebalance it is in, what each member is answered.

Pure: time and new member ids come in, records and responses go out. What is stored is `record()`, at the end of a
rebalance and when the group becomes empty; `ClassicGroup.load` of it gives this group again, without the requests that
were waiting. The states are a table in `classic_states.py`: each with members falls back to PreparingRebalance when
somebody comes, goes or changes, and from there, with nobody left, the group becomes Empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from cairnmq.decision import Ticket
from cairnmq.errors import ErrorCode
from cairnmq.groups.classic_member import Member, record_of
from cairnmq.groups.classic_roster import ClassicRoster
from cairnmq.groups.classic_states import follow
from cairnmq.groups.consumer_messages import ConsumerGroupView
from cairnmq.groups.deadlines import Deadline, Deadlines, Limit
from cairnmq.groups.group import CLASSIC
from cairnmq.groups.memory_estimate import MEMBER_BYTES, protocols_weight, texts_weight
from cairnmq.groups.messages import Described, GroupDecision, Identity, Join, Joined, Left, Limits, State, Sync, Synced
from cairnmq.groups.offset_messages import OffsetCommit
from cairnmq.groups.stored_group import ClassicRecord, MemberRecord, put
from cairnmq.groups.subscription import CONSUMER
from cairnmq.groups.topic_view import TopicView

GroupMember: TypeAlias = "Member[ClassicGroup]"

_NONE, _UNKNOWN, _REBALANCING = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS


class ClassicGroup:
    kind = CLASSIC

    def __init__(self, group_id: str, limits: Limits, deadlines: Deadlines[ClassicGroup]) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.since_ms = 0
        self.roster: ClassicRoster[ClassicGroup] = ClassicRoster()
        self.members = self.roster.members
        self.pending: dict[str, Deadline[ClassicGroup]] = {}  # ids that were given and not used yet
        self.limits = limits
        self._deadlines = deadlines
        self._initial = False  # this rebalance began in an empty group
        self._came_late = False  # somebody joined since the initial delay began
        self._initial_delay_ms = 0
        self._initial_rest_ms = 0
        self._join_limit: Deadline[ClassicGroup] = Deadline(Limit.JOIN, self)
        self._sync_limit: Deadline[ClassicGroup] = Deadline(Limit.SYNC, self)
        self._subscribed: tuple[int, frozenset[str] | None] = (-1, None)  # computed for a generation

    # ------------------------------------------------------------------------------------------------- stored form

    @classmethod
    def load(
        cls, group_id: str, record: ClassicRecord, limits: Limits, deadlines: Deadlines[ClassicGroup]
    ) -> ClassicGroup:
        """As stored: stable, or empty. Sessions run from `resume` on."""
        group = cls(group_id, limits, deadlines)
        group.generation = record.generation
        group.protocol_type = record.protocol_type
        group.protocol = record.protocol
        group.since_ms = record.since_ms
        for stored in record.members:
            group._add(stored)
        group.roster.leader = record.leader
        group.state = State.STABLE if group.members else State.EMPTY
        return group

    def record(self) -> ClassicRecord:
        return ClassicRecord(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.roster.leader,
            self.since_ms,
            tuple(member.record() for member in self.members.values()),
        )

    def resume(self, now_ms: int, view: TopicView) -> None:
        """After a load: every member has a whole session to be heard of."""
        for member in self.members.values():
            self._touch(member, now_ms)

    def abandon(self, error: ErrorCode, out: GroupDecision) -> None:
        """This object ends: whoever waits is answered, and no deadline of it may act any more."""
        for member in self.members.values():
            self.roster.respond_to_join(member, Joined(error, member.member_id), out)
            self.roster.respond_to_sync(member, Synced(error), out)
            member.session.disarm()
        for deadline in (*self.pending.values(), self._join_limit, self._sync_limit):
            deadline.disarm()

    # ----------------------------------------------------------------------------------------------------- joining

    def join(
        self, command: Join, ticket: Ticket, now_ms: int, view: TopicView, fresh_id: str, out: GroupDecision
    ) -> None:
        """`fresh_id` is the member's id if it has none."""
        if not self._has_room(command.member_id):
            self._forget_pending(command.member_id)
            out.respond(ticket, Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
        elif not self._speaks(command):
            out.respond(ticket, Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, command.member_id))
        elif command.member_id:
            self._rejoin(command, ticket, now_ms, out)
        elif command.instance_id is not None:
            former = self.roster.static.get(command.instance_id)
            if former is None:
                self._enter(command, fresh_id, ticket, now_ms, out)
            else:
                self._replace(command, former, fresh_id, ticket, now_ms, out)
        elif command.needs_id:
            deadline = self.pending[fresh_id] = Deadline(Limit.PENDING, self, fresh_id)
            self._deadlines.arm(deadline, now_ms + command.session_ms)
            out.respond(ticket, Joined(ErrorCode.MEMBER_ID_REQUIRED, fresh_id))
        else:
            self._enter(command, fresh_id, ticket, now_ms, out)

    def join_growth(self, command: Join) -> int:
        """How much more would be held after this join, if it is let in."""
        former = command.member_id or self.roster.named(command.instance_id)
        if former in self.members:
            return self.members[former].growth(command)
        if command.member_id and command.member_id not in self.pending:
            return 0  # nobody knows it
        brought = texts_weight((command.client_id, command.instance_id)) + protocols_weight(command.protocols)
        return MEMBER_BYTES + brought

    def _has_room(self, member_id: str) -> bool:
        if self.state is State.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            # Counted are those who have come: after a lower limit the last ones to rejoin are left out.
            return (member is not None and member.join is not None) or self.roster.joining < self.limits.size_max
        return member is not None or len(self.members) < self.limits.size_max

    def _speaks(self, command: Join) -> bool:
        """Whether one of the protocols is known to every present member."""
        if self.state is State.EMPTY:
            return bool(command.protocol_type and command.protocols)
        return command.protocol_type == self.protocol_type and any(
            self.roster.all_know(name) for name, _ in command.protocols
        )

    def _rejoin(self, command: Join, ticket: Ticket, now_ms: int, out: GroupDecision) -> None:
        if command.member_id in self.pending and command.instance_id is None:
            self._enter(command, command.member_id, ticket, now_ms, out)
            return
        error = self.roster.stranger(command.member_id, command.instance_id)
        if error:
            out.respond(ticket, Joined(error, command.member_id))
            return
        member = self.members[command.member_id]
        unchanged = member.protocols == command.protocols
        # A leader that joins a stable group wants a rebalance: it may have seen new partitions.
        if unchanged and (
            self.state is State.COMPLETING or (self.state is State.STABLE and self.roster.leader != member.member_id)
        ):
            # Most likely it did not get the first answer.
            out.respond(ticket, self._joined(member))
            return
        self._update(member, command)
        self.roster.park_join(member, ticket, out)
        self._rebalance_or_go_on(now_ms, out)

    def _enter(self, command: Join, member_id: str, ticket: Ticket, now_ms: int, out: GroupDecision) -> None:
        if not self.members:
            self.protocol_type = command.protocol_type
        if self.state is State.PREPARING and self._initial:
            self._came_late = True
        self._forget_pending(member_id)
        member = self._add(record_of(command, member_id))
        member.is_new = True
        self.roster.park_join(member, ticket, out)
        self._deadlines.arm(member.session, now_ms + self.limits.new_member_ms)
        self._rebalance_or_go_on(now_ms, out)

    def _replace(
        self, command: Join, former: str, member_id: str, ticket: Ticket, now_ms: int, out: GroupDecision
    ) -> None:
        """A static member came back, with a new id: whoever still uses the old one is fenced from now on."""
        led_by = self.roster.leader or ""
        member = self.members[former]
        self.roster.respond_to_join(member, Joined(ErrorCode.FENCED_INSTANCE_ID, former), out)
        self.roster.respond_to_sync(member, Synced(ErrorCode.FENCED_INSTANCE_ID), out)
        self.roster.rename(member, member_id, Deadline(Limit.SESSION, self, member_id))
        self._update(member, command)
        member.is_new = False
        self._touch(member, now_ms)
        if self.state is State.STABLE and self.roster.elect_protocol() == self.protocol:
            # Nothing that the assignment depends on has changed, as far as a broker can tell.
            out.records.append(put(self.group_id, self.record()))
            is_leader = self.roster.leader == member_id
            if command.may_skip:
                answer = self._joined(member, skip_assignment=is_leader)
            else:
                # An older client that found itself leader would assign anew, and nobody would get that assignment.
                answer = Joined(_NONE, member_id, self.generation, self.protocol_type, self.protocol, led_by)
            out.respond(ticket, answer)
            return
        self.roster.park_join(member, ticket, out)
        self._rebalance_or_go_on(now_ms, out)

    def _rebalance_or_go_on(self, now_ms: int, out: GroupDecision) -> None:
        if self.state is State.PREPARING:
            self._maybe_complete_join(now_ms, out)
        else:
            self._prepare(now_ms, out)

    def rebalance(self, now_ms: int, out: GroupDecision) -> None:
        """For a reason that lies outside of the group."""
        self._prepare(now_ms, out)

    def _prepare(self, now_ms: int, out: GroupDecision) -> None:
        """Members must join again; those who wait for an assignment of this generation will not get one."""
        if self.state is State.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                if member.sync is not None:
                    self.roster.respond_to_sync(member, Synced(_REBALANCING), out)
                    self._touch(member, now_ms)
        self._sync_limit.disarm()
        self._initial = self.state is State.EMPTY
        self.state = follow(self.state, State.PREPARING)
        if self._initial:
            # More members are likely to be on their way: one rebalance for all of them.
            self._came_late = False
            self._initial_delay_ms = self.limits.initial_delay_ms
            self._initial_rest_ms = max(self.roster.rebalance_ms - self._initial_delay_ms, 0)
            if self._initial_delay_ms == 0:
                self._complete_join(now_ms, out)
            else:
                self._deadlines.arm(self._join_limit, now_ms + self._initial_delay_ms)
        elif self._all_joined():
            self._complete_join(now_ms, out)
        else:
            self._deadlines.arm(self._join_limit, now_ms + self.roster.rebalance_ms)

    def _maybe_complete_join(self, now_ms: int, out: GroupDecision) -> None:
        if not self._initial and self._all_joined():
            self._complete_join(now_ms, out)

    def _all_joined(self) -> bool:
        return self.roster.joining == len(self.members) and not self.pending

    def _join_time_is_up(self, now_ms: int, out: GroupDecision) -> None:
        if self._initial and self._came_late and self._initial_rest_ms:
            self._came_late = False
            delay_ms = min(self.limits.initial_delay_ms, self._initial_rest_ms)
            self._initial_rest_ms = max(self._initial_rest_ms - self._initial_delay_ms, 0)
            self._initial_delay_ms = delay_ms
            self._deadlines.arm(self._join_limit, now_ms + delay_ms)
        else:
            self._complete_join(now_ms, out)

    def _complete_join(self, now_ms: int, out: GroupDecision) -> None:
        """A new generation of those who have come; static members keep their place until their session ends."""
        self._join_limit.disarm()
        for member in [one for one in self.members.values() if one.join is None and one.instance_id is None]:
            self.roster.remove(member, out)
        if self.members and not self.roster.elect_leader():
            # Only static members are left, and none of them is here.
            self._deadlines.arm(self._join_limit, now_ms + self.roster.rebalance_ms)
            return
        self._initial = False
        self.generation += 1
        self.since_ms = self._deadlines.date_ms(now_ms)
        self.roster.unsynced.clear()
        if not self.members:
            self.protocol = None
            self.state = follow(self.state, State.EMPTY)
            out.records.append(put(self.group_id, self.record()))
            return
        self.protocol = self.roster.elect_protocol()
        self.state = follow(self.state, State.COMPLETING)
        for member in self.members.values():
            self.roster.respond_to_join(member, self._joined(member), out)
            member.is_new = False
            self._touch(member, now_ms)
        self.roster.unsynced.update(self.members)
        self._deadlines.arm(self._sync_limit, now_ms + self.roster.rebalance_ms)

    def _joined(self, member: GroupMember, *, skip_assignment: bool = False) -> Joined:
        is_leader = self.roster.leader == member.member_id
        return Joined(
            _NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.roster.leader or "",
            skip_assignment,
            [one.joined(self.protocol) for one in self.members.values()] if is_leader else (),
        )

    # ----------------------------------------------------------------------------------------------------- syncing

    def sync(self, command: Sync, ticket: Ticket, now_ms: int, view: TopicView, out: GroupDecision) -> None:
        error = self._sync_error(command)
        if error:
            out.respond(ticket, Synced(error))
            return
        member = self.members[command.member_id]
        self.roster.unsynced.discard(member.member_id)
        if not self.roster.unsynced:
            self._sync_limit.disarm()
        if self.state is State.STABLE:
            out.respond(ticket, self._synced(member))
            self._touch(member, now_ms)
            return
        self.roster.respond_to_sync(member, Synced(_REBALANCING), out)  # an earlier request, whose client asks again
        member.sync = ticket
        if self.roster.leader != member.member_id:
            return
        for one in self.members.values():
            one.assignment = command.assignments.get(one.member_id, b"")
        self.state = follow(self.state, State.STABLE)
        self.since_ms = self._deadlines.date_ms(now_ms)
        out.records.append(put(self.group_id, self.record()))
        for one in self.members.values():
            self.roster.respond_to_sync(one, self._synced(one), out)
            self._touch(one, now_ms)

    def sync_growth(self, command: Sync) -> int:
        """How much more would be held after this sync; only the leader's assignments are kept."""
        if self.roster.leader != command.member_id:
            return 0
        given = command.assignments
        return sum(len(given.get(name, b"")) - len(member.assignment) for name, member in self.members.items())

    def _sync_error(self, command: Sync) -> ErrorCode:
        error = self.roster.stranger(command.member_id, command.instance_id)
        if error:
            return error
        if command.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if command.protocol_type not in (None, self.protocol_type) or command.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return _REBALANCING if self.state is State.PREPARING else _NONE

    def _synced(self, member: GroupMember) -> Synced:
        return Synced(_NONE, self.protocol_type, self.protocol, member.assignment)

    # ------------------------------------------------------------------------------------------- staying and going

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, view: TopicView
    ) -> ErrorCode:
        """The hot path: a dictionary lookup and an assignment."""
        member = self.members.get(member_id)
        if member is None or instance_id is not None:
            error = self.roster.stranger(member_id, instance_id)
            if error:
                return error
            assert member is not None
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._deadlines.arm(member.session, now_ms + member.session_ms)
        return _REBALANCING if self.state is State.PREPARING else _NONE

    def leave(
        self, identities: Sequence[Identity], ticket: Ticket, now_ms: int, view: TopicView, out: GroupDecision
    ) -> None:
        before = len(self.members)
        answers = [(identity, self._leave(identity, out)) for identity in identities]
        if len(self.members) < before:
            self._rebalance_or_go_on(now_ms, out)
        elif self.state is State.PREPARING:
            self._maybe_complete_join(now_ms, out)  # perhaps only a pending id was waited for
        out.respond(ticket, Left(_NONE, answers))

    def _leave(self, identity: Identity, out: GroupDecision) -> ErrorCode:
        member_id = identity.member_id or self.roster.named(identity.instance_id)
        if member_id in self.pending:
            self._forget_pending(member_id)
            return _NONE
        error = self.roster.stranger(member_id, identity.instance_id)
        if not error:
            self.roster.remove(self.members[member_id], out)
        return error

    def expire(self, deadline: Deadline[ClassicGroup], now_ms: int, view: TopicView, out: GroupDecision) -> None:
        """A time limit of this group has passed."""
        if deadline.limit is Limit.JOIN:
            self._join_time_is_up(now_ms, out)
        elif deadline.limit is Limit.SYNC:
            for member in [one for one in self.members.values() if one.member_id in self.roster.unsynced]:
                self.roster.remove(member, out)
            self._prepare(now_ms, out)
        elif deadline.limit is Limit.PENDING:
            self._forget_pending(deadline.member_id)
            if self.state is State.PREPARING:
                self._maybe_complete_join(now_ms, out)
        else:
            member = self.members[deadline.member_id]
            # While a request of it waits it need not send heartbeats; the answer starts a new session. Only the first
            # join has a limit of its own.
            if member.is_new or (member.join is None and member.sync is None):
                self.roster.remove(member, out)
                self._rebalance_or_go_on(now_ms, out)

    def commit_error(self, command: OffsetCommit, now_ms: int) -> ErrorCode:
        """Whether offsets may be committed; a commit keeps its member alive."""
        member_id, generation, transactional = command.member_id, command.generation, command.producer_id is not None
        if generation < 0 and self.state is State.EMPTY:
            return _NONE
        if generation >= 0 or member_id or command.instance_id is not None:
            error = self.roster.stranger(member_id, command.instance_id)
            if error:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return _UNKNOWN  # an administrator, or somebody without a membership, while the group has members
        if self.state is State.COMPLETING:
            return _NONE if transactional else _REBALANCING
        if member_id and not transactional:
            self._touch(self.members[member_id], now_ms)
        return _NONE

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        return _NONE  # only groups of the consumer protocol ask for the member

    @property
    def ages_offsets(self) -> bool:
        """Whether an offset may be too old: not during a rebalance, nor if the broker cannot know what is read."""
        return self.state is State.EMPTY or (self.state is State.STABLE and self.subscribed() is not None)

    # ----------------------------------------------------------------------------------------------------- looking

    @property
    def unused(self) -> bool:
        """Nobody is in it, nobody is on the way, and it was never stored."""
        return self.state is State.EMPTY and not self.pending and self.generation == 0

    def subscribed(self) -> frozenset[str] | None:
        """Topics that the members read, None if the broker cannot know."""
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self._subscribed[0] != self.generation:
            self._subscribed = self.generation, self.roster.subscribed(self.protocol)
        return self._subscribed[1]

    def describe(self) -> Described:
        protocol = self.protocol if self.state is State.STABLE else None
        return Described(
            self.group_id,
            self.state,
            self.protocol_type or "",
            protocol or "",
            [member.described(protocol) for member in self.members.values()],
        )

    def describe_consumers(self) -> ConsumerGroupView | None:
        return None

    # ----------------------------------------------------------------------------------------------------- members

    def _add(self, record: MemberRecord) -> GroupMember:
        member: GroupMember = Member(record, Deadline(Limit.SESSION, self, record.member_id))
        self.roster.add(member)
        return member

    def _update(self, member: GroupMember, command: Join) -> None:
        self.roster.update(member, command)
        self._subscribed = (-1, None)

    def _forget_pending(self, member_id: str) -> None:
        deadline = self.pending.pop(member_id, None)
        if deadline is not None:
            deadline.disarm()

    def _touch(self, member: GroupMember, now_ms: int) -> None:
        self._deadlines.arm(member.session, now_ms + member.session_ms)
