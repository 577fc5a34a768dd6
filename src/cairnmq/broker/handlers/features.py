"""UpdateFeatures: this broker offers no feature that could be finalized, so no update can succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context


def handle(ctx: Context, header: RequestHeader, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """One error for all, as Kafka 4 answers in every version: updates are done together or not at all."""
    if not request.feature_updates:
        return UpdateFeaturesResponse(error_message=None)
    names = ", ".join(update.feature for update in request.feature_updates)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"this broker offers no features that could be updated: {names}",
    )
