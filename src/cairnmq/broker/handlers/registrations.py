"""ForgetBroker, our own: a broker that will not come back is no longer one of the cluster."""

from __future__ import annotations

from cairnmq.broker.context import Context
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ForgetBrokerRequest, ForgetBrokerResponse

_ALONE = Refusal(ErrorCode.INVALID_REQUEST, "this broker is alone: there is no other one to forget")


async def forget(ctx: Context, header: RequestHeader, request: ForgetBrokerRequest) -> ForgetBrokerResponse:
    refusal = _ALONE if ctx.forget_broker is None else await ctx.forget_broker(request.broker_id)
    code, why = (ErrorCode.NONE, None) if refusal is None else (refusal.code, refusal.message)
    return ForgetBrokerResponse(error_code=code, error_message=why)
