"""DescribeProducers: the idempotent producers that a queue remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import NO_PARTITION, find_queue
from cairnmq.errors import Refusal
from cairnmq.metadata.image import Topic
from cairnmq.metadata.topics import check_name
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Described: TypeAlias = DescribeProducersResponse.PartitionResponse


def handle(ctx: Context, header: RequestHeader, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topics = []
    for asked in request.topics:
        topic = ctx.catalog.image.topic(asked.name)
        wrong = None if topic is not None else check_name(asked.name)
        missing = NO_PARTITION if wrong is None else Refusal(wrong.code, NO_PARTITION.message)
        topics.append(
            DescribeProducersResponse.TopicResponse(
                name=asked.name,
                partitions=[_describe(ctx, topic, partition, missing) for partition in asked.partition_indexes],
            )
        )
    return DescribeProducersResponse(topics=topics)


def _describe(ctx: Context, topic: Topic | None, partition: int, missing: Refusal) -> Described:
    queue = find_queue(ctx, topic, partition, missing)
    if isinstance(queue, Refusal):
        return Described(partition_index=partition, error_code=queue.code, error_message=queue.message)
    return Described(
        partition_index=partition,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=row.producer_id,
                producer_epoch=row.epoch,
                last_sequence=row.batches[-1][1] if row.batches else -1,
                last_timestamp=row.timestamp,
                coordinator_epoch=row.coordinator_epoch,
                current_txn_start_offset=row.txn_start,
            )
            for row in queue.state.producers.values()
        ],
    )
