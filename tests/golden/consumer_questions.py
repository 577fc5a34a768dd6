"""What is asked of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cairnmq.wire import messages as m
from golden.question import Question, Script, question


def consumers() -> Script:
    """Groups of the consumer protocol (KIP-848): what makes no sense, two members sharing a topic, static members."""

    def beat(label: str, member: str = "m1", epoch: int = 0, group: str = "cg", **more: Any) -> Question:
        """The first heartbeat says everything, later ones what they are given."""
        first: dict[str, Any] = {
            "rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["a"], "topic_partitions": []
        }  # fmt: skip
        versions = more.pop("versions", [1])
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, **((first if epoch == 0 else {}) | more)
        )
        return question(label, 68, request, versions)

    yield beat("no member id", "", versions=[1])
    yield beat("no member id later", "", 3, versions=[0, 1])
    yield beat("no group", group="")
    yield beat("empty instance", instance_id="")
    yield beat("empty rack", rack_id="")
    yield beat("no time", rebalance_timeout_ms=-1)
    yield beat("no partitions", topic_partitions=None)
    yield beat("no subscription", subscribed_topic_names=None)
    yield beat("epoch -3", epoch=-3)
    yield beat("leaves for now without a name", epoch=-2)
    yield beat("assignor", server_assignor="nobodys")
    yield beat("expression", subscribed_topic_names=None, subscribed_topic_regex="a(")
    yield beat("of no group", epoch=1, group="nobody")
    yield beat("leaves no group", epoch=-1, group="nobody")
    first: Any = yield beat("joins")
    yield beat("stays", epoch=2)
    yield beat("says everything", epoch=2, rebalance_timeout_ms=30_000, subscribed_topic_names=["a"],
               topic_partitions=held(first))  # fmt: skip
    yield beat("too high", epoch=9)
    yield beat("unknown", "zz", 1)
    yield beat("leaves unknown", "zz", -1)
    yield beat("joins as second", "m2")
    yield beat("joins again", "m2")
    given: Any = yield beat("gives back", epoch=2, topic_partitions=held(first))
    yield beat("has given back", epoch=2, topic_partitions=held(given))
    yield beat("keeps", epoch=3, topic_partitions=held(given))
    yield beat("comes with the epoch before", epoch=2, topic_partitions=held(given))
    second: Any = yield beat("gets it", "m2", 3, topic_partitions=[])
    yield beat("has it", "m2", 3, topic_partitions=held(second))
    yield beat("wants another assignor", "m2", 3, server_assignor="range")
    yield beat("wants another topic", "m2", 3, subscribed_topic_names=["a", "b"])

    def describe(label: str, group: str) -> Iterator[Question]:
        yield question(label, 69, m.ConsumerGroupDescribeRequest(group_ids=[group]))
        yield question(f"of consumers, {label}", 15, m.DescribeGroupsRequest(groups=[group]), [5, 6])

    yield from describe("two", "cg")
    yield from describe("missing", "nobody")
    yield question("of a classic group", 69, m.ConsumerGroupDescribeRequest(group_ids=["g"]))
    yield question("of nothing", 69, m.ConsumerGroupDescribeRequest(group_ids=[""]))
    yield question("of consumers", 16, m.ListGroupsRequest(types_filter=["Consumer"]), [5])
    yield question("reconciling", 16, m.ListGroupsRequest(states_filter=["Reconciling", "Assigning"]), [4, 5])
    yield question("consumers", 42, m.DeleteGroupsRequest(groups_names=["cg"]), [2])

    def commit(label: str, epoch: int, member: str, versions: Sequence[int] = (9,)) -> Question:
        row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[row])
        request = m.OffsetCommitRequest(
            group_id="cg", generation_id_or_member_epoch=epoch, member_id=member, topics=[topic]
        )
        return question(f"by a consumer, {label}", 8, request, versions)

    yield commit("at its epoch", 3, "m1")
    yield commit("too early", 2, "m1")
    yield commit("too late", 9, "m1")
    yield commit("unknown", 3, "zz")
    yield commit("from outside", -1, "")
    yield commit("in an old version", 3, "m1", [8])

    def fetch(label: str, epoch: int, member: str | None) -> Question:
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name="a", partition_indexes=[0])
        row = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="cg", member_id=member, member_epoch=epoch, topics=[topic]
        )
        return question(f"by a consumer, {label}", 9, m.OffsetFetchRequest(groups=[row]), [9])

    yield fetch("at its epoch", 3, "m1")
    yield fetch("too early", 2, "m1")
    yield fetch("unknown", 3, "zz")
    yield fetch("from outside", -1, None)
    yield fetch("without a name", 3, None)

    part = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    names = [m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name="a", partitions=[part])]
    yield question("of consumers", 47, m.OffsetDeleteRequest(group_id="cg", topics=names))

    yield beat("static", "s1", group="cs", instance_id="i")
    yield beat("static, another", "s2", group="cs", instance_id="i")
    yield beat("static, stays", "s1", 2, group="cs", instance_id="i")
    yield beat("static, unknown", "s1", 2, group="cs", instance_id="other")
    yield beat("static, leaves for now", "s1", -2, group="cs", instance_id="i")
    yield from describe("left for now", "cs")
    yield beat("static, comes back", "s3", group="cs", instance_id="i")
    yield beat("static, the former", "s1", 2, group="cs", instance_id="i")
    yield beat("static, leaves as the former", "s1", -1, group="cs", instance_id="i")
    yield beat("static, leaves", "s3", -1, group="cs", instance_id="i")
    yield from describe("empty", "cs")
    yield question("empty consumers", 42, m.DeleteGroupsRequest(groups_names=["cs"]), [2])

    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(10))

    def join(label: str, member: str = "", kind: str = "consumer") -> Question:
        request = m.JoinGroupRequest(
            group_id="cg", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member,
            protocol_type=kind, protocols=[protocol],
        )  # fmt: skip
        return question(f"among consumers, {label}", 11, request, [9])

    yield join("of another type", kind="connect")
    asked: Any = yield join("first")
    joined: Any = yield join("second", asked.member_id)
    sync = m.SyncGroupRequest(
        group_id="cg", generation_id=joined.generation_id, member_id=joined.member_id,
        protocol_type="consumer", protocol_name="range",
    )  # fmt: skip
    yield question("among consumers", 14, sync, [5])
    yield question("among consumers, not one of them", 14,
                   m.SyncGroupRequest(group_id="cg", generation_id=2, member_id="m1", protocol_type="consumer",
                                      protocol_name="range"), [5])  # fmt: skip
    alive = m.HeartbeatRequest(group_id="cg", generation_id=joined.generation_id, member_id=joined.member_id)
    yield question("among consumers", 12, alive, [4])
    yield question("with a classic member", 69, m.ConsumerGroupDescribeRequest(group_ids=["cg"]))
    leaving = m.LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
    other = m.LeaveGroupRequest.MemberIdentity(member_id="m1")
    yield question("among consumers", 13, m.LeaveGroupRequest(group_id="cg", members=[other, leaving]), [5])


def held(told: Any) -> list[m.ConsumerGroupHeartbeatRequest.TopicPartitions]:
    """What an answer has assigned, as the member tells it in its next heartbeat."""
    rows = [] if told is None or told.assignment is None else told.assignment.topic_partitions
    return [
        m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=row.topic_id, partitions=row.partitions)
        for row in rows
    ]
