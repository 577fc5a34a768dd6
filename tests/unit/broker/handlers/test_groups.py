"""Groups through the wire and the journal: what a version leaves out, what a member's commit is answered, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import (
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from unit.broker.rig import Rig, open_rig, scenario

COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, DELETE, DELETE_OFFSETS = 8, 9, 11, 12, 13, 14, 15, 42, 47
AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}
OK = ErrorCode.NONE


def subscribed(*topics: str) -> bytes:
    return b"\0\0" + b"".join(encode(ConsumerProtocolSubscription(topics=list(topics)), 0))


def joining(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    metadata = fields.pop("metadata", subscribed("a"))
    return JoinGroupRequest(
        **{
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
        }
        | fields
    )


async def stable(rig: Rig, **fields: Any) -> Any:
    """One member with an assignment; its join."""
    joined = await rig.ask(JOIN, 7, joining(**fields))
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = await rig.ask(JOIN, 7, joining(joined.member_id, **fields))
    assert joined.error_code == OK
    assert (await sync(rig, joined)).error_code == OK
    return joined


async def sync(rig: Rig, joined: Any, **fields: Any) -> Any:
    own = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    request = {
        "group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id, "assignments": [own]
    }  # fmt: skip
    return await rig.ask(SYNC, 5, SyncGroupRequest(**request | fields))


async def commit(rig: Rig, member_id: str = "", generation: int = -1, **fields: Any) -> ErrorCode:
    row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    asked = OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[row])
    version = fields.pop("version", 8)
    request = OffsetCommitRequest(
        group_id="g", member_id=member_id, generation_id_or_member_epoch=generation, topics=[asked], **fields
    )
    answer = await rig.ask(COMMIT, version, request)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize(("version", "expected_ms"), [(0, 10_000), (1, 60_000)])
@scenario
async def test_before_version_1_the_session_time_is_the_rebalance_time_too(
    tmp_path: Path, version: int, expected_ms: int
) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        joined = await rig.ask(JOIN, version, joining())
        assert joined.error_code == OK
        (group,) = rig.coordinator.groups._live.values()
        assert [member.rebalance_ms for member in group.members.values()] == [expected_ms]


@scenario
async def test_no_group_has_an_empty_name(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        for key, version, request in (
            (JOIN, 9, joining(group_id="")),
            (SYNC, 5, SyncGroupRequest(group_id="", generation_id=1, member_id="m")),
            (HEARTBEAT, 4, HeartbeatRequest(group_id="", generation_id=1, member_id="m")),
            (LEAVE, 5, LeaveGroupRequest(group_id="")),
            (DELETE_OFFSETS, 0, OffsetDeleteRequest(group_id="")),
        ):
            assert (await rig.ask(key, version, request)).error_code == ErrorCode.INVALID_GROUP_ID, request


@scenario
async def test_commits_of_members_and_of_others(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        await rig.create("a")
        assert await commit(rig) == OK, "before there is a group"
        joined = await stable(rig, group_instance_id="i")
        me = joined.member_id
        assert await commit(rig, me, 1) == OK
        assert await commit(rig, me, 1, group_instance_id="i") == OK
        assert await commit(rig, "old", 1, group_instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
        assert await commit(rig, me, 2) == ErrorCode.ILLEGAL_GENERATION
        assert await commit(rig, "who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(rig) == ErrorCode.UNKNOWN_MEMBER_ID, "an administrator waits for an empty group"
        again = await rig.ask(JOIN, 7, joining(me, group_instance_id="i"))
        assert await commit(rig, me, again.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("require_stable", [True, False])
@scenario
async def test_offsets_without_open_transactions_are_stable(tmp_path: Path, require_stable: bool) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await commit(rig) == OK
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="a", partition_indexes=[0])
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])
        told = await rig.ask(FETCH, 9, OffsetFetchRequest(groups=[asked], require_stable=require_stable))
        (row,) = told.groups[0].topics[0].partitions
        assert (row.error_code, row.committed_offset) == (OK, 3)
        old = OffsetFetchRequest.OffsetFetchRequestTopic(name="a", partition_indexes=[0])
        request = OffsetFetchRequest(group_id="g", topics=[old], require_stable=require_stable)
        (row,) = (await rig.ask(FETCH, 7, request)).topics[0].partitions
        assert (row.error_code, row.committed_offset) == (OK, 3)


@scenario
async def test_offsets_of_topics_that_members_read_are_not_deleted(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        await rig.create("a")
        await rig.create("b")
        joined = await stable(rig, metadata=subscribed("a"))

        async def forget(topic: str) -> int:
            row = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
            asked = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[row])
            told = await rig.ask(DELETE_OFFSETS, 0, OffsetDeleteRequest(group_id="g", topics=[asked]))
            assert told.error_code == OK
            code: int = told.topics[0].partitions[0].error_code
            return code

        assert await commit(rig, joined.member_id, 1) == OK
        assert await forget("a") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert await forget("b") == OK
        identity = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
        await rig.ask(LEAVE, 5, LeaveGroupRequest(group_id="g", members=[identity]))
        assert await forget("a") == OK
        assert list(rig.coordinator.groups.offsets.groups()) == []


@scenario
async def test_a_leader_that_comes_back_need_not_assign_if_it_understands_that(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        first = await stable(rig, group_instance_id="i")
        newer = await rig.ask(JOIN, 9, joining(group_instance_id="i"))
        assert (newer.error_code, newer.generation_id, newer.leader, newer.skip_assignment) == (
            OK, 1, newer.member_id, True,
        )  # fmt: skip
        older = await rig.ask(JOIN, 8, joining(group_instance_id="i"))
        assert (older.error_code, older.leader, older.members) == (OK, newer.member_id, [])
        assert len({first.member_id, newer.member_id, older.member_id}) == 3
        assert bytes((await sync(rig, older, group_instance_id="i", assignments=[])).assignment) == b"mine"
        fenced = await sync(rig, first, group_instance_id="i")
        assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


@scenario
async def test_a_stopped_journal_stores_no_assignment_and_promises_none(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        joined = await stable(rig)
        again = await rig.ask(JOIN, 7, joining(joined.member_id))
        rig.ctx.store.engine.paths[0].stopped = "planted"
        assert (await sync(rig, again)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for version in (2, 3):
            told = await rig.ask(DELETE, version, DeleteGroupsRequest(groups_names=["g", "none"]))
            codes = [row.error_code for row in told.results]
            assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
            assert [row.error_message for row in told.results] == (
                [None, None] if version < 3 else ["group 'g' has members; stop them first", "there is no group 'none'"]
            )
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert (await rig.ask(HEARTBEAT, 4, beat)).error_code == OK, "the stored generation lives on"
        rig.ctx.store.engine.paths[0].stopped = None


@scenario
async def test_a_restart_finds_members_generation_and_assignments(tmp_path: Path) -> None:
    async with open_rig(tmp_path, AT_ONCE) as rig:
        await rig.create("a")
        joined = await stable(rig)
        before = await rig.ask(DESCRIBE, 6, DescribeGroupsRequest(groups=["g"]))
        abandoned = asyncio.create_task(rig.ask(JOIN, 3, joining()))
        await asyncio.sleep(0)
        abandoned.cancel()
    async with open_rig(tmp_path, AT_ONCE) as rig:
        rig.coordinator.groups.resume(rig.now_ms)
        assert await rig.ask(DESCRIBE, 6, DescribeGroupsRequest(groups=["g"])) == before
        beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        assert (await rig.ask(HEARTBEAT, 4, beat)).error_code == OK
        assert await commit(rig, joined.member_id, joined.generation_id) == OK
        assert bytes((await sync(rig, joined)).assignment) == b"mine"


@scenario
async def test_a_group_named_twice_is_deleted_once(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await commit(rig) == OK
        told = await rig.ask(DELETE, 3, DeleteGroupsRequest(groups_names=["g", "g"]))
        assert [(row.group_id, row.error_code, row.error_message) for row in told.results] == [("g", OK, None)]


@scenario
async def test_members_that_bring_too_much_are_sent_away_to_retry(tmp_path: Path) -> None:
    """What members bring is kept for as long as they live, so it is bounded over all groups."""
    async with open_rig(tmp_path, {"cairn.group.bytes.max": "10000", "group.initial.rebalance.delay.ms": "0"}) as rig:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(6000))
        asked = {"session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": [protocol]}
        first = await rig.ask(11, 3, JoinGroupRequest(group_id="one", **asked))
        assert first.error_code == 0
        second = await rig.ask(11, 3, JoinGroupRequest(group_id="two", **asked))
        assert second.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=first.member_id, assignment=bytes(9000))
        synced = SyncGroupRequest(
            group_id="one", generation_id=first.generation_id, member_id=first.member_id, assignments=[given]
        )
        assert (await rig.ask(14, 3, synced)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        left = LeaveGroupRequest(group_id="one", member_id=first.member_id)
        assert (await rig.ask(13, 1, left)).error_code == 0
        rig.now_ms += 2000
        assert (await rig.ask(11, 3, JoinGroupRequest(group_id="two", **asked))).error_code == 0


@scenario
async def test_a_group_goes_on_when_there_is_no_room(tmp_path: Path) -> None:
    """Members that bring nothing new join again and are assigned, however full it is."""
    async with open_rig(tmp_path, AT_ONCE) as rig:
        named = {"group_instance_id": "i", "metadata": subscribed("a" * 100)}
        joined = await stable(rig, **named)
        rig.ctx.group_bytes.limit = 100
        for member_id in (joined.member_id, ""):  # as it is, and after a restart
            joined = await rig.ask(JOIN, 7, joining(member_id, **named))
            assert joined.error_code == OK
            assert bytes((await sync(rig, joined)).assignment) == b"mine"
        stranger = joining(f"{joined.member_id}x", metadata=bytes(1000))
        assert (await rig.ask(JOIN, 7, stranger)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        joined = await rig.ask(JOIN, 7, joining(joined.member_id, **named))
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"more than before")
        for refused in (
            await rig.ask(JOIN, 7, joining(joined.member_id, **named | {"metadata": subscribed("a" * 101)})),
            await rig.ask(JOIN, 7, joining(group_instance_id="j")),
            await sync(rig, joined, assignments=[given]),
        ):
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@scenario
async def test_a_member_with_the_longest_name_can_be_told_its_id(tmp_path: Path) -> None:
    """Found by fuzzing: its id was too long to be sent, and so nobody could describe the group any more."""
    async with open_rig(tmp_path, AT_ONCE) as rig:
        joined = await rig.ask(JOIN, 5, joining(group_instance_id="x" * 32767))
        assert joined.error_code == OK and joined.member_id.startswith("xxx") and len(joined.member_id) < 300
        described = await rig.ask(DESCRIBE, 4, DescribeGroupsRequest(groups=["g"]))
        assert [member.member_id for member in described.groups[0].members] == [joined.member_id]


@scenario
async def test_deadlines_of_groups_do_not_follow_the_wall_clock(tmp_path: Path) -> None:
    """Else a clock that was ahead for a while would hold them back, once it is right again, for as long."""
    async with open_rig(tmp_path, {"group.initial.rebalance.delay.ms": "20"}) as rig:
        for number, step_ms in enumerate((3_600_000, -3_600_000)):
            waiting = asyncio.create_task(rig.ask(JOIN, 3, joining(group_id=f"before-{number}")))
            await asyncio.sleep(0)
            rig.now_ms += step_ms
            assert (await waiting).error_code == OK
            assert (await rig.ask(JOIN, 3, joining(group_id=f"after-{number}"))).error_code == OK
