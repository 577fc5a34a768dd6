"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups, OffsetDelete."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from cairnmq.broker.requests.group_operations import operations
from cairnmq.broker.requests.reply import Outcome, Reply
from cairnmq.errors import ErrorCode
from cairnmq.groups.messages import Identity, Join, Joined, Left, Response, State, Sync, Synced
from cairnmq.groups.offset_messages import CommittedPlace
from cairnmq.types import Buffer
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

DescribedGroup: TypeAlias = DescribeGroupsResponse.DescribedGroup

_MEMBER_ID_REQUIRED_FROM = 4
_MISSING_GROUP_IS_AN_ERROR_FROM = 6  # of DescribeGroups; before, it is a dead group
_PROTOCOL_MAY_BE_NULL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9
_BATCH_LEAVE_FROM = 3

_NOT_DELETED = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no group {0!r}",
    ErrorCode.NON_EMPTY_GROUP: "group {0!r} has members; stop them first",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the journal could not store it; see /health/ready",
}

_heartbeats: dict[tuple[ErrorCode, int], list[Buffer]] = {}


def join(ctx: Context, header: RequestHeader, request: JoinGroupRequest) -> Outcome:
    version = header.api_version
    coordinator = ctx.coordinators.of_group(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return _join_response(coordinator, version)
    protocols = tuple([(protocol.name, protocol.metadata) for protocol in request.protocols])
    command = Join(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        header.client_id or "",
        f"/{header.caller.host}",  # as Kafka's tools show it
        request.session_timeout_ms,
        request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms,
        request.protocol_type,
        protocols,
        needs_id=version >= _MEMBER_ID_REQUIRED_FROM,
        may_skip=version >= _SKIP_ASSIGNMENT_FROM,
    )
    if not ctx.group_bytes.admits(coordinator.groups.join_growth(command), ctx.clock()):
        return _join_response(ErrorCode.COORDINATOR_NOT_AVAILABLE, version)
    reply = Reply()

    def deliver(answer: Response | None) -> None:
        reply.complete(_join_response(cast(Joined | None, answer) or coordinator.failure, version))

    coordinator.join(command, deliver)
    return reply


def _join_response(answer: Joined | ErrorCode, version: int) -> JoinGroupResponse:
    no_name = None if version >= _PROTOCOL_MAY_BE_NULL_FROM else ""
    if isinstance(answer, ErrorCode):
        return JoinGroupResponse(error_code=answer, protocol_name=no_name)
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=no_name if answer.protocol is None else answer.protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in answer.members
        ],
    )


def sync(ctx: Context, header: RequestHeader, request: SyncGroupRequest) -> Outcome:
    coordinator = ctx.coordinators.of_group(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return SyncGroupResponse(error_code=coordinator)
    command = Sync(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        {given.member_id: given.assignment for given in request.assignments},
    )
    if not ctx.group_bytes.admits(coordinator.groups.sync_growth(command), ctx.clock()):
        return SyncGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    reply = Reply()

    def deliver(answer: Response | None) -> None:
        synced = cast(Synced | None, answer) or Synced(coordinator.failure)
        reply.complete(
            SyncGroupResponse(
                error_code=synced.error,
                protocol_type=synced.protocol_type,
                protocol_name=synced.protocol,
                assignment=synced.assignment,
            )
        )

    coordinator.sync(command, deliver)
    return reply


def heartbeat(ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> list[Buffer]:
    """Thousands of these arrive every second and nearly all answers are the same bytes. While a group is loaded its
    members are told that all is well, as Kafka does: some clients expect no such error here, and give up."""
    version = header.api_version
    request, _ = decode(HeartbeatRequest, version, frame, position)
    found = ctx.coordinators.of_group(request.group_id)
    error = (
        found
        if isinstance(found, ErrorCode)
        else found.heartbeat(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    )
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        error = ErrorCode.NONE
    body = _heartbeats.get((error, version))
    if body is None:
        body = _heartbeats[error, version] = encode(HeartbeatResponse(error_code=error), version)
    return body


def leave(ctx: Context, header: RequestHeader, request: LeaveGroupRequest) -> Outcome:
    coordinator = ctx.coordinators.of_group(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return LeaveGroupResponse(error_code=coordinator)
    batch = header.api_version >= _BATCH_LEAVE_FROM
    identities = (
        [Identity(member.member_id, member.group_instance_id) for member in request.members]
        if batch
        else [Identity(request.member_id)]
    )
    reply = Reply()

    def deliver(answer: Response | None) -> None:
        left = cast(Left | None, answer) or Left(coordinator.failure)
        error = left.error
        if not batch and not error:
            error = left.members[0][1]
        members = [
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.instance_id, error_code=code
            )
            for identity, code in left.members
        ]
        reply.complete(LeaveGroupResponse(error_code=error, members=members))

    coordinator.leave(request.group_id, identities, deliver)
    return reply


def describe(ctx: Context, header: RequestHeader, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    allowed = operations(request.include_authorized_operations)
    return DescribeGroupsResponse(
        groups=[_described(ctx, group_id, header.api_version, allowed) for group_id in request.groups]
    )


def _described(ctx: Context, group_id: str, version: int, allowed: int) -> DescribedGroup:
    coordinator = ctx.coordinators.of_group(group_id)
    if isinstance(coordinator, ErrorCode):
        answer = DescribedGroup(group_id=group_id, error_code=coordinator)
        if version >= _MISSING_GROUP_IS_AN_ERROR_FROM:
            answer.error_message = ctx.coordinators.why(coordinator)
        return answer
    group = coordinator.groups.describe(group_id)
    if group is None:
        answer = DescribedGroup(group_id=group_id, group_state=State.DEAD, authorized_operations=allowed)
        if version >= _MISSING_GROUP_IS_AN_ERROR_FROM:
            answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            answer.error_message = f"Group {group_id} not found."
        return answer
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=allowed,
    )


def list_groups(ctx: Context, header: RequestHeader, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    return ListGroupsResponse(
        error_code=ctx.coordinators.incomplete,
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in ctx.coordinators.groups()
            if (not states or group.state.lower() in states) and (not types or group.type in types)
        ],
    )


async def delete(ctx: Context, header: RequestHeader, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        coordinator = ctx.coordinators.of_group(group_id)
        if isinstance(coordinator, ErrorCode):
            error, message = coordinator, ctx.coordinators.why(coordinator)
        else:
            error = await coordinator.delete(group_id)
            message = _NOT_DELETED.get(error, error.name).format(group_id)
        results.append(
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=group_id, error_code=error, error_message=message if error else None
            )
        )
    return DeleteGroupsResponse(results=results)


async def delete_offsets(ctx: Context, header: RequestHeader, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    coordinator = ctx.coordinators.of_group(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return OffsetDeleteResponse(error_code=coordinator)
    places: list[CommittedPlace] = []
    waiting: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
    topics = []
    for asked in request.topics:
        topic = ctx.catalog.image.topic(asked.name)
        rows = []
        for wanted in asked.partitions:
            row = OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=wanted.partition_index)
            rows.append(row)
            if topic is None or topic.queue_id(wanted.partition_index) is None:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                waiting.append(row)
                places.append(CommittedPlace(asked.name, topic.topic_id, wanted.partition_index))
        topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=asked.name, partitions=rows))
    told = await coordinator.delete_offsets(request.group_id, places)
    if told.error:
        return OffsetDeleteResponse(error_code=told.error)
    for row, error in zip(waiting, told.errors, strict=True):
        row.error_code = error
    return OffsetDeleteResponse(topics=topics)
