"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import find_queue
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.storage.api.serving import Marker, Queue
from cairnmq.transactions.messages import Add, End, Producer
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

AskedTopics: TypeAlias = Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
TopicResult: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
Result: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Ended: TypeAlias = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

_FENCED_IS_KNOWN_FROM = 2  # before, producers know only that their epoch is wrong
_SEVERAL_FROM = 4  # of AddPartitionsToTxn
_EPOCH_PER_TRANSACTION_FROM = 5  # of EndTxn: transaction version 2


def _known(error: ErrorCode, version: int) -> ErrorCode:
    old = error is ErrorCode.PRODUCER_FENCED and version < _FENCED_IS_KNOWN_FROM
    return ErrorCode.INVALID_PRODUCER_EPOCH if old else error


async def add_partitions(
    ctx: Context, header: RequestHeader, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    version = header.api_version
    if version < _SEVERAL_FROM:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        results = await _add(
            ctx, request.v3_and_below_transactional_id, producer, request.v3_and_below_topics, version, verify=False
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            Result(
                transactional_id=asked.transactional_id,
                topic_results=await _add(
                    ctx,
                    asked.transactional_id,
                    Producer(asked.producer_id, asked.producer_epoch),
                    asked.topics,
                    version,
                    verify=asked.verify_only,
                ),
            )
            for asked in request.transactions
        ]
    )


async def _add(
    ctx: Context, transactional_id: str, producer: Producer, topics: AskedTopics, version: int, *, verify: bool
) -> list[TopicResult]:
    """All partitions or none, as in Kafka: with an unknown one among them the others are not attempted."""
    transactions = ctx.coordinators.of_transaction(transactional_id)
    if isinstance(transactions, ErrorCode):
        return _results(topics, lambda name, partition: transactions)
    queues: dict[tuple[str, int], int] = {}
    for asked in topics:
        topic = ctx.catalog.image.topic(asked.name)
        for partition in asked.partitions:
            queue_id = None if topic is None else topic.queue_id(partition)  # wherever it is led
            if queue_id is not None:
                queues[asked.name, partition] = queue_id
    error = ErrorCode.NONE
    if not transactional_id:
        error = ErrorCode.INVALID_REQUEST
    elif len(queues) < sum(len(set(asked.partitions)) for asked in topics):
        error = ErrorCode.OPERATION_NOT_ATTEMPTED
    elif not verify:
        error = await transactions.added(Add(transactional_id, producer, queues.values()))

    def result(name: str, partition: int) -> ErrorCode:
        if (name, partition) not in queues:
            return error if error is ErrorCode.INVALID_REQUEST else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error or not verify:
            return _known(error, version)
        verdict = transactions.core.verify(transactional_id, producer, queue=queues[name, partition])
        return ErrorCode.TRANSACTION_ABORTABLE if verdict is ErrorCode.INVALID_TXN_STATE else verdict

    return _results(topics, result)


def _results(topics: AskedTopics, result: Callable[[str, int], ErrorCode]) -> list[TopicResult]:
    return [
        TopicResult(
            name=asked.name,
            results_by_partition=[
                PartitionResult(partition_index=partition, partition_error_code=result(asked.name, partition))
                for partition in asked.partitions
            ],
        )
        for asked in topics
    ]


async def add_offsets(ctx: Context, header: RequestHeader, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    transactions = ctx.coordinators.of_transaction(request.transactional_id)
    if isinstance(transactions, ErrorCode):
        return AddOffsetsToTxnResponse(error_code=transactions)
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    producer = Producer(request.producer_id, request.producer_epoch)
    error = await transactions.added(Add(request.transactional_id, producer, groups=(request.group_id,)))
    return AddOffsetsToTxnResponse(error_code=_known(error, header.api_version))


async def end(ctx: Context, header: RequestHeader, request: EndTxnRequest) -> EndTxnResponse:
    transactions = ctx.coordinators.of_transaction(request.transactional_id)
    if isinstance(transactions, ErrorCode):
        return EndTxnResponse(error_code=transactions)
    answer = await transactions.end(
        End(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.committed,
            raises_epoch=header.api_version >= _EPOCH_PER_TRANSACTION_FROM,
        )
    )
    return EndTxnResponse(
        error_code=_known(answer.error, header.api_version),
        producer_id=answer.producer_id,
        producer_epoch=answer.epoch,
    )


async def write_markers(
    ctx: Context, header: RequestHeader, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """An administrator ends a transaction that hangs in a partition (`kafka-transactions.sh abort`)."""
    markers: list[Marker] = []
    ended: list[Ended] = []
    results = []
    for asked in request.markers:
        topics = []
        for asked_topic in asked.topics:
            topic = ctx.catalog.image.topic(asked_topic.name)
            answers = []
            for partition in asked_topic.partition_indexes:
                queue = find_queue(ctx, topic, partition)
                answer = Ended(partition_index=partition)
                answers.append(answer)
                if isinstance(queue, Refusal):
                    answer.error_code = queue.code
                elif ctx.transactions is not None and asked.coordinator_epoch > _heard(queue, asked.producer_id):
                    answer.error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED  # it would fence the coordinator
                else:
                    ended.append(answer)
                    markers.append(
                        Marker(
                            queue.queue_id,
                            asked.producer_id,
                            asked.producer_epoch,
                            asked.transaction_result,
                            asked.coordinator_epoch,
                            max(asked.transaction_version, 1),
                        )
                    )
            topics.append(
                WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=asked_topic.name, partitions=answers)
            )
        results.append(WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics))
    codes: Sequence[ErrorCode]
    if ctx.transactions is not None:
        codes = await ctx.transactions.service.write_led(markers)
    else:
        try:
            codes = await ctx.store.write_markers(markers)
        except Fault:
            codes = [ErrorCode.KAFKA_STORAGE_ERROR] * len(markers)
    for answer, code in zip(ended, codes, strict=True):
        answer.error_code = code
    return WriteTxnMarkersResponse(markers=results)


def _heard(queue: Queue, producer_id: int) -> int:
    """The latest coordinator's epoch that a queue knows of a producer. Coordinators elsewhere may have later ones."""
    row = queue.state.producers.get(producer_id)
    return max(row.coordinator_epoch, 0) if row is not None else 0
