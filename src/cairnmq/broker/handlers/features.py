"""UpdateFeatures: levels of features are fixed here, so the only update that can succeed is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.broker.requests.features import FEATURES
from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_LEVELS = {feature.name: feature.level for feature in FEATURES}


def handle(ctx: Context, header: RequestHeader, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """One error for all, as Kafka 4 answers in every version: updates are done together or not at all."""
    for update in request.feature_updates:
        level = _LEVELS.get(update.feature)
        if level is None:
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=f"there is no feature {update.feature}"
            )
        if update.max_version_level != level:
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=(
                    f"{update.feature} is fixed at {level} and cannot be changed to {update.max_version_level}"
                ),
            )
    return UpdateFeaturesResponse(error_message=None)
