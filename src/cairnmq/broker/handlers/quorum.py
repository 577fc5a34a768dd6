"""DescribeQuorum: one broker decides about metadata alone, so it is the leader and the only voter.

The metadata store's revision stands for the offset of Kafka's metadata log: both count changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Described: TypeAlias = DescribeQuorumResponse.PartitionData

_METADATA_TOPIC = "__cluster_metadata"


def handle(ctx: Context, header: RequestHeader, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    node = ctx.node
    listeners = [
        DescribeQuorumResponse.Listener(name=spec.name, host=spec.advertised.host, port=spec.advertised.port)
        for spec in node.listeners
    ]
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            DescribeQuorumResponse.TopicData(
                topic_name=topic.topic_name,
                partitions=[_describe(ctx, topic.topic_name, each.partition_index) for each in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=[DescribeQuorumResponse.Node(node_id=node.node_id, listeners=listeners)],
    )


def _describe(ctx: Context, topic: str, partition: int) -> Described:
    if topic != _METADATA_TOPIC or partition != 0:
        return Described(
            partition_index=partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"only {_METADATA_TOPIC}-0 has a quorum",
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
        )
    revision, now_ms = ctx.catalog.image.version, ctx.clock()
    voter = DescribeQuorumResponse.ReplicaState(
        replica_id=ctx.node.node_id,
        log_end_offset=revision,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return Described(
        partition_index=partition,
        error_message=None,
        leader_id=ctx.node.node_id,
        leader_epoch=max(ctx.store.epochs.values()),
        high_watermark=revision,
        current_voters=[voter],
    )
