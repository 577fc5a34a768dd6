"""ForgetBroker: what the cluster decides is told."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from cairnmq.broker.handlers import registrations
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.wire.apis import FORGET_BROKER
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ForgetBrokerRequest
from unit.broker.rig import open_rig, scenario


async def forget(broker: int) -> Refusal | None:
    return None if broker == 3 else Refusal(ErrorCode.INVALID_REQUEST, f"broker {broker} is up")


@scenario
async def test_a_broker_is_forgotten_or_not(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        alone = await rig.ask(FORGET_BROKER, 0, ForgetBrokerRequest(broker_id=3))
        assert alone.error_code == ErrorCode.INVALID_REQUEST and "this broker is alone" in alone.error_message
        ctx, header = replace(rig.ctx, forget_broker=forget), RequestHeader(FORGET_BROKER, 0, 1, "test")
        done = await registrations.forget(ctx, header, ForgetBrokerRequest(broker_id=3))
        assert (done.error_code, done.error_message) == (0, None)
        refused = await registrations.forget(ctx, header, ForgetBrokerRequest(broker_id=1))
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "broker 1 is up")
