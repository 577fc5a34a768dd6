"""The brokers as a client is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cairnmq.broker.leadership import KnownBroker
from cairnmq.types import Caller

if TYPE_CHECKING:
    from cairnmq.broker.context import Context


def broker_addresses(ctx: Context, caller: Caller, *, departed: bool = False) -> list[KnownBroker]:
    """In the order of their ids; this one at the listener by which the client came. `departed`: also those that died a
    moment ago."""
    brokers = ctx.leadership.brokers
    if departed and ctx.leadership.departed:
        brokers = tuple(sorted((*brokers, *ctx.leadership.departed), key=lambda broker: broker.node_id))
    own = ctx.node.address_for(caller)
    return [
        replace(broker, host=own.host, port=own.port) if broker.node_id == ctx.node.node_id else broker
        for broker in brokers
    ]
