"""ListOffsets: the ends of a queue, or the first record at or after a time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import epoch_error, find_queue
from cairnmq.codec.compression import CodecMissing, Undecodable
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.storage.api.serving import failure_of
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.storage.api.serving import Queue

log = logging.getLogger(__name__)

Answer: TypeAlias = ListOffsetsResponse.ListOffsetsPartitionResponse


LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
READ_COMMITTED = 1
SEARCHES_AT_ONCE = 100
_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


async def handle(ctx: Context, header: RequestHeader, request: ListOffsetsRequest) -> ListOffsetsResponse:
    named = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    committed = request.isolation_level == READ_COMMITTED
    searches: list[Awaitable[None]] = []
    answered = []
    for topic in request.topics:
        known = ctx.catalog.image.topic(topic.name)
        answers = []
        for wanted in topic.partitions:
            answer = Answer(partition_index=wanted.partition_index)
            answers.append(answer)
            queue = find_queue(ctx, known, wanted.partition_index)
            if named[topic.name, wanted.partition_index] > 1:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif isinstance(queue, Refusal):
                answer.error_code = queue.code
            elif error := epoch_error(ctx, queue, wanted.current_leader_epoch):
                answer.error_code = error
            elif not _understood(wanted.timestamp, header.api_version):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            elif queue.cut_short and wanted.timestamp in (LATEST, MAX_TIMESTAMP):
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            elif wanted.timestamp in (LATEST, MAX_TIMESTAMP) and not ctx.leadership.is_ready(queue.journal):
                answer.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
            elif not _known_at_once(queue, ctx.leadership.led[queue.journal], wanted.timestamp, committed, answer):
                searches.append(_search(ctx, queue, wanted.timestamp, committed, answer))
        answered.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    for first in range(0, len(searches), SEARCHES_AT_ONCE):
        await asyncio.gather(*searches[first : first + SEARCHES_AT_ONCE])
    return ListOffsetsResponse(topics=answered)


def _understood(timestamp: int, version: int) -> bool:
    """Below 0 are the special values, each since its version; what is none of them is from a later protocol."""
    return timestamp >= EARLIEST or version >= _SINCE_VERSION.get(timestamp, version + 1)


def _known_at_once(queue: Queue, epoch: int, timestamp: int, committed: bool, answer: Answer) -> bool:
    if timestamp == LATEST:
        answer.offset = queue.last_stable if committed else queue.high_watermark
        answer.leader_epoch = epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = queue.log_start
        first = queue.state.epochs[0] if queue.state.epochs else None
        answer.leader_epoch = first[0] if first is not None and first[1] <= queue.log_start else -1
    return timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)


async def _search(ctx: Context, queue: Queue, timestamp: int, committed: bool, answer: Answer) -> None:
    try:
        if timestamp == MAX_TIMESTAMP:
            found = await ctx.store.times.newest(queue)
        else:
            found = await ctx.store.times.find(queue, timestamp)
    except (Fault, OSError) as fault:
        ctx.store.found_damage(queue, failure_of(fault))
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    except (Undecodable, CodecMissing) as error:
        # The text of the error: who keeps what was logged would keep the batch too.
        log.warning("cannot look up a time in %s-%d: %s", queue.topic, queue.partition, str(error))
        missing = isinstance(error, CodecMissing)
        answer.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if missing else ErrorCode.CORRUPT_MESSAGE
        return
    if refusal := ctx.leadership.refusal(queue.journal):
        answer.error_code = refusal.code  # meanwhile
    elif found is not None and found[0] < (queue.last_stable if committed else queue.high_watermark):
        answer.offset, answer.timestamp, answer.leader_epoch = found
    elif queue.cut_short:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR  # it may lie behind the damage
    elif not ctx.leadership.is_ready(queue.journal):
        answer.error_code = ErrorCode.OFFSET_NOT_AVAILABLE  # it may be there, and not known to be replicated
