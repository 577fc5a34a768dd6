"""ApiVersions: what this broker serves, no more; the features that are finalized."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cairnmq.broker.requests.features import FEATURES
from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MINIMUM_OF_ZERO_FROM = 4  # older Java clients do not take a feature whose lowest version is 0


def handle(ctx: Context, header: RequestHeader, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if header.api_version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted, here = (request.cluster_id, request.node_id), (ctx.node.cluster_id, ctx.node.node_id)
    if request.cluster_id is not None and wanted != here:
        # KIP-1242: an address that another broker had, or a proxy, led it here. It goes back to its bootstrap list.
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in ctx.router.advertised()
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=one.name, min_version=one.min, max_version=one.max)
            for one in FEATURES
            if one.min or header.api_version >= _MINIMUM_OF_ZERO_FROM
        ],
        finalized_features_epoch=0,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=one.name, max_version_level=one.level, min_version_level=one.level
            )
            for one in FEATURES
        ],
    )
