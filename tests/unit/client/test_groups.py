"""Plans for groups carried out by hand: who is asked, what older brokers say, what is tried again."""

from __future__ import annotations

import pytest

from cairnmq.client import groups, offsets
from cairnmq.client.errors import Refused
from cairnmq.client.session import Ask, Session
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    Message,
    MetadataRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from scripted_broker import metadata, topic_id
from unit.client.test_session import Run


def coordinator(node: int) -> FindCoordinatorResponse:
    row = FindCoordinatorResponse.Coordinator(key="g", node_id=node, host="h", port=1)
    return FindCoordinatorResponse(coordinators=[row])


def described(state: str = "Stable", **fields: object) -> DescribeGroupsResponse:
    row = DescribeGroupsResponse.DescribedGroup(group_id="g", group_state=state, **fields)  # type: ignore[arg-type]
    return DescribeGroupsResponse(groups=[row])


def test_every_broker_lists_its_groups() -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({}, {1: 11, 2: 22})
        assert isinstance(ask.request, ListGroupsRequest)
        row = ListGroupsResponse.ListedGroup(group_id=f"g{3 - (ask.node or 0)}", protocol_type="consumer")
        return ListGroupsResponse(groups=[row])

    run = Run(answer)
    assert [listed.group for listed in run(groups.list_groups(Session()))] == ["g1", "g2"]
    assert [ask.node for ask in run.asked] == [None, 1, 2]


@pytest.mark.parametrize(
    ("states", "types", "expected"), [([], [], 0), (["Stable"], [], 4), ([], ["classic"], 5), (["Empty"], ["share"], 5)]
)
def test_a_filter_is_not_lost_on_a_broker_that_does_not_know_it(
    states: list[str], types: list[str], expected: int
) -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({}, {1: 11})
        return ListGroupsResponse()

    run = Run(answer)
    run(groups.list_groups(Session(), states, types))
    assert run.asked[-1].min_version == expected


def test_a_group_that_is_being_loaded_is_asked_for_again() -> None:
    errors = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE])

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, FindCoordinatorRequest):
            return coordinator(1)
        return described(error_code=next(errors), protocol_type="consumer", protocol_data="range")

    run = Run(answer)
    found = run(groups.describe_group(Session(), "g"))
    assert (found.state, found.coordinator, found.protocol) == ("Stable", 1, "range")
    assert len(run.pauses) == 1


@pytest.mark.parametrize(("state", "error"), [("Dead", ErrorCode.NONE), ("", ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_as_old_and_new_brokers_say_it(state: str, error: ErrorCode) -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, FindCoordinatorRequest):
            return coordinator(1)
        if isinstance(ask.request, ConsumerGroupDescribeRequest):
            row = ConsumerGroupDescribeResponse.DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_id="g")
            return ConsumerGroupDescribeResponse(groups=[row])
        return described(state, error_code=error)

    with pytest.raises(Refused) as refused:
        Run(answer)(groups.describe_group(Session(), "g"))
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_what_members_were_given() -> None:
    topics = [ConsumerProtocolAssignment.TopicPartition(topic="a", partitions=[0, 2])]
    given = b"\0\1" + b"".join(encode(ConsumerProtocolAssignment(assigned_partitions=topics), 1))

    def member(name: str, assignment: bytes) -> DescribeGroupsResponse.DescribedGroupMember:
        return DescribeGroupsResponse.DescribedGroupMember(
            member_id=name, client_id="c", client_host="/h", member_assignment=assignment
        )

    members = [member("reads", given), member("idle", b""), member("odd", b"\0\1\xff")]
    kind = "consumer"

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, FindCoordinatorRequest):
            return coordinator(1)
        return described(protocol_type=kind, members=members)

    found = Run(answer)(groups.describe_group(Session(), "g"))
    assert {one.member_id: one.partitions for one in found.members} == {
        "reads": (TopicPartition("a", 0), TopicPartition("a", 2)), "idle": (), "odd": ()
    }  # fmt: skip
    kind = "connect"
    found = Run(answer)(groups.describe_group(Session(), "g"))
    assert {one.partitions for one in found.members} == {()}, "what other protocols put there is not ours to read"


def test_deleting_goes_on_after_a_refusal() -> None:
    codes = {"a": ErrorCode.NON_EMPTY_GROUP, "b": ErrorCode.NONE}

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, FindCoordinatorRequest):
            return coordinator(1)
        assert isinstance(ask.request, DeleteGroupsRequest)
        rows = [
            DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=codes[name])
            for name in ask.request.groups_names
        ]
        return DeleteGroupsResponse(results=rows)

    results = Run(answer)(groups.delete_groups(Session(), ["a", "b", "a"]))
    assert list(results) == ["a", "b"] and results["b"] is None
    assert str(results["a"]) == "group a has members; stop them first (NON_EMPTY_GROUP)"


@pytest.mark.parametrize("by_id", [True, False])
def test_all_offsets_of_a_group_by_id_and_by_name(by_id: bool) -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            assert ask.request.topics is None, "ids must be known before they are met"
            return metadata({"t": [1]}, {1: 11})
        if isinstance(ask.request, FindCoordinatorRequest):
            return coordinator(1)
        assert isinstance(ask.request, OffsetFetchRequest)
        assert ask.request.topics is None and ask.request.groups[0].topics is None
        row = OffsetFetchResponse.OffsetFetchResponsePartitions(partition_index=0, committed_offset=9)
        if by_id:
            found = [
                OffsetFetchResponse.OffsetFetchResponseTopics(topic_id=topic_id(name), partitions=[row])
                for name in ("t", "made a moment ago")
            ]
            return OffsetFetchResponse(
                groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=found)]
            )
        old = OffsetFetchResponse.OffsetFetchResponsePartition(partition_index=0, committed_offset=9)
        return OffsetFetchResponse(topics=[OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=[old])])

    assert Run(answer)(offsets.fetch(Session(), "g", None)) == {TopicPartition("t", 0): 9}


def test_describing_asks_the_coordinator() -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, FindCoordinatorRequest):
            return coordinator(7)
        assert isinstance(ask.request, DescribeGroupsRequest) and ask.node == 7
        return described("Empty")

    assert Run(answer)(groups.describe_group(Session(), "g")).coordinator == 7
