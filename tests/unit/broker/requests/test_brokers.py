"""Which address of a broker a client is told."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from cairnmq.broker.leadership import KnownBroker
from cairnmq.broker.options import Address, ListenerSpec
from cairnmq.broker.requests.brokers import broker_addresses
from cairnmq.types import Caller
from unit.broker.rig import LISTENER, OTHERS, open_rig, scenario


@scenario
async def test_the_own_one_is_that_of_the_clients_listener(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        rig.join_cluster()
        side = ListenerSpec("SIDE", LISTENER.protocol, Address("0.0.0.0", 9094), Address("outside", 9095))
        ctx = replace(rig.ctx, node=replace(rig.ctx.node, listeners=(LISTENER, side)))
        assert broker_addresses(ctx, Caller()) == [KnownBroker(1, "127.0.0.1", 9092, "rack-1"), *OTHERS]
        assert broker_addresses(ctx, Caller(listener="SIDE")) == [KnownBroker(1, "outside", 9095, "rack-1"), *OTHERS]
