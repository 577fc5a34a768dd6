"""Every group of this broker and its committed offsets. Pure: commands and the time in, decisions out.

`apply` is the only way into what is stored, and `load` of that gives the same groups again. A group whose facts could
not be stored is put back to what was (`reload`), as if the broker had restarted for this one group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from cairnmq.errors import ErrorCode
from cairnmq.groups import offsets as offset_facts
from cairnmq.groups import record
from cairnmq.groups.classic import ClassicGroup, Outcome
from cairnmq.groups.deadlines import Deadlines
from cairnmq.groups.facts import Decision, Fact, Ticket
from cairnmq.groups.messages import Described, Identity, Join, Joined, Left, Limits, State, Sync, Synced
from cairnmq.groups.offsets import OffsetKey, Offsets
from cairnmq.groups.pending import SPACE as PENDING_SPACE
from cairnmq.groups.pending import PendingOffsets
from cairnmq.groups.subscription import CONSUMER

CLASSIC = "classic"


class Listed(Struct, frozen=True, gc=False):
    group_id: str
    protocol_type: str
    state: State
    type: str = CLASSIC
    members: int = 0


class Groups:
    def __init__(self, offsets: Offsets, limits: Limits) -> None:
        self.offsets = offsets
        self.limits = limits
        self.pending = PendingOffsets()
        self._stored: dict[str, bytes] = {}
        self._live: dict[str, ClassicGroup] = {}
        self._deadlines: Deadlines[ClassicGroup] = Deadlines()

    # ------------------------------------------------------------------------------------------------- stored form

    @classmethod
    def load(cls, stored: Iterable[tuple[bytes, bytes]], offsets: Offsets, limits: Limits) -> Groups:
        groups = cls(offsets, limits)
        for key, value in stored:
            groups.apply((record.SPACE, key, value))
        for group_id, value in groups._stored.items():
            groups._live[group_id] = groups._load(group_id, value)
        return groups

    def _load(self, group_id: str, value: bytes) -> ClassicGroup:
        return ClassicGroup.load(group_id, record.decode(value), self.limits, self._deadlines)

    def apply(self, fact: Fact) -> None:
        space, key, value = fact
        if space == PENDING_SPACE:
            self.pending.apply(fact)
        elif space != record.SPACE:
            self.offsets.apply(fact)
        elif value is None:
            self._stored.pop(key.decode(), None)
        else:
            self._stored[key.decode()] = value

    def resume(self, now_ms: int) -> None:
        """After a load: the sessions of all members begin."""
        for group in self._live.values():
            group.resume(now_ms)

    def reload(self, group_id: str, now_ms: int) -> Outcome:
        """Back to what is stored; whoever waits in the group is sent to find its coordinator again."""
        out: Outcome = Decision()
        group = self._live.pop(group_id, None)
        if group is not None:
            group.abandon(ErrorCode.NOT_COORDINATOR, out)
        value = self._stored.get(group_id)
        if value is not None:
            self._live[group_id] = self._load(group_id, value)
            self._live[group_id].resume(now_ms)
        return out

    def drain(self, now_ms: int) -> Iterator[tuple[str, Outcome]]:
        """The broker stops: nobody should wait for an answer that will not come."""
        for group_id in list(self._live):
            yield group_id, self.reload(group_id, now_ms)

    # ----------------------------------------------------------------------------------------------------- members

    def join(self, command: Join, ticket: Ticket, now_ms: int, fresh_id: str) -> Outcome:
        out: Outcome = Decision()
        error = self._join_error(command)
        if error:
            out.answers.append((ticket, Joined(error, command.member_id)))
            return out
        group = self._live.get(command.group_id)
        if group is None:
            group = ClassicGroup(command.group_id, self.limits, self._deadlines)
            self._live[command.group_id] = group
        group.join(command, ticket, now_ms, fresh_id, out)
        self._tidy(group)
        return out

    def _join_error(self, command: Join) -> ErrorCode:
        if not command.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not self.limits.session_min_ms <= command.session_ms <= self.limits.session_max_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if command.member_id and command.group_id not in self._live:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def sync(self, command: Sync, ticket: Ticket, now_ms: int) -> Outcome:
        out: Outcome = Decision()
        group = self._live.get(command.group_id)
        if group is None:
            out.answers.append((ticket, Synced(_absent(command.group_id))))
        else:
            group.sync(command, ticket, now_ms, out)
        return out

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        group = self._live.get(group_id)
        if group is None:
            return _absent(group_id)
        return group.heartbeat(member_id, instance_id, generation, now_ms)

    def leave(self, group_id: str, identities: Sequence[Identity], ticket: Ticket, now_ms: int) -> Outcome:
        out: Outcome = Decision()
        group = self._live.get(group_id)
        if group is None:
            error = _absent(group_id)
            if error is ErrorCode.UNKNOWN_MEMBER_ID:  # then it is told of each member, as by a group that exists
                out.answers.append((ticket, Left(ErrorCode.NONE, [(identity, error) for identity in identities])))
            else:
                out.answers.append((ticket, Left(error)))
        else:
            group.leave(identities, ticket, now_ms, out)
            self._tidy(group)
        return out

    # -------------------------------------------------------------------------------------------------------- time

    @property
    def wake_ms(self) -> int:
        """When `advance` has something to do."""
        return self._deadlines.wake_ms

    def advance(self, now_ms: int) -> Iterator[tuple[str, Outcome]]:
        """What follows from the time alone, group by group."""
        for deadline in self._deadlines.reached(now_ms):
            out: Outcome = Decision()
            deadline.group.expire(deadline, now_ms, out)
            self._tidy(deadline.group)
            if out.facts or out.answers:
                yield deadline.group.group_id, out

    def _tidy(self, group: ClassicGroup) -> None:
        """A group that nobody ever joined is no group."""
        if group.unused and self._live.get(group.group_id) is group:
            del self._live[group.group_id]

    # ----------------------------------------------------------------------------------------------------- offsets

    def commit_error(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        version: int,
        transactional: bool = False,
    ) -> ErrorCode:
        """Whether such a member may commit offsets. Clients before version 9 do not understand a missing group."""
        group = self._live.get(group_id)
        if group is not None:
            return group.commit_error(member_id, instance_id, generation, now_ms, transactional=transactional)
        if generation < 0:
            return ErrorCode.NONE
        if group_id in self.offsets.groups():
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION

    def delete_offsets_error(self, group_id: str) -> ErrorCode:
        """Whether offsets of this group may be deleted at all."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not self.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = self._live.get(group_id)
        if group is None or group.state is State.EMPTY or group.protocol_type == CONSUMER:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def reads(self, group_id: str, topic: str) -> bool:
        """Whether members of the group read a topic, as far as the broker can know."""
        group = self._live.get(group_id)
        if group is None or group.protocol_type != CONSUMER:
            return False
        subscribed = group.subscribed()
        return subscribed is None or topic in subscribed

    def expire_offsets(
        self, group_id: str, now_ms: int, retention_ms: int, topic_name: Callable[[bytes], str | None]
    ) -> Outcome:
        """What has become too old in a group, and the group itself if nothing is left of it.

        Offsets of a group with members live; those in topics that the members do not read age from their commit, as
        do those of readers without a membership. In a group whose members have left, offsets age from then.
        """
        out: Outcome = Decision()
        group = self._live.get(group_id)
        aging = group is None or group.state is State.EMPTY or (
            group.state is State.STABLE and group.subscribed() is not None
        )  # fmt: skip
        if not aging:
            return out
        since_ms = group.since_ms if group is not None and group.state is State.EMPTY else 0
        kept = False
        for topic_id, partitions in self.offsets.topics(group_id).items():
            read = self.reads(group_id, topic_name(topic_id) or "")
            for partition, committed in partitions.items():
                due_ms = committed.expire_ms
                if due_ms < 0:
                    due_ms = max(since_ms, committed.commit_ms) + retention_ms
                if read or due_ms > now_ms or self.pending.has(group_id, topic_id, partition):
                    kept = True
                else:
                    out.facts.append(offset_facts.drop(OffsetKey(group_id, topic_id, partition)))
        kept = kept or self.pending.holds(group_id)
        if group is not None and not kept and group.state is State.EMPTY and not group.pending:
            out.facts.append(record.drop(group_id))
            del self._live[group_id]
        return out

    # ------------------------------------------------------------------------------------------------------ admin

    def exists(self, group_id: str) -> bool:
        """A group exists through its members, or through its offsets."""
        return group_id in self._live or group_id in self.offsets.groups()

    def ids(self) -> Collection[str]:
        return self._live.keys() | self.offsets.groups()

    def listed(self) -> Iterator[Listed]:
        for group_id, group in self._live.items():
            yield Listed(group_id, group.protocol_type or "", group.state, CLASSIC, len(group.members))
        for group_id in self.offsets.groups():
            if group_id not in self._live:
                yield Listed(group_id, "", State.EMPTY)

    def describe(self, group_id: str) -> Described | None:
        group = self._live.get(group_id)
        if group is not None:
            return group.describe()
        return Described(group_id, State.EMPTY, "", "") if group_id in self.offsets.groups() else None

    def delete(self, group_id: str) -> tuple[ErrorCode, Outcome]:
        """The group and its offsets; it is gone at once, the answer waits for the facts."""
        out: Outcome = Decision()
        if not self.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND, out
        group = self._live.get(group_id)
        if group is not None:
            if group.state is not State.EMPTY:
                return ErrorCode.NON_EMPTY_GROUP, out
            group.abandon(ErrorCode.UNKNOWN_MEMBER_ID, out)
            del self._live[group_id]
            out.facts.append(record.drop(group_id))
        out.facts.extend(self.offsets.forget_group(group_id))
        out.facts.extend(self.pending.forget(lambda key: key.group == group_id))
        return ErrorCode.NONE, out


def _absent(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
