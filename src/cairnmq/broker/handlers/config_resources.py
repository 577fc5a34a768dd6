"""ListConfigResources: what DescribeConfigs has something to say about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ListConfigResourcesRequest, ListConfigResourcesResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_KNOWN = (_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP)


def handle(ctx: Context, header: RequestHeader, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    # Version 0 is ListClientMetricsResources, which it was called before.
    asked = [_CLIENT_METRICS] if header.api_version == 0 else request.resource_types or _KNOWN
    if any(kind not in _KNOWN for kind in asked):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(asked)
            for name in _names(ctx, kind)
        ]
    )


def _names(ctx: Context, kind: int) -> list[str]:
    image = ctx.catalog.image
    if kind == _TOPIC:
        return sorted(image.topics)
    if kind == _BROKER:
        return [str(broker.node_id) for broker in ctx.leadership.brokers]
    return sorted(image.group_configs) if kind == _GROUP else []
