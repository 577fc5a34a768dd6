"""DescribeCluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import DescribeClusterRequest
from unit.broker.rig import open_rig, scenario

KEY = 60


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_one_broker(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(KEY, version, DescribeClusterRequest())
        assert (answer.error_code, answer.controller_id, answer.cluster_id) == (0, 1, rig.ctx.node.cluster_id)
        assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [(1, "127.0.0.1", 9092, "rack-1")]
        assert answer.cluster_authorized_operations == -(2**31)
        told = await rig.ask(KEY, version, DescribeClusterRequest(include_cluster_authorized_operations=True))
        assert told.cluster_authorized_operations > 0


@scenario
async def test_controllers_are_asked_elsewhere(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(KEY, 1, DescribeClusterRequest(endpoint_type=2))
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE and answer.brokers == []
        answer = await rig.ask(KEY, 1, DescribeClusterRequest(endpoint_type=9))
        assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE and answer.brokers == []


@scenario
async def test_three_brokers(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        rig.join_cluster()
        answer = await rig.ask(KEY, 1, DescribeClusterRequest())
        assert answer.controller_id == 2
        rig.ctx.leadership.know_brokers(rig.ctx.leadership.brokers, -1)
        told = await rig.ask(KEY, 1, DescribeClusterRequest())
        assert told.controller_id == 1, "nobody is elected; as Metadata has it"
        assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [
            (1, "127.0.0.1", 9092, "rack-1"),
            (2, "second", 9192, "rack-2"),
            (3, "third", 9292, None),
        ]
