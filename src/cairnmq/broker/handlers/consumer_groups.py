"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from cairnmq.broker.requests.group_operations import operations
from cairnmq.broker.requests.reply import Outcome, Reply
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups.consumer_messages import JOINS, LEAVES, LEAVES_FOR_NOW, ConsumerMemberView, Report
from cairnmq.groups.messages import Response, Standing
from cairnmq.groups.partitions import Partitions, gathered, stored
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Described: TypeAlias = ConsumerGroupDescribeResponse.DescribedGroup

_OWN_MEMBER_ID_FROM = 1  # before, the coordinator makes one
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def heartbeat(ctx: Context, header: RequestHeader, request: ConsumerGroupHeartbeatRequest) -> Outcome:
    coordinator = ctx.coordinators.of_group(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return ConsumerGroupHeartbeatResponse(error_code=coordinator, error_message=ctx.coordinators.why(coordinator))
    refusal = _refusal(ctx, header.api_version, request)
    if refusal is not None:
        return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
    owned = request.topic_partitions
    report = Report(
        request.group_id,
        request.member_id,
        request.member_epoch,
        header.client_id or "",
        f"/{header.caller.host}",  # as Kafka's tools show it
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else gathered((row.topic_id, row.partitions) for row in owned),
    )
    # Most heartbeats bring nothing, or nothing new.
    growth = 0 if report.epoch < JOINS else coordinator.groups.report_growth(report)
    if not ctx.group_bytes.admits(growth, ctx.clock()):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    reply = Reply()

    def deliver(answer: Response | None) -> None:
        told = cast(Standing | None, answer) or Standing(coordinator.failure)
        reply.complete(_response(told))

    coordinator.report(report, deliver)
    return reply


def _refusal(ctx: Context, version: int, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
    """Requests that make no sense whatever the group is like, in Kafka's words."""
    epoch = request.member_epoch
    text = None
    if not request.member_id and (version >= _OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVES):
        text = "MemberId can't be empty."
    elif not request.group_id.strip():
        text = "GroupId can't be empty."
    elif request.instance_id is not None and not request.instance_id.strip():
        text = "InstanceId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        text = "RackId can't be empty."
    elif epoch == 0:
        if request.rebalance_timeout_ms == -1:
            text = "RebalanceTimeoutMs must be provided in first request."
        elif request.topic_partitions is None or request.topic_partitions:
            text = "TopicPartitions must be empty when (re-)joining."
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            text = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == LEAVES_FOR_NOW:
        if request.instance_id is None:
            text = "InstanceId can't be null."
    elif epoch < LEAVES_FOR_NOW:
        text = "MemberEpoch is invalid."
    if text is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, text)
    assignors = ctx.config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, f"{text}{', '.join(assignors)}.")
    return None


def _response(told: Standing) -> ConsumerGroupHeartbeatResponse:
    response = ConsumerGroupHeartbeatResponse(
        error_code=told.error,
        error_message=told.message,
        member_id=told.member_id,
        member_epoch=told.epoch,
        heartbeat_interval_ms=told.interval_ms,
    )
    if told.assigned is not None:
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in stored(told.assigned)
            ]
        )
    return response


def describe(
    ctx: Context, header: RequestHeader, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    allowed = operations(request.include_authorized_operations)
    return ConsumerGroupDescribeResponse(groups=[_described(ctx, group_id, allowed) for group_id in request.group_ids])


def _described(ctx: Context, group_id: str, allowed: int) -> Described:
    coordinator = ctx.coordinators.of_group(group_id)
    if isinstance(coordinator, ErrorCode):
        return Described(error_code=coordinator, error_message=ctx.coordinators.why(coordinator), group_id=group_id)
    groups = coordinator.groups
    group = groups.describe_consumers(group_id)
    if group is None:
        code, text = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        if not group_id:
            code, text = ErrorCode.INVALID_GROUP_ID, ""
        elif groups.exists(group_id):
            text = f"Group {group_id} is not a consumer group."
        return Described(error_code=code, error_message=text or None, group_id=group_id)
    return Described(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(ctx, member) for member in group.members],
        authorized_operations=allowed,
    )


def _member(ctx: Context, member: ConsumerMemberView) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(ctx, member.assigned),
        target_assignment=_assignment(ctx, member.target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(ctx: Context, partitions: Partitions) -> ConsumerGroupDescribeResponse.Assignment:
    """With names; topics that are gone have none and are left out."""
    rows = []
    for topic_id, indexes in stored(partitions):
        topic = ctx.catalog.image.topic_by_id(topic_id)
        if topic is not None:
            rows.append(
                ConsumerGroupDescribeResponse.TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=list(indexes)
                )
            )
    return ConsumerGroupDescribeResponse.Assignment(topic_partitions=rows)
