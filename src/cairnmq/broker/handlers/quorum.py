"""DescribeQuorum: one broker, the controller, decides about leaders, so it is the leader and the only voter; the others
observe. The metadata are in a store that none of them is.

The store's revision stands for the offset of Kafka's metadata log: both count changes. How far other brokers have read
is not known here (-1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.broker.leadership import KnownBroker

Described: TypeAlias = DescribeQuorumResponse.PartitionData
Listener: TypeAlias = DescribeQuorumResponse.Listener
ReplicaState: TypeAlias = DescribeQuorumResponse.ReplicaState

_METADATA_TOPIC = "__cluster_metadata"


def handle(ctx: Context, header: RequestHeader, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            DescribeQuorumResponse.TopicData(
                topic_name=topic.topic_name,
                partitions=[_describe(ctx, topic.topic_name, each.partition_index) for each in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=[
            DescribeQuorumResponse.Node(node_id=broker.node_id, listeners=_listeners(ctx, broker))
            for broker in ctx.leadership.brokers
        ],
    )


def _listeners(ctx: Context, broker: KnownBroker) -> list[Listener]:
    """Of another broker only the one that clients of all are told."""
    if broker.node_id != ctx.node.node_id:
        return [Listener(name=ctx.node.listeners[0].name, host=broker.host, port=broker.port)]
    return [
        Listener(name=spec.name, host=spec.advertised.host, port=spec.advertised.port) for spec in ctx.node.listeners
    ]


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
    revision, now_ms, leadership = ctx.catalog.image.version, ctx.clock(), ctx.leadership
    states = {
        broker.node_id: ReplicaState(
            replica_id=broker.node_id,
            log_end_offset=revision,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        if broker.node_id == ctx.node.node_id
        else ReplicaState(replica_id=broker.node_id, log_end_offset=-1)
        for broker in leadership.brokers
    }
    voter = states.pop(leadership.controller, None)
    return Described(
        partition_index=partition,
        error_message=None,
        leader_id=leadership.controller,
        leader_epoch=max((view.epoch for view in leadership.views.values()), default=-1),
        high_watermark=revision,
        current_voters=[] if voter is None else [voter],
        observers=list(states.values()),
    )
