"""Reassignments with one broker: staying is fine, going is not, and nothing is ever under way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.leadership import JournalView
from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from unit.broker.rig import Rig, open_rig, scenario


async def reassign(rig: Rig, topic: str, partition: int, replicas: list[int] | None, version: int = 1) -> Any:
    wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=replicas)
    asked = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[wanted])
    answer = await rig.ask(45, version, AlterPartitionReassignmentsRequest(topics=[asked]))
    assert answer.error_code == 0
    (result,) = answer.responses[0].partitions
    assert (result.error_code == 0) == (result.error_message is None)
    return result.error_code


@pytest.mark.parametrize("version", [0, 1])
@scenario
async def test_where_a_partition_may_be(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await reassign(rig, "a", 0, [1], version) == 0
        for elsewhere in ([2], [1, 2], [1, 1], []):
            assert await reassign(rig, "a", 0, elsewhere, version) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await reassign(rig, "a", 0, None, version) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await reassign(rig, "a", 1, [1], version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await reassign(rig, "none", 0, None, version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("all_topics", [True, False])
@scenario
async def test_none_is_under_way(tmp_path: Path, all_topics: bool) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await reassign(rig, "a", 0, [1]) == 0
        asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="a", partition_indexes=[0])
        answer = await rig.ask(46, 0, ListPartitionReassignmentsRequest(topics=None if all_topics else [asked]))
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


@scenario
async def test_a_partition_of_a_cluster_stays_on_its_journals_replicas(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.join_cluster(JournalView(2, 5, (2, 3), (2, 3)))  # led elsewhere: any broker may be asked
        assert await reassign(rig, "a", 0, [2, 3]) == 0
        for elsewhere in ([1, 2], [3, 2], [2]):
            assert await reassign(rig, "a", 0, elsewhere) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
