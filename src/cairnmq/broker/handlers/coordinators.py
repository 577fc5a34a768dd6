"""FindCoordinator: who leads the journal that holds a group's or transactional id's facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.broker.coordination.coordinators import Place
from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_GROUP, _TRANSACTION = 0, 1
_SEVERAL_FROM = 4
_NOWHERE = Place(-1, "", -1)


def handle(ctx: Context, header: RequestHeader, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if header.api_version >= _SEVERAL_FROM:
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key,
                    node_id=place.node_id,
                    host=place.host,
                    port=place.port,
                    error_code=code,
                    error_message=text,
                )
                for key in request.coordinator_keys
                for place, code, text in (_found(ctx, header, request.key_type, key),)
            ]
        )
    place, code, text = _found(ctx, header, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=code, error_message=text, node_id=place.node_id, host=place.host, port=place.port
    )


def _found(ctx: Context, header: RequestHeader, key_type: int, key: str) -> tuple[Place, ErrorCode, str | None]:
    if key_type not in (_GROUP, _TRANSACTION):
        return _NOWHERE, ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not supported"
    found = ctx.coordinators.find(key)
    if isinstance(found, ErrorCode):
        return _NOWHERE, found, ctx.coordinators.why(found)
    if found.node_id == ctx.node.node_id:
        address = ctx.node.address_for(header.caller)
        found = Place(found.node_id, address.host, address.port)
    return found, ErrorCode.NONE, None
