"""OffsetForLeaderEpoch: where a term of leadership ended, so that clients notice a log that was cut (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import epoch_error, find_queue
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.metadata.image import Topic

Wanted: TypeAlias = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
Answer: TypeAlias = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(ctx: Context, header: RequestHeader, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    topics = []
    for asked in request.topics:
        topic = ctx.catalog.image.topic(asked.topic)
        answers = [_answer(ctx, topic, wanted) for wanted in asked.partitions]
        topics.append(OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=asked.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(ctx: Context, topic: Topic | None, wanted: Wanted) -> Answer:
    queue = find_queue(ctx, topic, wanted.partition)
    if isinstance(queue, Refusal):
        return Answer(partition=wanted.partition, error_code=queue.code)
    error = epoch_error(ctx, queue, wanted.current_leader_epoch)
    if error:
        return Answer(partition=wanted.partition, error_code=error)
    if wanted.leader_epoch < 0:
        return Answer(partition=wanted.partition)  # no term was named, so none ended
    if not ctx.leadership.is_ready(queue.journal):
        # An end that is not certain yet would tell a reader that what it has was cut.
        return Answer(partition=wanted.partition, error_code=ErrorCode.OFFSET_NOT_AVAILABLE)
    found = ctx.store.epoch_end(queue, wanted.leader_epoch)
    if found is None:
        return Answer(partition=wanted.partition, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    return Answer(partition=wanted.partition, leader_epoch=found[0], end_offset=found[1])
