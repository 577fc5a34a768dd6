"""FindCoordinator: the only broker coordinates every group and every transactional id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_GROUP, _TRANSACTION = 0, 1


def handle(ctx: Context, header: RequestHeader, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    refusal = _refusal(request.key_type)
    code = ErrorCode.NONE if refusal is None else refusal.code
    message = None if refusal is None else refusal.message
    address = ctx.node.address_for(header.caller)
    node_id, host, port = (ctx.node.node_id, address.host, address.port) if refusal is None else (-1, "", -1)
    if header.api_version >= 4:
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message
                )
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=node_id, host=host, port=port)


def _refusal(key_type: int) -> Refusal | None:
    if key_type in (_GROUP, _TRANSACTION):
        return None
    return Refusal(ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not supported")
