"""DescribeUserScramCredentials: nobody has any. kafka-configs asks for them whenever it describes users."""

from __future__ import annotations

from collections import Counter
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
    named = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[_twice(user) if count > 1 else _without(user) for user, count in named.items()],
    )


def _twice(user: str) -> Described:
    return Described(
        user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message="the user is named more than once"
    )


def _without(user: str) -> Described:
    return Described(
        user=user,
        error_code=ErrorCode.RESOURCE_NOT_FOUND,
        error_message="the user has no credentials; this broker does not support SASL yet",
    )
