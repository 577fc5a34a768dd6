"""InitProducerId for idempotent producers: numbers from blocks that the metadata store gave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode, Fault
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context


async def handle(ctx: Context, header: RequestHeader, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        # Transactions do not exist yet. The name of 53 misleads, but librdkafka treats only 31, 50 and 53 as final in
        # this answer (anything else is retried for ever), and 53 is also fatal in Java. A client that looks for its
        # coordinator first never gets here: FindCoordinator says the same with a sentence.
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    try:
        producer_id = await ctx.catalog.next_producer_id()
    except Fault:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_id=-1, producer_epoch=-1)
    # Without a transactional id a known id and epoch (KIP-360) also get a fresh number, as in Kafka.
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
