"""ElectLeaders where every partition has its only possible leader."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import ElectLeadersRequest
from unit.broker.rig import open_rig, scenario

PREFERRED, UNCLEAN = 0, 1


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_no_election_is_needed(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        asked = [
            ElectLeadersRequest.TopicPartitions(topic="a", partitions=[1, 2]),
            ElectLeadersRequest.TopicPartitions(topic="none", partitions=[0]),
        ]
        answer = await rig.ask(43, version, ElectLeadersRequest(topic_partitions=asked))
        assert answer.error_code == 0
        assert {
            (each.topic, one.partition_id): one.error_code
            for each in answer.replica_election_results
            for one in each.partition_result
        } == {
            ("a", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("a", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


@scenario
async def test_all_partitions_name_none_that_stays_as_it_is(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        answer = await rig.ask(43, 2, ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None))
        assert (answer.error_code, answer.replica_election_results) == (0, [])


@scenario
async def test_an_unknown_kind_of_election(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        answer = await rig.ask(43, 2, ElectLeadersRequest(election_type=7, topic_partitions=None))
        assert (answer.error_code, answer.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])
        one = ElectLeadersRequest.TopicPartitions(topic="a", partitions=[0])
        answer = await rig.ask(43, 2, ElectLeadersRequest(election_type=7, topic_partitions=[one]))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        (result,) = answer.replica_election_results[0].partition_result
        assert (result.partition_id, result.error_code) == (0, ErrorCode.INVALID_REQUEST)
