"""DescribeQuorum of one broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import DescribeQuorumRequest
from unit.broker.rig import NOW_MS, Rig, open_rig, scenario


async def describe(rig: Rig, version: int, topic: str = "__cluster_metadata", partition: int = 0) -> Any:
    asked = DescribeQuorumRequest.PartitionData(partition_index=partition)
    request = DescribeQuorumRequest(topics=[DescribeQuorumRequest.TopicData(topic_name=topic, partitions=[asked])])
    answer = await rig.ask(55, version, request)
    assert answer.error_code == 0
    assert answer.topics[0].topic_name == topic
    return answer, answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_this_broker_is_the_only_voter(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        answer, before = await describe(rig, version)
        assert (before.leader_id, before.leader_epoch, before.error_code) == (1, rig.ctx.store.engine.epoch, 0)
        (voter,) = before.current_voters
        assert (voter.replica_id, voter.log_end_offset, before.observers) == (1, before.high_watermark, [])
        assert voter.last_caught_up_timestamp == (NOW_MS if version >= 1 else -1)
        if version >= 2:
            (node,) = answer.nodes
            (listener,) = node.listeners
            assert (node.node_id, listener.name, listener.host, listener.port) == (1, "PLAINTEXT", "127.0.0.1", 9092)
        await rig.create("a")
        _, after = await describe(rig, version)
        assert after.high_watermark > before.high_watermark


@pytest.mark.parametrize(("topic", "partition"), [("a", 0), ("__cluster_metadata", 1)])
@scenario
async def test_nothing_else_has_a_quorum(tmp_path: Path, topic: str, partition: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        _, found = await describe(rig, 2, topic, partition)
        assert (found.partition_index, found.error_code) == (partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (found.leader_id, found.current_voters) == (-1, [])
