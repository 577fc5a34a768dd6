"""The live brokers as a client is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cairnmq.broker.leadership import KnownBroker
from cairnmq.types import Caller

if TYPE_CHECKING:
    from cairnmq.broker.context import Context


def broker_addresses(ctx: Context, caller: Caller) -> list[KnownBroker]:
    """In the order of their ids; this one at the listener by which the client came."""
    own = ctx.node.address_for(caller)
    return [
        replace(broker, host=own.host, port=own.port) if broker.node_id == ctx.node.node_id else broker
        for broker in ctx.leadership.brokers
    ]
