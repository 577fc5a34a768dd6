"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.coordination import offset_purge
from cairnmq.broker.leadership import JournalView
from cairnmq.errors import ErrorCode
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.wire.messages import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from unit.broker.rig import Rig, batch, open_rig, scenario, until
from unit.metadata.slow_store import slow_store

CREATE, DELETE, GROW = 19, 20, 37
Wanted = CreateTopicsRequest.CreatableTopic


def wanted(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> Wanted:  # type: ignore[valid-type]
    rows = [
        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    return Wanted(name=name, num_partitions=partitions, replication_factor=factor, configs=rows)


async def create(rig: Rig, *topics: Any, version: int = 7, validate_only: bool = False) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return list((await rig.ask(CREATE, version, request)).topics)


@pytest.mark.parametrize("version", range(2, 8))
@scenario
async def test_created(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        (answer,) = await create(rig, wanted("a", 3, retention_ms="1000"), version=version)
        assert (answer.name, answer.error_code, answer.error_message) == ("a", 0, None)
        topic = rig.ctx.catalog.image.topic("a")
        assert topic is not None and topic.count == 3 and topic.configs == {"retention.ms": "1000"}
        assert rig.queue("a", 2).config.retention_ms == 1000
        if version >= 7:
            assert answer.topic_id == topic.topic_id
        if version >= 5:
            assert (answer.num_partitions, answer.replication_factor) == (3, 1)
            rows = {row.name: (row.value, row.config_source) for row in answer.configs}
            assert rows["retention.ms"] == ("1000", 1)
            assert rows["segment.bytes"][1] == 5


@scenario
async def test_configs_of_the_answer_are_never_null_and_have_real_sources(tmp_path: Path) -> None:
    """Null, or a source of -1, kills Java's admin client and Kafka Streams."""
    async with open_rig(tmp_path) as rig:
        good, bad = await create(rig, wanted("a"), wanted("b", 0))
        assert good.configs and all(1 <= row.config_source <= 6 for row in good.configs)
        assert bad.error_code == ErrorCode.INVALID_PARTITIONS and bad.configs == []


@scenario
async def test_defaults_of_the_broker(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"num.partitions": "4"}) as rig:
        (answer,) = await create(rig, wanted("a", -1, -1))
        assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 4, 1)


@scenario
async def test_refusals(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("taken.name")
        both = wanted("both", 2)
        both.assignments = [CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
        elsewhere = wanted("elsewhere", -1, -1)
        elsewhere.assignments = [CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[2])]
        doubled = wanted("doubled", -1, -1)
        doubled.assignments = [CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2
        cases = [
            (wanted("taken.name"), ErrorCode.TOPIC_ALREADY_EXISTS),
            (wanted("taken_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (wanted("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (wanted("zero", 0), ErrorCode.INVALID_PARTITIONS),
            (wanted("minus", -2), ErrorCode.INVALID_PARTITIONS),
            (wanted("huge", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
            (wanted("factor", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
            (wanted("unknown", no_such="1"), ErrorCode.INVALID_CONFIG),
            (wanted("text", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
            (wanted("null", retention_ms=None), ErrorCode.INVALID_CONFIG),
            (wanted("policy", cleanup_policy="forget"), ErrorCode.INVALID_CONFIG),
            (both, ErrorCode.INVALID_REQUEST),
            (elsewhere, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (doubled, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ]
        answers = await create(rig, *(topic for topic, _ in cases))
        assert [(a.name, a.error_code) for a in answers] == [(t.name, code) for t, code in cases]
        assert all(answer.error_message for answer in answers)
        assert list(rig.ctx.catalog.image.topics) == ["taken.name"]


@scenario
async def test_a_topic_named_twice_is_not_created(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        answers = await create(rig, wanted("a"), wanted("b"), wanted("a", 2))
        assert sorted((a.name, a.error_code) for a in answers) == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]
        assert list(rig.ctx.catalog.image.topics) == ["b"]


@scenario
async def test_validation_only(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        good, bad = await create(rig, wanted("a", 2), wanted("b", 0), validate_only=True)
        assert (good.error_code, good.num_partitions, good.topic_id) == (0, 2, bytes(16))
        assert bad.error_code == ErrorCode.INVALID_PARTITIONS
        assert not rig.ctx.catalog.image.topics and not rig.ctx.store.queues


@scenario
async def test_manual_placement_on_the_only_broker(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = wanted("a", -1, -1)
        topic.assignments = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in (1, 0)
        ]
        (answer,) = await create(rig, topic)
        assert (answer.error_code, answer.num_partitions) == (0, 2)


# ---------------------------------------------------------------------------------------------------- DeleteTopics


async def delete(
    rig: Rig, *names: str, ids: tuple[bytes, ...] = (), version: int = 6
) -> list[tuple[str | None, bytes, int]]:
    state = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(timeout_ms=1000)
    if version < 6:
        request.topic_names = list(names)
    else:
        request.topics = [state(name=name) for name in names] + [state(name=None, topic_id=each) for each in ids]
    answer = await rig.ask(DELETE, version, request)
    return [(each.name, each.topic_id, each.error_code) for each in answer.responses]


@pytest.mark.parametrize("version", range(1, 7))
@scenario
async def test_deleted_by_name(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a", partitions=2)
        ((name, topic_id, code), unknown) = await delete(rig, "a", "b", version=version)
        assert (name, code) == ("a", 0)
        assert topic_id == (topic.topic_id if version == 6 else bytes(16))
        assert unknown[2] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not rig.ctx.catalog.image.topics and not rig.ctx.store.queues


@scenario
async def test_deleted_while_the_journal_has_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes room on a full disk: the topic is gone, and what is left of its groups goes when it can."""
    monkeypatch.setattr(offset_purge, "RETRY_SECONDS", 0.01)
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        await rig.facts.commit([put(OffsetKey("g", topic.topic_id, 0), Committed(2))])
        path = rig.ctx.store.engine.paths[0]
        path.stopped = "the disk is full"
        assert [answer[2] for answer in await delete(rig, "a")] == [0]
        assert not rig.ctx.catalog.image.topics and rig.coordinator.groups.offsets.topics("g")
        path.stopped = None
        await until(lambda: not rig.coordinator.groups.offsets.topics("g"))


@scenario
async def test_deleted_by_id(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        unknown = b"\1" * 16
        assert await delete(rig, ids=(topic.topic_id, unknown)) == [
            ("a", topic.topic_id, 0),
            (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


@scenario
async def test_naming_it_twice_deletes_nothing(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        answers = await delete(rig, "a", ids=(topic.topic_id,))
        assert [code for _, _, code in answers] == [ErrorCode.INVALID_REQUEST] * 2
        assert rig.ctx.catalog.image.topic("a") is not None


@scenario
async def test_neither_name_nor_id_or_both(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        state = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(topics=[state(name="a", topic_id=topic.topic_id), state(name=None)])
        answer = await rig.ask(DELETE, 6, request)
        assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
        assert rig.ctx.catalog.image.topic("a") is not None


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
@scenario
async def test_deletion_can_be_forbidden(tmp_path: Path, version: int, code: int) -> None:
    async with open_rig(tmp_path, {"delete.topic.enable": "false"}) as rig:
        await rig.create("a")
        assert [answer[2] for answer in await delete(rig, "a", version=version)] == [code]


@scenario
async def test_made_again_it_is_another_topic(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        first = await rig.create("a")
        await rig.produce("a", batch(b"old"))
        await delete(rig, "a")
        second = await rig.create("a")
        assert second.topic_id != first.topic_id and second.partitions != first.partitions
        assert rig.queue("a").high_watermark == 0
        assert (await rig.produce("a", batch(b"new"))).base_offset == 0


# ------------------------------------------------------------------------------------------------ CreatePartitions


async def grow(rig: Rig, *topics: tuple[str, int, Any], version: int = 3, validate_only: bool = False) -> list[Any]:
    rows = [
        CreatePartitionsRequest.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if brokers is None
            else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=each) for each in brokers],
        )
        for name, count, brokers in topics
    ]
    answer = await rig.ask(GROW, version, CreatePartitionsRequest(topics=rows, validate_only=validate_only))
    return [(each.name, each.error_code) for each in answer.results]


@pytest.mark.parametrize("version", range(4))
@scenario
async def test_grown(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        await rig.create("other")
        await rig.produce("a", batch(b"kept"), partition=1)
        assert await grow(rig, ("a", 5, None), version=version) == [("a", 0)]
        assert rig.queue("a", 1).high_watermark == 1
        assert (await rig.produce("a", batch(b"x"), partition=4)).error_code == 0


@scenario
async def test_growth_that_is_none(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        invalid = ErrorCode.INVALID_PARTITIONS
        assert await grow(rig, ("a", 2, None)) == [("a", invalid)]
        assert await grow(rig, ("a", 1, None)) == [("a", invalid)]
        assert await grow(rig, ("a", -1, None)) == [("a", invalid)]
        assert await grow(rig, ("b", 3, None)) == [("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert await grow(rig, ("a", 3, None), ("a", 4, None)) == [("a", ErrorCode.INVALID_REQUEST)] * 2
        assert await grow(rig) == []


@scenario
async def test_growth_with_placement(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await grow(rig, ("a", 3, [[1]])) == [("a", wrong)]
        assert await grow(rig, ("a", 3, [[1], [2]])) == [("a", wrong)]
        assert await grow(rig, ("a", 3, [[1], [1]])) == [("a", 0)]


@scenario
async def test_growth_only_validated(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await grow(rig, ("a", 3, None), validate_only=True) == [("a", 0)]
        assert len(rig.ctx.store.queues) == 1


@scenario
async def test_a_new_topic_has_the_replicas_of_its_journal(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        rig.join_cluster(JournalView(1, 1, (1, 2, 3), (1, 2, 3)))
        (answer,) = await create(rig, wanted("a", factor=-1))
        assert (answer.error_code, answer.replication_factor) == (0, 3)


@scenario
async def test_a_slow_store_is_waited_for_as_long_as_the_client_says(tmp_path: Path) -> None:
    """The answer is Kafka's, and what was begun is there later."""
    async with open_rig(tmp_path) as rig:
        await create(rig, wanted("grown"), wanted("gone"))
        image = rig.ctx.catalog
        for version in (2, 7):
            name = f"slow-{version}"
            with slow_store(image._catalog) as slow:
                request = CreateTopicsRequest(topics=[wanted(name), wanted("later")], timeout_ms=50)
                first, second = (await rig.ask(CREATE, version, request)).topics
                assert slow.asked.is_set() and image.image.topic(name) is None
                assert first.error_code == second.error_code == ErrorCode.REQUEST_TIMED_OUT
                assert "within timeout_ms=50; it may be made later" in first.error_message
                assert second.error_message.endswith("; it is not made")
                grown = CreatePartitionsRequest.CreatePartitionsTopic(name="grown", count=2)
                (row,) = (await rig.ask(GROW, 3, CreatePartitionsRequest(topics=[grown], timeout_ms=50))).results
                assert row.error_code == ErrorCode.REQUEST_TIMED_OUT and row.error_message.endswith("; it is not made")
                deletion = DeleteTopicsRequest(topic_names=["gone"], timeout_ms=50)
                (row,) = (await rig.ask(DELETE, 5, deletion)).responses
                assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
            await until(lambda name=name: image.image.topic(name) is not None)  # type: ignore[misc]
            assert image.image.topic("later") is None and image.image.topic("gone") is not None
        assert [row.error_code for row in await create(rig, wanted("slow-2"))] == [ErrorCode.TOPIC_ALREADY_EXISTS]
