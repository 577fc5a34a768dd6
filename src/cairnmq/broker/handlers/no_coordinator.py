"""Answers of a coordinator whose facts are not all known, because their journal is damaged: come back later.

Committed offsets, groups and transactions as of before the damage would be old ones, and a consumer that believed them
would read again what it has done. Every client tries again on this error; none goes on without an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cairnmq.broker.requests.reply import Outcome
from cairnmq.broker.requests.router import AsyncHandler, Handler, as_handler
from cairnmq.errors import ErrorCode
from cairnmq.wire import apis
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    ListTransactionsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

AddedTopic: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult

CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE
TEXT = "the journal that holds groups, offsets and transactions is damaged; see /health/ready"
_SEVERAL_COORDINATORS_FROM = 4
_SEVERAL_TRANSACTIONS_FROM = 4
_SEVERAL_GROUPS_FROM = 8
_GROUP_ERROR_FROM = 2  # of OffsetFetch; before, each partition has one
_PROTOCOL_MAY_BE_NULL_FROM = 7


def unless_plain(handler: Handler | AsyncHandler) -> Handler:
    """InitProducerId: a producer without transactions needs no coordinator."""
    plain = as_handler(handler)

    def init_producer(ctx: Context, header: RequestHeader, request: InitProducerIdRequest) -> Outcome:
        if request.transactional_id is None:
            return plain(ctx, header, request)
        return InitProducerIdResponse(error_code=CODE, producer_id=-1, producer_epoch=-1)

    return init_producer


def _find(ctx: Context, header: RequestHeader, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if header.api_version < _SEVERAL_COORDINATORS_FROM:
        return FindCoordinatorResponse(error_code=CODE, error_message=TEXT, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=CODE, error_message=TEXT
            )
            for key in request.coordinator_keys
        ]
    )


def _commit(ctx: Context, header: RequestHeader, request: OffsetCommitRequest) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=CODE
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch(ctx: Context, header: RequestHeader, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if header.api_version >= _SEVERAL_GROUPS_FROM:
        groups = [
            OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=CODE)
            for group in request.groups
        ]
        return OffsetFetchResponse(groups=groups)
    topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=CODE
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    if header.api_version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponse(topics=topics, error_code=CODE)
    return OffsetFetchResponse(topics=topics)


def _join(ctx: Context, header: RequestHeader, request: object) -> JoinGroupResponse:
    no_name = None if header.api_version >= _PROTOCOL_MAY_BE_NULL_FROM else ""
    return JoinGroupResponse(error_code=CODE, protocol_name=no_name)


def _describe(ctx: Context, header: RequestHeader, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribeGroupsResponse.DescribedGroup(group_id=group, error_code=CODE) for group in request.groups]
    )


def _describe_consumers(
    ctx: Context, header: RequestHeader, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponse.DescribedGroup(group_id=group, error_code=CODE, error_message=TEXT)
            for group in request.group_ids
        ]
    )


def _delete(ctx: Context, header: RequestHeader, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group, error_code=CODE) for group in request.groups_names
        ]
    )


def _add_partitions(
    ctx: Context, header: RequestHeader, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if header.api_version < _SEVERAL_TRANSACTIONS_FROM:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_added(request.v3_and_below_topics))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id, topic_results=_added(asked.topics)
            )
            for asked in request.transactions
        ]
    )


def _added(topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]) -> list[AddedTopic]:
    return [
        AddedTopic(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=CODE
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _commit_in_transaction(
    ctx: Context, header: RequestHeader, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=CODE
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_transactions(
    ctx: Context, header: RequestHeader, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponse.TransactionState(transactional_id=name, error_code=CODE)
            for name in request.transactional_ids
        ]
    )


def _with(make: Callable[..., Any]) -> Handler:
    def answer(ctx: Context, header: RequestHeader, request: object) -> Outcome:
        said: Outcome = make(error_code=CODE)
        return said

    return answer


ANSWERS: dict[int, Handler] = {
    apis.OFFSET_COMMIT: _commit,
    apis.OFFSET_FETCH: _fetch,
    apis.FIND_COORDINATOR: _find,
    apis.JOIN_GROUP: _join,
    apis.HEARTBEAT: _with(HeartbeatResponse),
    apis.LEAVE_GROUP: _with(LeaveGroupResponse),
    apis.SYNC_GROUP: _with(SyncGroupResponse),
    apis.DESCRIBE_GROUPS: _describe,
    apis.LIST_GROUPS: _with(ListGroupsResponse),
    apis.ADD_PARTITIONS_TO_TXN: _add_partitions,
    apis.ADD_OFFSETS_TO_TXN: _with(AddOffsetsToTxnResponse),
    apis.END_TXN: _with(EndTxnResponse),
    apis.TXN_OFFSET_COMMIT: _commit_in_transaction,
    apis.DELETE_GROUPS: _delete,
    apis.OFFSET_DELETE: _with(OffsetDeleteResponse),
    apis.DESCRIBE_TRANSACTIONS: _describe_transactions,
    apis.LIST_TRANSACTIONS: _with(ListTransactionsResponse),
    apis.CONSUMER_GROUP_HEARTBEAT: _with(ConsumerGroupHeartbeatResponse),
    apis.CONSUMER_GROUP_DESCRIBE: _describe_consumers,
}
