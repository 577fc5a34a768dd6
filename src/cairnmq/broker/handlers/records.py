"""DeleteRecords: move the start of queues forward."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import failure_code, find_queue
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.metadata.image import Topic

Wanted: TypeAlias = DeleteRecordsRequest.DeleteRecordsPartition
Answer: TypeAlias = DeleteRecordsResponse.DeleteRecordsPartitionResult


_TO_THE_END = -1


async def handle(ctx: Context, header: RequestHeader, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    for asked in request.topics:
        topic = ctx.catalog.image.topic(asked.name)
        # All at once, so that their facts share one sync.
        answers = await asyncio.gather(*(_trim(ctx, topic, wanted) for wanted in asked.partitions))
        topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=asked.name, partitions=list(answers)))
    return DeleteRecordsResponse(topics=topics)


async def _trim(ctx: Context, topic: Topic | None, wanted: Wanted) -> Answer:
    def refused(code: ErrorCode) -> Answer:
        return Answer(partition_index=wanted.partition_index, low_watermark=-1, error_code=code)

    queue = find_queue(ctx, topic, wanted.partition_index)
    if isinstance(queue, Refusal):
        return refused(queue.code)
    if not queue.config.delete:
        return refused(ErrorCode.POLICY_VIOLATION)  # the newest record of a key is to stay
    if wanted.offset < _TO_THE_END:
        return refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        start = await ctx.store.trim(queue, wanted.offset)
    except Fault:
        return refused(failure_code(ctx, queue))
    if isinstance(start, Refusal):
        return refused(start.code)
    return Answer(partition_index=wanted.partition_index, low_watermark=start)
