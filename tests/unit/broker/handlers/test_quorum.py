"""DescribeQuorum of one broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.leadership import JournalView
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


@scenario
async def test_the_controller_of_a_cluster_is_the_voter(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        rig.join_cluster(JournalView(2, 8, (1, 2), (1, 2)))
        answer, found = await describe(rig, 2)
        assert (found.leader_id, found.leader_epoch) == (2, 8)
        assert [(each.replica_id, each.log_end_offset) for each in found.current_voters] == [(2, -1)]
        assert [each.replica_id for each in found.observers] == [1, 3]
        assert found.observers[0].log_end_offset == found.high_watermark
        assert [(node.node_id, node.listeners[0].port) for node in answer.nodes] == [(1, 9092), (2, 9192), (3, 9292)]
        rig.ctx.leadership.know_brokers(rig.ctx.leadership.brokers, -1)
        _, found = await describe(rig, 2)
        assert (found.leader_id, found.current_voters) == (-1, [])
