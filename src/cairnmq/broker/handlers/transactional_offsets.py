"""TxnOffsetCommit: offsets that become a group's when the producer's transaction commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode
from cairnmq.groups.groups import MISSING_GROUP_KNOWN_FROM
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
_AS_OFFSET_COMMIT_FROM = 6  # topics by their ids, and the errors of OffsetCommit (KIP-1319)


async def commit(ctx: Context, header: RequestHeader, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    error = await _admission(ctx, header.api_version, request)
    now_ms = ctx.clock()
    groups = ctx.coordinator.groups
    facts: list[KeyedRecord] = []
    stored: list[Answer] = []
    topics = []
    for asked in request.topics:
        by_id = header.api_version >= _AS_OFFSET_COMMIT_FROM
        image = ctx.catalog.image
        topic = image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers = []
        for wanted in asked.partitions:
            answer = Answer(partition_index=wanted.partition_index)
            answers.append(answer)
            metadata = wanted.committed_metadata or ""
            if topic is None or topic.queue_id(wanted.partition_index) is None:
                answer.error_code = unknown
            elif error:
                answer.error_code = error
            elif len(metadata.encode()) > ctx.config.offset_metadata_max_bytes:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                key = PendingKey(request.group_id, request.producer_id, topic.topic_id, wanted.partition_index)
                value = Committed(wanted.committed_offset, wanted.committed_leader_epoch, metadata, now_ms)
                facts.append(groups.pending.hold(key, value, groups.offsets))
                stored.append(answer)
        topics.append(
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=asked.name, topic_id=asked.topic_id, partitions=answers
            )
        )
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
    if version >= _ADDS_GROUP_FROM and not _group_error(ctx, version, request):
        error = await ctx.transactions.added(Add(request.transactional_id, producer, groups=(request.group_id,)))
    error = error or _group_error(ctx, version, request)
    error = error or ctx.transactions.core.verify(request.transactional_id, producer, group=request.group_id)
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_GROUP_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # older clients know no better code that says: try again
    if error is ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    return error


def _group_error(ctx: Context, version: int, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Before version 6 producers know no error that only the consumer protocol has, and none of a missing group: told
    113 they give up for good; after 22 they abort and go on."""
    error = ctx.coordinator.commit_error(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        MISSING_GROUP_KNOWN_FROM,
        transactional=True,
    )
    if version < _AS_OFFSET_COMMIT_FROM and error in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
        return ErrorCode.ILLEGAL_GENERATION
    return error
