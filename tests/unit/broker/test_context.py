"""What handlers know of this broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cairnmq.broker.options import PLAINTEXT, Address, ListenerSpec
from cairnmq.wire.apis import DESCRIBE_CLUSTER, DESCRIBE_QUORUM, FIND_COORDINATOR, METADATA
from cairnmq.wire.messages import (
    DescribeClusterRequest,
    DescribeQuorumRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from unit.broker.rig import LISTENER, Rig, open_rig, scenario

INTERNAL = ListenerSpec("INTERNAL", PLAINTEXT, Address("10.0.0.1", 19092), Address("internal.example.org", 19092))


async def told(rig: Rig, key: int, version: int, request: Any) -> tuple[str, int]:
    response = await rig.ask(key, version, request)
    (one,) = response.coordinators if key == FIND_COORDINATOR else response.brokers
    return one.host, one.port


@scenario
async def test_clients_are_told_the_address_of_their_listener(tmp_path: Path) -> None:
    """Also where the response is kept from the same request of another client."""
    async with open_rig(tmp_path) as rig:
        await rig.create("t")
        rig.ctx = replace(rig.ctx, node=replace(rig.ctx.node, listeners=(LISTENER, INTERNAL)))
        for listener, address in (
            ("PLAINTEXT", ("127.0.0.1", 9092)),
            ("INTERNAL", ("internal.example.org", 19092)),
            ("PLAINTEXT", ("127.0.0.1", 9092)),
        ):
            rig.listener = listener
            assert await told(rig, METADATA, 12, MetadataRequest(topics=None)) == address
            assert await told(rig, DESCRIBE_CLUSTER, 1, DescribeClusterRequest()) == address
            assert await told(rig, FIND_COORDINATOR, 6, FindCoordinatorRequest(coordinator_keys=["g"])) == address
        (node,) = (await rig.ask(DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=[]))).nodes
        assert [each.name for each in node.listeners] == ["PLAINTEXT", "INTERNAL"]
