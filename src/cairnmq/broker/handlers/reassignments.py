"""AlterPartitionReassignments, ListPartitionReassignments: with one broker nothing can move, and nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import find_queue
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
    if find_queue(ctx, topic, wanted.partition_index) is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if wanted.replicas is None:
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    only = ctx.node.node_id
    if wanted.replicas != [only]:
        why = f"a partition cannot be placed on brokers {wanted.replicas}: the only broker is {only}"
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return None


def show(
    ctx: Context, header: RequestHeader, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
