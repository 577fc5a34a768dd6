"""DescribeTransactions, ListTransactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.errors import ErrorCode
from cairnmq.groups.topic_pattern import InvalidPattern, TopicPattern
from cairnmq.transactions.messages import Filter
from cairnmq.transactions.record import State
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Described: TypeAlias = DescribeTransactionsResponse.TransactionState
Listed: TypeAlias = ListTransactionsResponse.TransactionState

_STATES = {state.value: state for state in State}


def describe(ctx: Context, header: RequestHeader, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_described(ctx, transactional_id) for transactional_id in request.transactional_ids]
    )


def _described(ctx: Context, transactional_id: str) -> Described:
    transactions = ctx.coordinators.of_transaction(transactional_id)
    if isinstance(transactions, ErrorCode):
        return Described(error_code=transactions, transactional_id=transactional_id)
    record = transactions.core.describe(transactional_id)
    if record is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return Described(error_code=error, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for queue_id in record.queues:
        found = ctx.catalog.image.find_queue(queue_id)
        if found is not None:
            topic, partition = found
            topics.setdefault(topic.name, []).append(partition)
    return Described(
        transactional_id=transactional_id,
        transaction_state=record.state.value,
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms,
        producer_id=record.producer_id,
        producer_epoch=record.epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=name, partitions=sorted(partitions))
            for name, partitions in sorted(topics.items())
        ],
    )


def list_transactions(
    ctx: Context, header: RequestHeader, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    wanted = Filter(
        frozenset(_STATES[name] for name in request.state_filters if name in _STATES)
        if request.state_filters
        else None,
        frozenset(request.producer_id_filters),
        request.duration_filter,
    )
    matches = None
    if request.transactional_id_pattern:
        try:
            matches = TopicPattern(request.transactional_id_pattern).matches
        except InvalidPattern:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        error_code=ctx.coordinators.incomplete,
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            Listed(
                transactional_id=transactional_id,
                producer_id=record.producer_id,
                transaction_state=record.state.value,
            )
            for transactional_id, record in ctx.coordinators.transactions(wanted, ctx.clock())
            if matches is None or (transactional_id.isascii() and matches(transactional_id))
        ],
    )
