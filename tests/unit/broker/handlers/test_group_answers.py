"""Requests of groups as their versions want them answered; what is decided about groups is tested in unit/groups."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from unit.broker.rig import Rig, open_rig, scenario

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, DELETE_OFFSETS, COMMIT = 11, 12, 13, 14, 15, 16, 42, 47, 8
AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}


def joining(member_id: str = "", group: str = "g") -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"meta")
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


async def stable(rig: Rig, version: int = 3, group: str = "g") -> Any:
    """A group of one member with an assignment; gives the member's join."""
    joined = await rig.ask(JOIN, version, joining(group=group))
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = await rig.ask(JOIN, version, joining(joined.member_id, group))
    assert joined.error_code == 0, joined
    own = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    synced = await rig.ask(
        SYNC,
        3,
        SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[own]
        ),
    )
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    return joined


async def commit(rig: Rig, group: str, topic: str) -> int:
    row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    asked = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[row])
    answer = await rig.ask(COMMIT, 8, OffsetCommitRequest(group_id=group, topics=[asked]))
    code: int = answer.topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("version", range(10))
@scenario
async def test_a_member_joins_in_every_version(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        first = await rig.ask(JOIN, version, joining())
        assert first.error_code == (ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else 0)
        assert first.member_id
        joined = first if version < 4 else await rig.ask(JOIN, version, joining(first.member_id))
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.leader == joined.member_id == first.member_id
        (member,) = joined.members
        assert (member.member_id, bytes(member.metadata)) == (joined.member_id, b"meta")


@pytest.mark.parametrize("version", range(10))
@scenario
async def test_the_protocol_of_a_refused_member_is_null_only_where_it_may_be(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        refused = await rig.ask(JOIN, version, joining(group=""))
        assert refused.error_code == ErrorCode.INVALID_GROUP_ID
        assert refused.protocol_name == (None if version >= 7 else "")
        assert (refused.generation_id, refused.members) == (-1, [])


@pytest.mark.parametrize("version", range(7))
@scenario
async def test_a_missing_group_is_dead_and_since_version_6_an_error(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        (told,) = (await rig.ask(DESCRIBE, version, DescribeGroupsRequest(groups=["none"]))).groups
        assert (told.group_id, told.group_state, told.members) == ("none", "Dead", [])
        assert told.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
        assert bool(told.error_message) == (version >= 6)


@pytest.mark.parametrize("version", range(7))
@scenario
async def test_a_group_is_described_with_its_members(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        joined = await stable(rig)
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=version >= 3)
        (told,) = (await rig.ask(DESCRIBE, version, request)).groups
        assert (told.error_code, told.group_state) == (0, "Stable")
        assert (told.protocol_type, told.protocol_data) == ("consumer", "range")
        (member,) = told.members
        assert (member.member_id, member.client_id) == (joined.member_id, "test")
        assert member.client_host.startswith("/")
        assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"meta", b"mine")
        assert (told.authorized_operations > 0) == (version >= 3)


@scenario
async def test_groups_are_listed_by_state_and_type(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        await rig.create("a")
        await stable(rig)
        assert await commit(rig, "offsets-only", "a") == 0

        async def listed(version: int, **filters: list[str]) -> list[tuple[str, str, str]]:
            told = await rig.ask(LIST, version, ListGroupsRequest(**filters))
            return sorted((row.group_id, row.group_state, row.group_type) for row in told.groups)

        both = [("g", "Stable", "classic"), ("offsets-only", "Empty", "classic")]
        assert await listed(5) == both
        assert await listed(4) == [(name, state, "") for name, state, _ in both]
        assert await listed(0) == [("g", "", ""), ("offsets-only", "", "")]
        assert await listed(4, states_filter=["stable"]) == [("g", "Stable", "")]
        assert await listed(5, states_filter=["Empty", "Dead"]) == both[1:]
        assert await listed(5, types_filter=["Classic"]) == both
        assert await listed(5, types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", range(3))
@scenario
async def test_only_groups_without_members_are_deleted(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        await rig.create("a")
        await stable(rig)
        assert await commit(rig, "offsets-only", "a") == 0
        asked = DeleteGroupsRequest(groups_names=["g", "offsets-only", "none"])
        told = await rig.ask(DELETE, version, asked)
        assert {row.group_id: row.error_code for row in told.results} == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "offsets-only": 0,
            "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }


@pytest.mark.parametrize("version", range(6))
@scenario
async def test_leaving_is_answered_once_or_for_each(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        joined = await stable(rig)
        identity = LeaveGroupRequest.MemberIdentity
        unknown = LeaveGroupRequest(group_id="g", member_id="nobody", members=[identity(member_id="nobody")])
        for group in ("g", "none"):
            unknown.group_id = group
            told = await rig.ask(LEAVE, version, unknown)
            if version < 3:
                assert told.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            else:
                assert (told.error_code, told.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)
        nowhere = await rig.ask(LEAVE, version, LeaveGroupRequest(group_id="", member_id="x"))
        assert nowhere.error_code == ErrorCode.INVALID_GROUP_ID
        own = [identity(member_id=joined.member_id)]
        left = await rig.ask(LEAVE, version, LeaveGroupRequest(group_id="g", member_id=joined.member_id, members=own))
        assert (left.error_code, [row.error_code for row in left.members]) == (0, [0] if version >= 3 else [])


@pytest.mark.parametrize("version", range(5))
@scenario
async def test_heartbeats(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        joined = await stable(rig)

        async def beat(generation: int, member_id: str) -> int:
            request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
            code: int = (await rig.ask(HEARTBEAT, version, request)).error_code
            return code

        assert await beat(1, joined.member_id) == 0
        assert await beat(2, joined.member_id) == ErrorCode.ILLEGAL_GENERATION
        assert await beat(1, "nobody") == ErrorCode.UNKNOWN_MEMBER_ID


@scenario
async def test_a_rebalance_waits_for_the_members_it_knows(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        first = await stable(rig)
        second = asyncio.create_task(rig.ask(JOIN, 3, joining()))
        await asyncio.sleep(0)
        assert not second.done(), "it waits for the first member to come back"
        again = await rig.ask(JOIN, 3, joining(first.member_id))
        assert (again.error_code, again.generation_id, (await second).generation_id) == (0, 2, 2)


@scenario
async def test_offsets_of_a_topic_that_is_read_stay(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        await rig.create("a")
        assert await commit(rig, "g", "a") == 0
        row = OffsetDeleteRequest.OffsetDeleteRequestPartition

        async def forget(group: str, topic: str) -> tuple[int, list[int]]:
            asked = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[row(partition_index=0)])
            told = await rig.ask(DELETE_OFFSETS, 0, OffsetDeleteRequest(group_id=group, topics=[asked]))
            return told.error_code, [each.error_code for topic in told.topics for each in topic.partitions]

        assert await forget("none", "a") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        assert await forget("g", "b") == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        assert await forget("g", "a") == (0, [0])
        assert await forget("g", "a") == (ErrorCode.GROUP_ID_NOT_FOUND, []), "its last offset was the group"
