"""Metadata and DescribeTopicPartitions."""

from __future__ import annotations

import asyncio
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.handlers import metadata
from cairnmq.broker.handlers.metadata import MetadataHandler
from cairnmq.broker.leadership import JournalView
from cairnmq.errors import ErrorCode
from cairnmq.wire.apis import DESCRIBE_CLUSTER, METADATA
from cairnmq.wire.codec import encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import DescribeClusterRequest, DescribeTopicPartitionsRequest, MetadataRequest
from unit.broker.rig import Rig, open_rig, scenario

DESCRIBE_TOPIC_PARTITIONS = 75
ORDINARY = metadata.TURN_ITEMS
Asked = MetadataRequest.MetadataRequestTopic


def names(answer: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in answer.topics]


async def ask(rig: Rig, version: int, topics: list[str] | None, **fields: Any) -> Any:
    asked = None if topics is None else [Asked(name=name) for name in topics]
    return await rig.ask(METADATA, version, MetadataRequest(topics=asked, **fields))


@pytest.mark.parametrize("version", range(1, 14))
@scenario
async def test_null_is_all_topics_and_an_empty_list_none(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("b")
        await rig.create("a", partitions=3)
        everything = await ask(rig, version, None)
        assert names(everything) == [("a", 0), ("b", 0)]
        assert [partition.partition_index for partition in everything.topics[0].partitions] == [0, 1, 2]
        assert names(await ask(rig, version, [])) == []


@scenario
async def test_version_0_knows_no_null_there_empty_is_all(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert names(await ask(rig, 0, [])) == [("a", 0)]


@pytest.mark.parametrize("version", range(14))
@scenario
async def test_large_answers_are_the_same_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """And who asks the same meanwhile gets the same."""
    async with open_rig(tmp_path, {"auto.create.topics.enable": "false"}) as rig:
        for number in range(30):
            await rig.create(f"t{number}", partitions=3)
        some = [f"t{number}" for number in (*range(20), *range(5))] + ["a b", *(f"none-{n}" for n in range(20))]
        every: list[str] | None = [] if version == 0 else None
        answers = []
        for items in (ORDINARY, 7):
            monkeypatch.setattr(metadata, "TURN_ITEMS", items)
            monkeypatch.setattr(rig.ctx.catalog, "image", copy(rig.ctx.catalog.image))  # or it would know the answer
            answers.append(
                await asyncio.gather(
                    ask(rig, version, some),
                    ask(rig, version, every),
                    ask(rig, version, every),
                )
            )
            answers.append([*answers.pop(), await ask(rig, version, every)])
        assert answers[0] == answers[1]
        assert len(answers[1][0].topics) == 41 and len(answers[1][1].topics) == 30


@scenario
async def test_the_broker_is_leader_controller_and_only_replica(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        answer = await ask(rig, 13, ["a"])
        assert [(b.node_id, b.host, b.port, b.rack) for b in answer.brokers] == [(1, "127.0.0.1", 9092, "rack-1")]
        assert answer.controller_id == 1 and len(answer.cluster_id) == 22
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
        assert partition.leader_epoch == rig.ctx.store.epochs[0]
        assert partition.offline_replicas == []
        assert answer.topics[0].is_internal is False


@scenario
async def test_operations_are_told_only_when_asked_for(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        silent = await ask(rig, 8, ["a"])
        assert silent.topics[0].topic_authorized_operations == -(2**31)
        assert silent.cluster_authorized_operations == -(2**31)
        told = await ask(
            rig, 8, ["a"], include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        assert told.topics[0].topic_authorized_operations == 0b1101_1111_1000
        assert told.cluster_authorized_operations == 0b1_1111_1010_0000


@scenario
async def test_an_unknown_topic_is_created_unless_the_client_or_the_broker_forbids_it(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"num.partitions": "4"}) as rig:
        assert names(await ask(rig, 13, ["no"], allow_auto_topic_creation=False)) == [
            ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        created = await ask(rig, 13, ["yes"])
        assert names(created) == [("yes", 0)]
        assert len(created.topics[0].partitions) == 4
        assert created.topics[0].topic_id != bytes(16)
        assert names(await ask(rig, 0, ["old clients cannot forbid".replace(" ", "-")]))[0][1] == 0
    (tmp_path / "closed").mkdir()
    async with open_rig(tmp_path / "closed", {"auto.create.topics.enable": "false"}) as rig:
        assert names(await ask(rig, 13, ["no"])) == [("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@scenario
async def test_two_clients_may_want_the_same_new_topic_at_once(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        answers = await asyncio.gather(*(ask(rig, 13, ["same", "same"]) for _ in range(5)))
        assert [names(answer) for answer in answers] == [[("same", 0)]] * 5


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ä"])
@scenario
async def test_a_name_that_can_never_exist_is_told_as_invalid(tmp_path: Path, name: str, allow: bool) -> None:
    """With 3, which is retriable, clients would ask for ever."""
    async with open_rig(tmp_path) as rig:
        answer = await ask(rig, 13, [name], allow_auto_topic_creation=allow)
        assert names(answer) == [(name, ErrorCode.INVALID_TOPIC_EXCEPTION)]


@scenario
async def test_a_name_that_collides_is_invalid_too(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a.b")
        assert names(await ask(rig, 13, ["a_b"])) == [("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION)]


@pytest.mark.parametrize("version", [12, 13])
@scenario
async def test_topics_by_id(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        unknown = b"\1" * 16
        request = MetadataRequest(
            topics=[Asked(name=None, topic_id=topic.topic_id), Asked(name=None, topic_id=unknown)]
        )
        answer = await rig.ask(METADATA, version, request)
        assert [(t.name, t.topic_id, t.error_code) for t in answer.topics] == [
            ("a", topic.topic_id, 0),
            (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


@pytest.mark.parametrize("version", [10, 11])
@scenario
async def test_ids_are_an_error_before_version_12(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        request = MetadataRequest(topics=[Asked(name=None, topic_id=topic.topic_id)])
        answer = await rig.ask(METADATA, version, request)
        assert [t.error_code for t in answer.topics] == [ErrorCode.INVALID_REQUEST]


@scenario
async def test_repeated_answers_follow_every_change(tmp_path: Path) -> None:
    """Encoded answers are kept: they must not outlive the image they were made of."""
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        for _ in range(2):
            assert len((await ask(rig, 9, None)).topics) == 1
            assert len((await ask(rig, 9, ["a"])).topics[0].partitions) == 1
        await rig.ctx.catalog.add_partitions("a", 5)
        assert len((await ask(rig, 9, ["a"])).topics[0].partitions) == 5
        await rig.create("b")
        assert names(await ask(rig, 9, None)) == [("a", 0), ("b", 0)]
        await rig.ctx.catalog.delete_topic(topic)
        assert names(await ask(rig, 9, None)) == [("b", 0)]
        assert names(await ask(rig, 9, ["a"], allow_auto_topic_creation=False))[0][1] == 3


@scenario
async def test_versions_and_flags_are_kept_apart(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        for _ in range(2):
            for version in range(1, 14):
                assert names(await ask(rig, version, ["a"])) == [("a", 0)]


@scenario
async def test_a_question_asked_again_is_not_encoded_again(tmp_path: Path) -> None:
    """All partitions of 100,000 are megabytes: they are encoded once for each version and image."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", 1000)
        handler = MetadataHandler()

        def answered(version: int) -> object:
            frame = memoryview(b"".join(encode(MetadataRequest(topics=None), version)))
            return handler.handle(rig.ctx, RequestHeader(METADATA, version, 1, "test"), frame, 0)

        first, older = answered(13), answered(9)
        assert answered(13) is first and answered(9) is older and older is not first
        await rig.create("b")
        assert answered(13) is not first


# ----------------------------------------------------------------------------------------- DescribeTopicPartitions


async def describe(
    rig: Rig, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = await rig.ask(DESCRIBE_TOPIC_PARTITIONS, 0, request)
    for topic in answer.topics:
        for partition in topic.partitions:
            # Java's describeTopics fails on null
            assert partition.eligible_leader_replicas == [] and partition.last_known_elr == []
            assert (partition.leader_id, partition.isr_nodes) == (1, [1])
    following = answer.next_cursor
    return (
        [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics],
        None if following is None else (following.topic_name, following.partition_index),
    )


@scenario
async def test_described_in_pages(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("b", partitions=2)
        await rig.create("a", partitions=3)
        await rig.create("c", partitions=1)
        assert await describe(rig) == ([("a", 0, [0, 1, 2]), ("b", 0, [0, 1]), ("c", 0, [0])], None)
        assert await describe(rig, limit=2) == ([("a", 0, [0, 1])], ("a", 2))
        assert await describe(rig, limit=2, cursor=("a", 2)) == ([("a", 0, [2]), ("b", 0, [0])], ("b", 1))
        assert await describe(rig, limit=2, cursor=("b", 1)) == ([("b", 0, [1]), ("c", 0, [0])], None)
        assert await describe(rig, limit=3) == ([("a", 0, [0, 1, 2])], ("b", 0))
        assert await describe(rig, limit=0) == ([("a", 0, [0])], ("a", 1))


@scenario
async def test_pages_go_on_when_the_cursor_s_topic_is_gone(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.create("c")
        assert await describe(rig, limit=1, cursor=("b", 7)) == ([("c", 0, [0])], None)
        assert await describe(rig, limit=1, cursor=("a", -1)) == ([("a", ErrorCode.INVALID_REQUEST, [])], None)


@scenario
async def test_no_page_has_more_than_2000_partitions(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2001)
        ((_, _, indexes),), cursor = await describe(rig, limit=2**31 - 1)
        assert len(indexes) == 2000 and cursor == ("a", 2000)


@scenario
async def test_unknown_and_invalid_names_in_the_description(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("b")
        described, _ = await describe(rig, "z", "b", "a b")
        assert described == [("a b", 17, []), ("b", 0, [0]), ("z", 3, [])]
        assert rig.ctx.catalog.image.topic("z") is None


# ------------------------------------------------------------------------------------------------------------ a cluster


def told(answer: Any) -> list[tuple[int, ...]]:
    return [
        (row.error_code, row.leader_id, row.leader_epoch, *row.replica_nodes, *row.isr_nodes, *row.offline_replicas)
        for row in answer.topics[0].partitions
    ]


@pytest.mark.parametrize("pieces", [False, True])
@scenario
async def test_partitions_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: bool) -> None:
    """Led here, elsewhere, by nobody, and by a broker that is not live. All brokers tell the same."""
    if pieces:
        monkeypatch.setattr(metadata, "TURN_ITEMS", 1)
    async with open_rig(tmp_path, journals=(0, 1, 2, 3)) as rig:
        topic = await rig.create("a", partitions=4)
        rig.join_cluster(
            JournalView(1, 5, (1, 2), (1, 2)),
            JournalView(3, 6, (2, 3), (3,), (2,)),
            JournalView(-1, 7, (3, 1), (3,), (3,)),
            JournalView(9, 8, (9,), (9,)),
        )
        rows = {
            0: (0, 1, 5, 1, 2, 1, 2),
            1: (0, 3, 6, 2, 3, 3, 2),
            2: (ErrorCode.LEADER_NOT_AVAILABLE, -1, 7, 3, 1, 3, 3),
            3: (ErrorCode.LEADER_NOT_AVAILABLE, -1, 8, 9, 9),
        }
        expected = [rows[journal] for _, _, journal in topic.places()]
        answer = await ask(rig, 12, ["a"] if not pieces else None)
        assert told(answer) == expected
        assert [(each.node_id, each.host) for each in answer.brokers] == [(1, "127.0.0.1"), (2, "second"), (3, "third")]
        assert answer.controller_id == 2
        rig.ctx.leadership.know_brokers(rig.ctx.leadership.brokers, -1)
        assert (await ask(rig, 12, [])).controller_id == 1, "nobody is elected; this broker serves it as well"
        asked = [DescribeTopicPartitionsRequest.TopicRequest(name="a")]
        page = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=10)
        assert told(await rig.ask(DESCRIBE_TOPIC_PARTITIONS, 0, page)) == expected


@scenario
async def test_brokers_that_died_a_moment_ago_are_named(tmp_path: Path) -> None:
    """Clients find out by themselves, and keep what waits for a broker. Nobody leads there, and DescribeCluster, which
    people ask, names those that live."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        leadership = rig.join_cluster(JournalView(2, 1, (2, 3), (2, 3)))
        own, second, third = leadership.brokers
        assert [broker.node_id for broker in (await ask(rig, 12, ["a"])).brokers] == [1, 2, 3]
        leadership.know_brokers([own, third], 3)
        leadership.know_departed((second,))
        answer = await ask(rig, 12, ["a"])
        assert [(broker.node_id, broker.host) for broker in answer.brokers] == [
            (1, "127.0.0.1"), (2, "second"), (3, "third"),
        ]  # fmt: skip
        assert answer.topics[0].partitions[0].leader_id == -1
        described = await rig.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
        assert [broker.broker_id for broker in described.brokers] == [1, 3]
        leadership.know_departed(())
        assert [broker.node_id for broker in (await ask(rig, 12, ["a"])).brokers] == [1, 3]


@scenario
async def test_leaders_are_told_at_once_and_in_sync_replicas_within_a_second(tmp_path: Path) -> None:
    """An ISR that comes and goes must not cost the answers for 100,000 partitions each time."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        leadership = rig.join_cluster(JournalView(1, 1, (1, 2), (1, 2)))

        async def now() -> tuple[int, list[int]]:
            row = (await ask(rig, 12, ["a"])).topics[0].partitions[0]
            return row.leader_id, row.isr_nodes

        assert await now() == (1, [1, 2])
        leadership.know(0, JournalView(1, 1, (1, 2), (1,)))
        rig.now_ms += 999
        assert await now() == (1, [1, 2])
        rig.now_ms += 1
        assert await now() == (1, [1])
        leadership.know(0, JournalView(2, 2, (1, 2), (1,)))
        assert await now() == (2, [1])
        leadership.know_brokers(leadership.brokers[:1], 1)
        assert await now() == (-1, [1])
