"""A live group changes its protocol: classic to consumer when the first new client comes, back when the last one goes.

Members keep their ids, and partitions their owners; offsets belong to the group and are not touched.
"""

from __future__ import annotations

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups import partitions as parts
from cairnmq.groups.classic import ClassicGroup
from cairnmq.groups.consumer_group import ConsumerGroup
from cairnmq.groups.consumer_member import ConsumerMember
from cairnmq.groups.deadlines import Deadlines
from cairnmq.groups.messages import GroupDecision, Limits
from cairnmq.groups.partitions import NOTHING, Partitions
from cairnmq.groups.stored_consumer_group import ClassicPart
from cairnmq.groups.stored_group import ClassicRecord, MemberRecord, put
from cairnmq.groups.subscription import (
    CONSUMER,
    partitions_of,
    read_assignment,
    read_subscription,
    write_assignment,
)
from cairnmq.groups.topic_pattern import Patterns
from cairnmq.groups.topic_view import TopicView

# Assignors whose members do without the user data of an assignment; librdkafka echoes that of the subscription there.
_STANDARD = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky"))


def upgraded(
    classic: ClassicGroup, deadlines: Deadlines[ConsumerGroup], patterns: Patterns, view: TopicView
) -> ConsumerGroup | Refusal:
    """The same members in a group of the consumer protocol, everybody where the last rebalance has put them."""
    why = _hindrance(classic)
    group = ConsumerGroup(classic.group_id, classic.limits, deadlines, patterns)
    group.epoch = group.target_epoch = max(classic.generation, 0)
    taken: Partitions = NOTHING
    for one in classic.members.values():
        metadata = one.metadata(classic.protocol) or one.protocols[0][1]
        subscription, assignment = read_subscription(metadata), read_assignment(one.assignment)
        if subscription is None or assignment is None:
            why = why or "the embedded consumer protocol is malformed"
            continue
        if assignment.user_data and classic.protocol not in _STANDARD:
            why = why or "an unsupported custom assignor is in use; switch to a default assignor first"
        # During a rebalance assignments are being made; what members said they have is what counts then.
        rows = assignment.assigned_partitions or subscription.owned_partitions
        member: ConsumerMember[ConsumerGroup] = ConsumerMember(one.member_id, group)
        member.assigned = member.target = parts.minus(partitions_of(rows, view), taken)
        taken = parts.union(taken, member.assigned)
        member.epoch = member.previous_epoch = group.epoch
        member.instance_id = one.instance_id
        member.rack_id = subscription.rack_id
        member.client_id, member.client_host = one.client_id, one.client_host
        member.rebalance_ms = one.rebalance_ms
        member.topics = tuple(sorted(set(subscription.topics)))
        member.classic = ClassicPart(one.session_ms, one.protocols)
        group.roster.add(member)
    if why is not None:
        text = f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}."
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, text)
    return group


def _hindrance(classic: ClassicGroup) -> str | None:
    limits = classic.limits.consumer
    if not limits.may_upgrade:
        return "online upgrade is disabled"
    if classic.protocol_type != CONSUMER:
        return "the group does not use the consumer embedded protocol"
    if len(classic.members) > limits.size_max:
        return "the group size exceeds the consumer group maximum size"
    return None


def may_downgrade(group: ConsumerGroup) -> bool:
    limits: Limits = group.limits
    return group.roster.only_classic and limits.consumer.may_downgrade and len(group.members) <= limits.size_max


def downgraded(
    group: ConsumerGroup, deadlines: Deadlines[ClassicGroup], now_ms: int, view: TopicView, out: GroupDecision
) -> ClassicGroup:
    """The same members in a classic group, which rebalances at once: nobody reads what the last one had.

    Stored is a group without members. After a crash before that rebalance is done, all join anew; else some would go on
    with what they have, and nobody would read the rest.
    """
    members = []
    for member in group.members.values():
        assert member.classic is not None, "only classic members are left"
        members.append(
            MemberRecord(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_ms,
                member.rebalance_ms,
                member.classic.protocols,
                write_assignment(member.assigned, view, member.classic.protocols[0][1]),
            )
        )
    protocol = next(
        name for name, _ in members[0].protocols if all(name in dict(member.protocols) for member in members)
    )
    # Whoever is at this epoch is told of the rebalance by its next heartbeat; others are told that they are late.
    generation = max(member.epoch for member in group.members.values())
    since_ms = deadlines.date_ms(now_ms)
    record = ClassicRecord(CONSUMER, generation, protocol, members[0].member_id, since_ms, tuple(members))
    classic = ClassicGroup.load(group.group_id, record, group.limits, deadlines)
    out.records.append(put(group.group_id, ClassicRecord(CONSUMER, generation, None, None, since_ms)))
    classic.resume(now_ms, view)
    classic.rebalance(now_ms, out)
    return classic


def emptied(group: ConsumerGroup, deadlines: Deadlines[ClassicGroup]) -> ClassicGroup:
    """A group that all members have left, for whoever comes by the classic protocol. Offsets go on to age from when
    they left: whether somebody really comes is not known yet."""
    record = ClassicRecord(CONSUMER, group.epoch, None, None, group.since_ms)
    return ClassicGroup.load(group.group_id, record, group.limits, deadlines)
