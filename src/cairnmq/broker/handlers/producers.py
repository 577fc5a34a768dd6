"""InitProducerId: numbers from blocks that the metadata store gave out; epochs of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode, Fault
from cairnmq.transactions.messages import Init, Producer
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_FENCED_IS_KNOWN_FROM = 4  # before, producers know only that their epoch is wrong


async def handle(ctx: Context, header: RequestHeader, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    if request.transactional_id is not None:
        known = None if request.producer_id == -1 else Producer(request.producer_id, request.producer_epoch)
        transactions = ctx.coordinators.of_transaction(request.transactional_id)
        if isinstance(transactions, ErrorCode):
            return InitProducerIdResponse(error_code=transactions, producer_id=-1, producer_epoch=-1)
        answer = await transactions.init(Init(request.transactional_id, request.transaction_timeout_ms, known))
        old = answer.error is ErrorCode.PRODUCER_FENCED and header.api_version < _FENCED_IS_KNOWN_FROM
        return InitProducerIdResponse(
            error_code=ErrorCode.INVALID_PRODUCER_EPOCH if old else answer.error,
            producer_id=answer.producer_id,
            producer_epoch=answer.epoch,
        )
    try:
        producer_id = await ctx.catalog.next_producer_id()
    except Fault:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_id=-1, producer_epoch=-1)
    # Without a transactional id a known id and epoch (KIP-360) also get a fresh number, as in Kafka.
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
