"""KeepOffsets, a request of our own: batches of a Kafka log into a queue, with the offsets they have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import failure_code, find_queue
from cairnmq.codec.compression import Undecodable
from cairnmq.codec.records import iter_batches
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.storage.api.serving import Span
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import KeepOffsetsRequest, KeepOffsetsResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.storage.api.serving import Queue

Wanted: TypeAlias = KeepOffsetsRequest.KeptPartition
Result: TypeAlias = KeepOffsetsResponse.KeptPartitionResult


async def handle(ctx: Context, header: RequestHeader, request: KeepOffsetsRequest) -> KeepOffsetsResponse:
    topics = []
    for asked in request.topics:
        # All at once, so that they share one sync.
        results = await asyncio.gather(*(_keep(ctx, asked.topic_id, wanted) for wanted in asked.partitions))
        topics.append(KeepOffsetsResponse.KeptTopicResult(topic_id=asked.topic_id, partitions=list(results)))
    return KeepOffsetsResponse(topics=topics)


async def _keep(ctx: Context, topic_id: bytes, wanted: Wanted) -> Result:
    queue: Queue | None = None

    def result(code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> Result:
        ends = (queue.log_start, queue.end) if queue is not None else (-1, -1)
        return Result(
            index=wanted.index, error_code=code, error_message=message, log_start_offset=ends[0], end_offset=ends[1]
        )

    records = wanted.records or memoryview(b"")
    assert isinstance(records, memoryview)
    try:
        batches = list(iter_batches(records))
    except Undecodable as error:
        return result(ErrorCode.INVALID_RECORD, str(error))
    if sum(map(len, batches)) != len(records):
        return result(ErrorCode.INVALID_RECORD, "the last record batch is truncated")
    while ctx.store.backlog.full:
        await _room(ctx)
    found = find_queue(ctx, ctx.catalog.image.topic_by_id(topic_id), wanted.index)
    if isinstance(found, Refusal):
        return result(found.code, found.message)
    queue = found
    try:
        refusal = await ctx.store.append_kept(queue, batches, Span(wanted.start_offset, wanted.end_offset))
    except Fault as fault:
        return result(failure_code(ctx, queue), str(fault))
    return result() if refusal is None else result(refusal.code, refusal.message)


async def _room(ctx: Context) -> None:
    """The backlog is at its cap: as a producer does, wait in line."""
    room = asyncio.Event()
    ctx.store.backlog.when_room(room.set)
    await room.wait()
