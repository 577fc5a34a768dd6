"""What is told of offsets that could not be stored."""

from __future__ import annotations

from cairnmq.errors import ErrorCode
from cairnmq.groups.offset_messages import OffsetErrors


def test_other_errors_stay() -> None:
    told = OffsetErrors([ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE])
    assert told.unless_stored() == OffsetErrors(
        [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    )
