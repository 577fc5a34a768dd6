"""ApiVersions: what this broker serves, no more. No features are offered, so none is finalized."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: Context, header: RequestHeader, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if header.api_version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in ctx.router.advertised()
        ],
        finalized_features_epoch=0,
    )
