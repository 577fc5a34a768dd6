"""ElectLeaders where every partition has its only possible leader, and in a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cairnmq.broker.handlers import elections
from cairnmq.broker.leadership import JournalView
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ElectLeadersRequest, ElectLeadersResponse, ElectUncleanRequest
from unit.broker.rig import Rig, open_rig, scenario

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


class Elections:
    """Journal 0 goes back to its first replica; the first one of journal 1 is not in sync."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def preferred(self, journal: int) -> Refusal | None:
        self.asked.append(journal)
        if journal == 0:
            return None
        if journal == 1:
            return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 3 is not in sync")
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, "it leads")

    async def unclean(self, journal: int) -> Refusal | None:
        raise AssertionError("Kafka's request has no room for what may be lost")


VIEWS = (JournalView(2, 5, (1, 2), (1, 2)), JournalView(2, 5, (3, 2), (2,)), JournalView(2, 5, (2, 1), (2, 1)))


def outcomes(answer: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (each.topic, one.partition_id): one.error_code
        for each in answer.replica_election_results
        for one in each.partition_result
    }


async def elect(rig: Rig, kind: int, asked: list[ElectLeadersRequest.TopicPartitions] | None) -> tuple[Any, list[int]]:
    chosen = Elections()
    ctx = replace(rig.ctx, elections=chosen)
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    return await elections.handle(ctx, RequestHeader(43, 2, 1, "test"), request), chosen.asked


@scenario
async def test_preferred_leaders_of_a_cluster(tmp_path: Path) -> None:
    """One election for each journal, whatever the number of its partitions."""
    async with open_rig(tmp_path, journals=(0, 1, 2)) as rig:
        topic = await rig.create("a", partitions=6)
        await rig.create("b")
        rig.join_cluster(*VIEWS)
        places = {partition: journal for partition, _, journal in topic.places()}
        asked = [ElectLeadersRequest.TopicPartitions(topic="a", partitions=[*range(7)])]
        answer, journals = await elect(rig, PREFERRED, asked)
        assert sorted(journals) == [0, 1, 2]
        codes = {0: 0, 1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2: ErrorCode.ELECTION_NOT_NEEDED}
        expected = {("a", partition): codes[journal] for partition, journal in places.items()}
        assert outcomes(answer) == expected | {("a", 6): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        answer, journals = await elect(rig, PREFERRED, None)
        assert sorted(journals) == [0, 1], "where the first replica leads already, nothing is asked"
        told = outcomes(answer)
        assert {key: code for key, code in told.items() if key[0] == "a"} == {
            ("a", partition): codes[journal] for partition, journal in places.items() if journal != 2
        }


class SlowElections:
    """The first one never comes to an end."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def preferred(self, journal: int) -> Refusal | None:
        self.asked.append(journal)
        await asyncio.Event().wait()
        return None

    unclean = preferred


@scenario
async def test_an_election_is_waited_for_as_long_as_the_client_says(tmp_path: Path) -> None:
    async with open_rig(tmp_path, journals=(0, 1, 2)) as rig:
        await rig.create("a", partitions=3)
        rig.join_cluster(*VIEWS)
        slow = SlowElections()
        ctx, header = replace(rig.ctx, elections=slow), RequestHeader(43, 2, 1, "test")
        asked = [ElectLeadersRequest.TopicPartitions(topic="a", partitions=[*range(3)])]
        answer = await elections.handle(ctx, header, ElectLeadersRequest(topic_partitions=asked, timeout_ms=20))
        assert {*outcomes(answer).values()} == {ErrorCode.REQUEST_TIMED_OUT} and len(slow.asked) == 1
        unclean = await elections.elect_unclean(ctx, header, ElectUncleanRequest(journals=[0, 1], timeout_ms=20))
        assert [row.error_code for row in unclean.results] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        assert [str(row.error_message).rpartition("; ")[2] for row in unclean.results] == [
            "it may be made later",
            "it is not made",
        ]


@scenario
async def test_an_unclean_election_is_not_made_by_kafkas_request(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        asked = [ElectLeadersRequest.TopicPartitions(topic="a", partitions=[0])]
        rig.join_cluster(VIEWS[0])
        answer, _ = await elect(rig, UNCLEAN, asked)
        assert outcomes(answer) == {("a", 0): ErrorCode.ELECTION_NOT_NEEDED}
        rig.join_cluster(JournalView(-1, 6, (1, 2), (1,)))
        answer, _ = await elect(rig, UNCLEAN, asked)
        assert outcomes(answer) == {("a", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        message = answer.replica_election_results[0].partition_result[0].error_message
        assert "`cairn cluster elect --unclean 0`" in message
