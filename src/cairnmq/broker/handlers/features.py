"""UpdateFeatures: this broker offers no feature that could be finalized, so no update can succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_RESULTS_UNTIL = 1  # later versions carry only one error for all


def handle(ctx: Context, header: RequestHeader, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(
            feature=update.feature,
            error_code=ErrorCode.INVALID_UPDATE_VERSION,
            error_message=f"this broker does not offer the feature {update.feature!r}",
        )
        for update in request.feature_updates
    ]
    if header.api_version <= _RESULTS_UNTIL or not results:
        return UpdateFeaturesResponse(error_message=None, results=results)
    return UpdateFeaturesResponse(error_code=results[0].error_code, error_message=results[0].error_message)
