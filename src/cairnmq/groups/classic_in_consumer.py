"""Members of the classic protocol in a group of the consumer protocol, while an application changes over.

They go on with JoinGroup, SyncGroup and Heartbeat, and need not know: their generation is their member epoch, their
assignment is what the server has given them, and a heartbeat tells them to join again when there is another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.groups.consumer_member import Progress
from cairnmq.groups.consumer_messages import JOINS, Report
from cairnmq.groups.deadlines import NEVER
from cairnmq.groups.memory_estimate import protocols_weight
from cairnmq.groups.messages import Identity, Join, Joined, Left, Sync, Synced
from cairnmq.groups.stored_consumer_group import ClassicPart
from cairnmq.groups.subscription import CONSUMER, partitions_of, read_subscription, write_assignment
from cairnmq.groups.topic_view import TopicView

if TYPE_CHECKING:
    from cairnmq.groups.consumer_group import ConsumerGroup, GroupMember


def join_growth(group: ConsumerGroup, command: Join) -> int:
    """How much more would be held after this join, if it is let in."""
    subscription = read_subscription(command.protocols[0][1]) if command.protocols else None
    if subscription is None:
        return 0  # it is refused
    said = Report(
        command.group_id,
        command.member_id,
        JOINS,
        command.client_id,
        instance_id=command.instance_id,
        rack_id=subscription.rack_id,
        topics=subscription.topics,
    )
    former = group.roster.known_as(said)
    held = 0 if former is None or former.classic is None else protocols_weight(former.classic.protocols)
    return group.growth(said) + protocols_weight(command.protocols) - held


def join(group: ConsumerGroup, command: Join, now_ms: int, view: TopicView, fresh_id: str) -> Joined:
    """`fresh_id` is the member's id if it has none."""
    is_new = not command.member_id
    member_id = command.member_id or fresh_id
    if group.full(command.member_id) is not None:
        return Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    subscription = read_subscription(command.protocols[0][1]) if command.protocols else None
    if subscription is None or not _speaks(group, command):
        return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, command.member_id)
    if is_new and command.needs_id and command.instance_id is None:
        return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    if command.instance_id is not None and not is_new:
        stranger = group.roster.stranger(member_id, command.instance_id)
        if stranger is not None:
            return Joined(stranger.code, command.member_id)
    member = group.enter(member_id, command.instance_id)
    said = (
        command.instance_id,
        subscription.rack_id if subscription.rack_id is not None else member.rack_id,
        command.rebalance_ms,
        None,
        command.client_id,
        command.client_host,
        ClassicPart(command.session_ms, command.protocols),
    )
    renewed = group.roster.describe(member, said, tuple(sorted(set(subscription.topics))), "")
    group.advance(member, renewed, partitions_of(subscription.owned_partitions, view), now_ms, view)
    member.join.disarm()
    member.rebalance.disarm()
    group.touch(member, now_ms, view)
    group.deadlines.arm(member.sync, now_ms + command.rebalance_ms)
    return Joined(ErrorCode.NONE, member_id, member.epoch, CONSUMER, command.protocols[0][0])


def _speaks(group: ConsumerGroup, command: Join) -> bool:
    """Whether one of the protocols is known to every classic member: they may be among themselves again."""
    if command.protocol_type != CONSUMER:
        return False
    others = [member.classic for member in group.members.values() if member.classic is not None]
    known = Counter(name for classic in others for name, _ in classic.protocols)
    return any(known[name] == len(others) for name, _ in command.protocols)


def sync(group: ConsumerGroup, command: Sync, now_ms: int, view: TopicView) -> Synced:
    member = _classic_member(group, command.member_id, command.instance_id, command.generation)
    if isinstance(member, ErrorCode):
        return Synced(member)
    assert member.classic is not None
    protocol, metadata = member.classic.protocols[0]
    if command.protocol_type not in (None, CONSUMER) or command.protocol not in (None, protocol):
        return Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.epoch and member.state is not Progress.UNREVOKED:
        _call_back(group, member, now_ms)
        return Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync.disarm()
    group.touch(member, now_ms, view)
    assignment = write_assignment(member.assigned, view, metadata)
    return Synced(ErrorCode.NONE, command.protocol_type, command.protocol, assignment)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int, view: TopicView
) -> ErrorCode:
    member = _classic_member(group, member_id, instance_id, generation)
    if isinstance(member, ErrorCode):
        return member
    group.touch(member, now_ms, view)
    if (
        member.epoch < group.epoch
        or member.state is Progress.UNREVOKED
        or (member.state is Progress.UNRELEASED and not member.waits(group.roster.owner))
    ):
        _call_back(group, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(group: ConsumerGroup, identities: Sequence[Identity], now_ms: int, view: TopicView) -> Left:
    gone: dict[str, GroupMember] = {}
    answers = []
    for identity in identities:
        found = _leaving(group, identity)
        if isinstance(found, ErrorCode):
            answers.append((identity, found))
        else:
            gone[found.member_id] = found
            answers.append((identity, ErrorCode.NONE))
    if gone:
        group.fence(gone.values(), now_ms, view)
    return Left(ErrorCode.NONE, answers)


def _leaving(group: ConsumerGroup, identity: Identity) -> GroupMember | ErrorCode:
    if not identity.member_id and identity.instance_id is not None:
        # An administrator's request.
        holder = group.roster.holder(identity.instance_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if holder is None else holder
    stranger = group.roster.stranger(identity.member_id, identity.instance_id)
    return group.members[identity.member_id] if stranger is None else stranger.code


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> GroupMember | ErrorCode:
    stranger = group.roster.stranger(member_id, instance_id)
    if stranger is not None:
        return stranger.code
    member = group.members[member_id]
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if member.epoch == generation else ErrorCode.ILLEGAL_GENERATION


def _call_back(group: ConsumerGroup, member: GroupMember, now_ms: int) -> None:
    """It was told to join again; its time for that runs from the first time."""
    if member.join.due_ms == NEVER:
        group.deadlines.arm(member.join, now_ms + member.rebalance_ms)
