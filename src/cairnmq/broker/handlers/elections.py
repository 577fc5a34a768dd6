"""ElectLeaders: the only broker leads every partition already."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import find_queue
from cairnmq.errors import ErrorCode
from cairnmq.metadata.image import Topic
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Elected: TypeAlias = ElectLeadersResponse.PartitionResult

_PREFERRED, _UNCLEAN = 0, 1


def handle(ctx: Context, header: RequestHeader, request: ElectLeadersRequest) -> ElectLeadersResponse:
    known = request.election_type in (_PREFERRED, _UNCLEAN)
    image = ctx.catalog.image
    # Asked for all partitions, Kafka names only those whose leader changed or could not change: here, none.
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    _elect(ctx, image.topic(asked.topic), partition) if known else _unknown_kind(partition)
                    for partition in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )


def _elect(ctx: Context, topic: Topic | None, partition: int) -> Elected:
    if find_queue(ctx, topic, partition) is None:
        code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
    else:
        code, why = (
            ErrorCode.ELECTION_NOT_NEEDED,
            f"broker {ctx.node.node_id} is already the leader and the only replica",
        )
    return Elected(partition_id=partition, error_code=code, error_message=why)


def _unknown_kind(partition: int) -> Elected:
    """Java reads the outcome of each partition, also when the whole request is wrong."""
    return Elected(
        partition_id=partition,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="the election type is neither 0 (preferred) nor 1 (unclean)",
    )
