"""TxnOffsetCommit: offsets that become a group's when the producer's transaction commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.errors import ErrorCode
from cairnmq.groups.facts import Fact
from cairnmq.groups.offsets import Committed
from cairnmq.groups.pending import PendingKey
from cairnmq.transactions.messages import Add, Producer
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Answer: TypeAlias = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition

_ABORTABLE_FROM = 4
_ADDS_GROUP_FROM = 5
_NO_MISSING_GROUP = 0  # clients of every version are told of a wrong generation, not of a missing group


async def commit(ctx: Context, header: RequestHeader, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    error = await _admission(ctx, header.api_version, request)
    now_ms = ctx.clock()
    groups = ctx.coordinator.groups
    facts: list[Fact] = []
    stored: list[Answer] = []
    topics = []
    for asked in request.topics:
        topic = ctx.catalog.image.topic(asked.name)
        answers = []
        for wanted in asked.partitions:
            answer = Answer(partition_index=wanted.partition_index)
            answers.append(answer)
            metadata = wanted.committed_metadata or ""
            if topic is None or topic.queue_id(wanted.partition_index) is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif error:
                answer.error_code = error
            elif len(metadata.encode()) > ctx.config.offset_metadata_max_bytes:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                key = PendingKey(request.group_id, request.producer_id, topic.topic_id, wanted.partition_index)
                value = Committed(wanted.committed_offset, wanted.committed_leader_epoch, metadata, now_ms)
                facts.append(groups.pending.hold(key, value, groups.offsets))
                stored.append(answer)
        topics.append(TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=asked.name, partitions=answers))
    if not await ctx.coordinator.commit(request.group_id, facts):
        for answer in stored:
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(topics=topics)


async def _admission(ctx: Context, version: int, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Whether this producer may commit offsets of this group, and this member; holds for this turn of the loop."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    producer = Producer(request.producer_id, request.producer_epoch)
    error = ErrorCode.NONE
    if version >= _ADDS_GROUP_FROM and not _group_error(ctx, request):
        error = await ctx.transactions.added(Add(request.transactional_id, producer, groups=(request.group_id,)))
    error = error or _group_error(ctx, request)
    error = error or ctx.transactions.core.verify(request.transactional_id, producer, group=request.group_id)
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_GROUP_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # older clients know no better code that says: try again
    if error is ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    return error


def _group_error(ctx: Context, request: TxnOffsetCommitRequest) -> ErrorCode:
    return ctx.coordinator.commit_error(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        _NO_MISSING_GROUP,
        transactional=True,
    )
