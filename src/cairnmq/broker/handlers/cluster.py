"""DescribeCluster: the live brokers, and the one that Metadata names as controller, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.broker.requests.brokers import broker_addresses
from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_BROKERS, _CONTROLLERS = 1, 2
_UNKNOWN_OPERATIONS = -(2**31)
# Without an authorizer everybody may do everything: create, alter, describe, cluster action, describe and alter
# configs, idempotent write.
_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def handle(ctx: Context, header: RequestHeader, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker's listener; ask with endpoint type 1 (brokers)",
            endpoint_type=_BROKERS,
            cluster_id=ctx.node.cluster_id,
        )
    return DescribeClusterResponse(
        endpoint_type=_BROKERS,
        cluster_id=ctx.node.cluster_id,
        controller_id=ctx.leadership.told_controller,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in broker_addresses(ctx, header.caller)
        ],
        cluster_authorized_operations=(
            _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _UNKNOWN_OPERATIONS
        ),
    )
