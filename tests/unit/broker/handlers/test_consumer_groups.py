"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on a broker; errors are held against Kafka's in tests/golden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairnmq.broker.memory_budget import Tally
from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    IncrementalAlterConfigsRequest,
    JoinGroupRequest,
    ListGroupsRequest,
)
from unit.broker.rig import Rig, open_rig, scenario

HEARTBEAT, DESCRIBE, LIST, ALTER, JOIN = 68, 69, 16, 44, 11
GROUP_RESOURCE = 32
QUICK = {"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "300"}


def beat(member_id: str, epoch: int = 0, **more: Any) -> ConsumerGroupHeartbeatRequest:
    first = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **((first if epoch == 0 else {}) | more)
    )


async def describe(rig: Rig, version: int = 1) -> Any:
    (group,) = (await rig.ask(DESCRIBE, version, ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
    return group


@scenario
async def test_a_member_of_version_0_is_given_its_id(tmp_path: Path) -> None:
    async with open_rig(tmp_path, QUICK) as rig:
        topic = await rig.create("orders", partitions=2)
        told = await rig.ask(HEARTBEAT, 0, beat(""))
        assert (told.error_code, told.member_epoch, told.heartbeat_interval_ms) == (0, 2, 300)
        assert told.member_id
        (row,) = told.assignment.topic_partitions
        assert (row.topic_id, row.partitions) == (topic.topic_id, [0, 1])
        again = await rig.ask(HEARTBEAT, 0, beat(told.member_id, 2))
        assert (again.error_code, again.member_id, again.assignment) == (0, told.member_id, None)


@scenario
async def test_a_described_group_names_its_topics(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("orders", partitions=2)
        await rig.ask(HEARTBEAT, 1, beat("m", instance_id="i", rack_id="r", server_assignor="range"))
        group = await describe(rig)
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
        assert group.assignor_name == "range"
        (member,) = group.members
        assert (member.instance_id, member.rack_id, member.member_epoch, member.member_type) == ("i", "r", 2, 1)
        for given in (member.assignment, member.target_assignment):
            assert [(row.topic_name, row.partitions) for row in given.topic_partitions] == [("orders", [0, 1])]
        assert (await describe(rig, 0)).members[0].member_type == -1
        (listed,) = (await rig.ask(LIST, 5, ListGroupsRequest(types_filter=["consumer"]))).groups
        assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "consumer", "Stable")


@scenario
async def test_topics_that_change_are_told_with_the_next_heartbeat(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        told = await rig.ask(HEARTBEAT, 1, beat("m", subscribed_topic_names=None, subscribed_topic_regex="ord.*"))
        assert told.assignment.topic_partitions == []
        topic = await rig.create("orders", partitions=1)
        told = await rig.ask(HEARTBEAT, 1, beat("m", 2))
        assert [row.topic_id for row in told.assignment.topic_partitions] == [topic.topic_id]
        assert await rig.ctx.catalog.delete_topic(topic) is None
        told = await rig.ask(HEARTBEAT, 1, beat("m", 3, topic_partitions=[]))
        assert (told.error_code, told.assignment.topic_partitions) == (0, [])
        assert (await describe(rig)).members[0].assignment.topic_partitions == []


@scenario
async def test_settings_of_one_group(tmp_path: Path) -> None:
    async with open_rig(tmp_path, QUICK) as rig:
        await rig.create("orders")

        async def set_interval(value: str) -> int:
            row = IncrementalAlterConfigsRequest.AlterableConfig(name="consumer.heartbeat.interval.ms", value=value)
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=GROUP_RESOURCE, resource_name="g", configs=[row]
            )
            answer = await rig.ask(ALTER, 1, IncrementalAlterConfigsRequest(resources=[resource]))
            code: int = answer.responses[0].error_code
            return code

        assert await set_interval("200") == 0, "within what the broker allows"
        assert await set_interval("50") == ErrorCode.INVALID_CONFIG
        assert (await rig.ask(HEARTBEAT, 1, beat("m"))).heartbeat_interval_ms == 200


@scenario
async def test_a_restart_keeps_the_group(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("orders", partitions=3)
        await rig.ask(HEARTBEAT, 1, beat("m"))
        before = await describe(rig)
    async with open_rig(tmp_path) as rig:
        assert await describe(rig) == before
        told = await rig.ask(HEARTBEAT, 1, beat("m", 2))
        assert (told.error_code, told.member_epoch, told.assignment) == (0, 2, None)


@scenario
async def test_members_that_bring_too_much_are_sent_away_to_retry(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"cairn.group.bytes.max": "11000"}) as rig:
        many = [f"topic-{number}" for number in range(80)]
        first = await rig.ask(HEARTBEAT, 1, beat("a", subscribed_topic_names=many))
        assert first.error_code == 0
        for request in (beat("b", subscribed_topic_names=many), beat("b", rack_id="r" * 20_000)):
            assert (await rig.ask(HEARTBEAT, 1, request)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            rig.now_ms += 2000
        more = beat("a", first.member_epoch, subscribed_topic_names=[*many, *(name * 2 for name in many)])
        assert (await rig.ask(HEARTBEAT, 1, more)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        stranger = beat("c", 1, subscribed_topic_names=many)
        assert (await rig.ask(HEARTBEAT, 1, stranger)).error_code == ErrorCode.UNKNOWN_MEMBER_ID, "it must join"
        for request in (beat("a", first.member_epoch), beat("a", subscribed_topic_names=many), beat("a", -1)):
            assert (await rig.ask(HEARTBEAT, 1, request)).error_code == 0, "it brings nothing new"
        rig.now_ms += 2000
        assert (await rig.ask(HEARTBEAT, 1, beat("b", subscribed_topic_names=many))).error_code == 0


@scenario
async def test_a_member_cannot_grow_by_saying_one_thing_at_a_time(tmp_path: Path) -> None:
    """What a heartbeat does not say is kept, so each field is held against what was held of that field."""
    async with open_rig(tmp_path, {"cairn.group.bytes.max": "20000"}) as rig:
        epoch = (await rig.ask(HEARTBEAT, 1, beat("a"))).member_epoch
        codes = set()
        for number in range(120):
            rig.now_ms += Tally.AGAIN_MS
            size = 400 + 200 * number
            said = {"rack_id": "r" * size} if number % 2 else {"subscribed_topic_names": ["t" * size]}
            told = await rig.ask(HEARTBEAT, 1, beat("a", epoch, **said))
            epoch = told.member_epoch or epoch
            codes.add(told.error_code)
        assert codes == {0, ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert rig.coordinator.groups.held_bytes() < 45_000, "live and stored; else it would be twice that"
        rig.now_ms += Tally.AGAIN_MS
        same = beat("a", epoch, rack_id="r", subscribed_topic_names=["orders"] * 500)
        assert (await rig.ask(HEARTBEAT, 1, same)).error_code == 0, "a name that is said twice is kept once"


@scenario
async def test_a_static_member_takes_its_place_again_when_there_is_no_room(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"cairn.group.bytes.max": "11000"}) as rig:
        said = {"subscribed_topic_names": [f"topic-{number}" for number in range(80)], "instance_id": "i"}
        assert (await rig.ask(HEARTBEAT, 1, beat("a", **said))).error_code == 0
        assert (await rig.ask(HEARTBEAT, 1, beat("a", -2, instance_id="i"))).error_code == 0
        other = beat("b", **said | {"instance_id": "j"})
        assert (await rig.ask(HEARTBEAT, 1, other)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await rig.ask(HEARTBEAT, 1, beat("b", **said))).error_code == 0


@scenario
async def test_ids_that_are_asked_for_and_not_used_are_bounded(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"cairn.group.bytes.max": "20000"}) as rig:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=60_000, protocol_type="consumer", protocols=[protocol]
        )
        codes = []
        for _ in range(300):
            rig.now_ms += Tally.AGAIN_MS
            codes.append((await rig.ask(JOIN, 9, request)).error_code)
        assert 100 < codes.count(ErrorCode.MEMBER_ID_REQUIRED) < 200
        assert codes[-1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
