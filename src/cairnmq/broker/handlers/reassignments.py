"""AlterPartitionReassignments, ListPartitionReassignments: a partition stays on the replicas of its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import NO_PARTITION
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Topic
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Wanted: TypeAlias = AlterPartitionReassignmentsRequest.ReassignablePartition
Answer: TypeAlias = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def alter(
    ctx: Context, header: RequestHeader, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    image = ctx.catalog.image
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=asked.name,
                partitions=[_answer(ctx, image.topic(asked.name), wanted) for wanted in asked.partitions],
            )
            for asked in request.topics
        ],
    )


def _answer(ctx: Context, topic: Topic | None, wanted: Wanted) -> Answer:
    refusal = _refusal(ctx, topic, wanted)
    return Answer(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
    )


def _refusal(ctx: Context, topic: Topic | None, wanted: Wanted) -> Refusal | None:
    journal = None if topic is None else topic.journal_of(wanted.partition_index)
    if journal is None:
        return NO_PARTITION
    if wanted.replicas is None:
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    replicas = list(ctx.leadership.view(journal).replicas)
    if wanted.replicas == replicas:
        return None
    why = f"a partition cannot be placed on brokers {wanted.replicas}: "
    if ctx.leadership.is_cluster:
        why += f"it stays with its journal {journal}, on brokers {replicas}; this version moves none"
    else:
        why += f"the only broker is {ctx.node.node_id}"
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def show(
    ctx: Context, header: RequestHeader, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
