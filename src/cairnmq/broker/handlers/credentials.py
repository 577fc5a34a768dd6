"""DescribeUserScramCredentials: nobody has any. kafka-configs asks for them whenever it describes users."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Described: TypeAlias = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(
    ctx: Context, header: RequestHeader, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            Described(
                user=user.name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message="the user has no credentials; this broker does not support SASL yet",
            )
            for user in request.users or ()
        ],
    )
