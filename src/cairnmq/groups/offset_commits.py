"""Decides about the offsets of all groups: who may commit, what is stored, what becomes too old.

Nothing in memory changes before the records are stored: a decision that cannot be stored has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cairnmq.decision import Decision, KeyedRecord, Ticket
from cairnmq.errors import ErrorCode
from cairnmq.groups import offsets as committed_offsets
from cairnmq.groups.deadlines import Deadlines
from cairnmq.groups.group import Group
from cairnmq.groups.messages import GroupCounts, Limits, State
from cairnmq.groups.offset_messages import CommittedPlace, OffsetCommit, OffsetDecision, OffsetErrors, Position
from cairnmq.groups.offsets import Committed, OffsetKey, Offsets
from cairnmq.groups.pending import EndLimit, Pending, PendingKey, PendingOffsets
from cairnmq.groups.subscription import CONSUMER


class OffsetCommits:
    """`groups`: those with members, as they are now."""

    def __init__(
        self,
        groups: Mapping[str, Group],
        offsets: Offsets,
        pending: PendingOffsets,
        limits: Limits,
        deadlines: Deadlines[Any],
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._pending = pending
        self._limits = limits
        self._deadlines = deadlines

    def counts(self) -> GroupCounts:
        return GroupCounts(len(self._groups), len(self._offsets.groups()) + len(self._pending.groups()))

    # ---------------------------------------------------------------------------------------------------- committing

    def error(self, command: OffsetCommit, now_ms: int) -> ErrorCode:
        """Whether this reader may commit offsets at all."""
        group = self._groups.get(command.group_id)
        if group is not None:
            return group.commit_error(command, now_ms)
        if command.generation < 0:
            elsewhere = self._limits.elsewhere().with_offsets
            return self._limits.room_error(
                command.group_id, self._offsets.groups(), self._pending.groups(), elsewhere=elsewhere
            )
        known = command.group_id in self._offsets.groups()
        return ErrorCode.UNKNOWN_MEMBER_ID if known else ErrorCode.GROUP_ID_NOT_FOUND

    def commit(self, command: OffsetCommit, ticket: Ticket, now_ms: int) -> OffsetDecision:
        out: OffsetDecision = Decision()
        refused = self.error(command, now_ms)
        commit_ms = self._deadlines.date_ms(now_ms)
        expire_ms = commit_ms + command.retention_ms if command.retention_ms >= 0 else -1
        errors = []
        for one in command.positions:
            error = refused
            if not error and one.metadata and len(one.metadata.encode()) > self._limits.metadata_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if not error:
                value = Committed(one.offset, one.leader_epoch, one.metadata, commit_ms, expire_ms)
                out.records.append(self._record(command, one, value))
            errors.append(error)
        out.respond(ticket, OffsetErrors(errors))
        return out

    def _record(self, command: OffsetCommit, position: Position, value: Committed) -> KeyedRecord:
        group_id, topic_id, partition = command.group_id, position.topic_id, position.partition
        if command.producer_id is None:
            return self._pending.commit(OffsetKey(group_id, topic_id, partition), value, self._offsets)
        key = PendingKey(group_id, command.producer_id, topic_id, partition)
        held = Pending.waiting(value, command.producer_epoch, command.coordinator_epoch)
        return self._pending.hold(key, held, self._offsets)

    def end(
        self, group_id: str, producer_id: int, ticket: Ticket, *, commit: bool, limit: EndLimit | None = None
    ) -> OffsetDecision:
        """What a producer's transaction has committed in a group becomes the group's, or is forgotten. `limit`: which
        of its transactions; the end of an earlier coordinator than the one that admitted them is fenced."""
        out: OffsetDecision = Decision()
        if limit is not None and self._pending.fences(group_id, producer_id, limit):
            out.respond(ticket, OffsetErrors([ErrorCode.TRANSACTION_COORDINATOR_FENCED]))
            return out
        out.records += self._pending.end(group_id, producer_id, commit=commit, offsets=self._offsets, limit=limit)
        out.respond(ticket, OffsetErrors([ErrorCode.NONE]))
        return out

    # ------------------------------------------------------------------------------------------------------ deleting

    def delete(self, group_id: str, places: Sequence[CommittedPlace], ticket: Ticket) -> OffsetDecision:
        """An administrator's request. What the members of the group read stays."""
        out: OffsetDecision = Decision()
        error = self.delete_error(group_id)
        errors = []
        for place in () if error else places:
            if self.reads(group_id, place.topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if self._offsets.get(group_id, place.topic_id, place.partition) is not None:
                out.records.append(committed_offsets.drop(OffsetKey(group_id, place.topic_id, place.partition)))
        out.respond(ticket, OffsetErrors(errors, error))
        return out

    def delete_error(self, group_id: str) -> ErrorCode:
        """Whether offsets of this group may be deleted at all."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.NONE if group_id in self._offsets.groups() else ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is State.EMPTY or group.protocol_type == CONSUMER:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def reads(self, group_id: str, topic: str | None) -> bool:
        """Whether members of the group read a topic, as far as the broker can know."""
        group = self._groups.get(group_id)
        if group is None or group.protocol_type != CONSUMER:
            return False
        subscribed = group.subscribed()
        return subscribed is None or topic in subscribed

    # --------------------------------------------------------------------------------------------------------- aging

    def expired(
        self, group_id: str, date_ms: int, retention_ms: int, topic_name: Callable[[bytes], str | None]
    ) -> tuple[list[KeyedRecord], bool]:
        """What must be stored of a group's offsets at this date, and whether any offset is kept.

        Offsets of a group with members live; those in topics that the members do not read age from their commit, as
        do those of readers without a membership. In a group whose members have left, offsets age from then.
        """
        records: list[KeyedRecord] = []
        group = self._groups.get(group_id)
        if group is not None and not group.ages_offsets:
            return records, True
        since_ms = group.since_ms if group is not None and group.state is State.EMPTY else 0
        kept = self._pending.holds(group_id)
        for topic_id, partitions in self._offsets.topics(group_id).items():
            read = self.reads(group_id, topic_name(topic_id))
            for partition, committed in partitions.items():
                due_ms = committed.expire_ms
                if due_ms < 0:
                    due_ms = max(since_ms, committed.commit_ms) + retention_ms
                if read or due_ms > date_ms or self._pending.has(group_id, topic_id, partition):
                    kept = True
                else:
                    records.append(committed_offsets.drop(OffsetKey(group_id, topic_id, partition)))
        return records, kept

    def orphaned(self, topic_ids: frozenset[bytes]) -> list[KeyedRecord]:
        """What must be stored about topics that are not among these: a crash, or a full disk, kept their offsets."""
        pending = self._pending.forget(lambda key: key.topic_id not in topic_ids)
        return [*self._offsets.forget_unknown(topic_ids), *pending]

    def of_topic(self, topic_id: bytes) -> list[KeyedRecord]:
        """What must be stored when a topic is deleted."""
        pending = self._pending.forget(lambda key: key.topic_id == topic_id)
        return [*self._offsets.forget_topic(topic_id), *pending]

    def of_group(self, group_id: str) -> list[KeyedRecord]:
        """What must be stored when a group is deleted."""
        pending = self._pending.forget(lambda key: key.group == group_id)
        return [*self._offsets.forget_group(group_id), *pending]
