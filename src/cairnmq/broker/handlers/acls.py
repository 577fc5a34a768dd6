"""DescribeAcls, CreateAcls, DeleteAcls: there is no authorizer, and that is what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_WHY = "this broker has no authorizer: all clients may do everything"


def describe(ctx: Context, header: RequestHeader, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)


def create(ctx: Context, header: RequestHeader, request: CreateAclsRequest) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)
            for _ in request.creations
        ]
    )


def delete(ctx: Context, header: RequestHeader, request: DeleteAclsRequest) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)
            for _ in request.filters
        ]
    )
