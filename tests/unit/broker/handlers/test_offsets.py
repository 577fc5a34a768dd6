"""OffsetCommit and OffsetFetch in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import OffsetCommitRequest, OffsetFetchRequest
from unit.broker.rig import NOW_MS, Rig, open_rig, scenario

COMMIT, FETCH = 8, 9


async def commit(
    rig: Rig,
    group: str,
    offset: int,
    *,
    topic: str = "a",
    partition: int = 0,
    metadata: str | None = "",
    version: int = 9,
    **fields: Any,
) -> int:
    row = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
    )
    asked = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[row])
    if version >= 10:
        known = rig.ctx.catalog.image.topic(topic)
        asked.topic_id = known.topic_id if known else b"\1" * 16
    answer = await rig.ask(COMMIT, version, OffsetCommitRequest(group_id=group, topics=[asked], **fields))
    (result,) = answer.topics
    assert result.name == (topic if version < 10 else "") and result.topic_id == (asked.topic_id)
    (only,) = result.partitions
    assert only.partition_index == partition
    return int(only.error_code)


async def fetch(
    rig: Rig, group: str, topics: dict[str, list[int]] | None, *, version: int = 7
) -> dict[tuple[str, int], tuple[int, int, str, int]]:
    """(topic, partition) -> (offset, leader epoch, metadata, error)"""
    image = rig.ctx.catalog.image
    ids = {topic.topic_id: name for name, topic in image.topics.items()}
    if version < 8:
        rows = None if topics is None else [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]  # fmt: skip
        answer = await rig.ask(FETCH, version, OffsetFetchRequest(group_id=group, topics=rows))
        assert answer.error_code == 0
        found = answer.topics
    else:
        batched = None if topics is None else [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=name,
                topic_id=known.topic_id if (known := image.topic(name)) else name.encode().ljust(16, b"\1"),
                partition_indexes=indexes,
            )
            for name, indexes in topics.items()
        ]  # fmt: skip
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=batched)
        answer = await rig.ask(FETCH, version, OffsetFetchRequest(groups=[asked]))
        (of_group,) = answer.groups
        assert (of_group.group_id, of_group.error_code) == (group, 0)
        found = of_group.topics
    return {
        (topic.name or ids.get(topic.topic_id, "?"), row.partition_index): (
            row.committed_offset,
            row.committed_leader_epoch,
            row.metadata,
            row.error_code,
        )
        for topic in found
        for row in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 11))
@scenario
async def test_an_unknown_group_is_no_error(tmp_path: Path, version: int) -> None:
    """-1 and error 0: anything else breaks librdkafka."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await fetch(rig, "new", {"a": [0, 5]}, version=version) == {
            ("a", 0): (-1, -1, "", 0),
            ("a", 5): (-1, -1, "", 0),
        }


@pytest.mark.parametrize("version", range(2, 11))
@scenario
async def test_committed_in_any_version_and_read_in_any_other(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await commit(rig, "g", 42, metadata="näme", version=version) == 0
        epoch = 3 if version >= 6 else -1
        for reading in range(1, 11):
            told = epoch if reading >= 5 else -1
            assert await fetch(rig, "g", {"a": [0]}, version=reading) == {("a", 0): (42, told, "näme", 0)}


@pytest.mark.parametrize("version", range(2, 11))
@scenario
async def test_null_topics_are_all_topics(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        await rig.create("b")
        assert await fetch(rig, "g", None, version=version) == {}
        for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
            await commit(rig, "g", 7, topic=topic, partition=partition)
        await commit(rig, "other", 1)
        assert sorted(await fetch(rig, "g", None, version=version)) == [("a", 0), ("a", 1), ("b", 0)]
        assert await fetch(rig, "g", {}, version=version) == {}


@pytest.mark.parametrize("version", [8, 9, 10])
@scenario
async def test_many_groups_in_one_request(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        await commit(rig, "g", 1)
        await commit(rig, "h", 2)
        row = OffsetFetchRequest.OffsetFetchRequestTopics(name="a", topic_id=topic.topic_id, partition_indexes=[0])
        groups = [
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[row]),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="h", topics=None),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="none", topics=[row]),
        ]
        answer = await rig.ask(FETCH, version, OffsetFetchRequest(groups=groups, require_stable=True))
        assert [(g.group_id, g.topics[0].partitions[0].committed_offset) for g in answer.groups] == [
            ("g", 1),
            ("h", 2),
            ("none", -1),
        ]


@scenario
async def test_ids_that_nobody_knows(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        assert await commit(rig, "g", 1, topic="none", version=10) == ErrorCode.UNKNOWN_TOPIC_ID
        assert await fetch(rig, "g", {"none": [0]}, version=10) == {("?", 0): (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)}


@scenario
async def test_commits_for_what_does_not_exist(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await commit(rig, "g", 1, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(rig, "g", 1, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(rig, "g", 1, partition=1, version=10) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert list(rig.coordinator.groups.offsets.groups()) == []


@scenario
async def test_long_metadata(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await commit(rig, "g", 1, metadata="x" * 4096) == 0
        assert await commit(rig, "g", 2, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await commit(rig, "g", 2, metadata="ä" * 2049) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await fetch(rig, "g", {"a": [0]}) == {("a", 0): (1, 3, "x" * 4096, 0)}
        assert await commit(rig, "g", 3, metadata=None) == 0
        assert (await fetch(rig, "g", {"a": [0]}))["a", 0][2] == ""


@scenario
async def test_one_bad_partition_does_not_spoil_the_others(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rows = [
            OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=5)
            for index in (0, 9)
        ]
        asked = [
            OffsetCommitRequest.OffsetCommitRequestTopic(name="none", partitions=rows[:1]),
            OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=rows),
        ]
        answer = await rig.ask(COMMIT, 7, OffsetCommitRequest(group_id="g", topics=asked))
        codes = [[(p.partition_index, p.error_code) for p in topic.partitions] for topic in answer.topics]
        assert codes == [[(0, 3)], [(0, 0), (9, 3)]]
        assert (await fetch(rig, "g", {"a": [0]}))["a", 0][0] == 5


@scenario
async def test_members_of_no_group(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        asked = {"generation_id_or_member_epoch": 1, "member_id": "m"}
        assert await commit(rig, "g", 1, version=8, **asked) == ErrorCode.ILLEGAL_GENERATION
        assert await commit(rig, "g", 1, version=9, **asked) == ErrorCode.GROUP_ID_NOT_FOUND
        assert await commit(rig, "g", 1) == 0
        assert await commit(rig, "g", 2, **asked) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(rig, "g", 3, member_id="m") == 0
        assert (await fetch(rig, "g", {"a": [0]}))["a", 0][0] == 3


@scenario
async def test_kept_over_a_restart_and_gone_with_the_topic(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        topic = await rig.create("b")
        await commit(rig, "g", 1)
        await commit(rig, "g", 2)
        await commit(rig, "g", 5, topic="b")
    async with open_rig(tmp_path) as rig:
        assert {k: v[0] for k, v in (await fetch(rig, "g", None)).items()} == {("a", 0): 2, ("b", 0): 5}
        await rig.ctx.catalog.delete_topic(topic)
        assert {k: v[0] for k, v in (await fetch(rig, "g", None)).items()} == {("a", 0): 2}
        await rig.create("b")
        assert (await fetch(rig, "g", {"b": [0]}))["b", 0][0] == -1
    async with open_rig(tmp_path) as rig:
        assert sorted(await fetch(rig, "g", None)) == [("a", 0)]


@scenario
async def test_when_it_was_committed_and_for_how_long(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        await commit(rig, "g", 1, version=4, retention_time_ms=1000)
        stored = rig.coordinator.groups.offsets.get("g", topic.topic_id, 0)
        assert stored is not None and (stored.commit_ms, stored.expire_ms) == (NOW_MS, NOW_MS + 1000)
        await commit(rig, "g", 1, version=5)
        stored = rig.coordinator.groups.offsets.get("g", topic.topic_id, 0)
        assert stored is not None and stored.expire_ms == -1


@scenario
async def test_a_stopped_journal_is_told_and_nothing_is_kept(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.ctx.store.engine.paths[0].stopped = "planted"
        assert await commit(rig, "g", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert list(rig.coordinator.groups.offsets.groups()) == []


@scenario
@pytest.mark.parametrize(("flush", "synced"), [("commit", True), ("none", False), ("interval", False)])
async def test_the_broker_s_flush_policy_holds_for_offsets_too(tmp_path: Path, flush: str, synced: bool) -> None:
    async with open_rig(tmp_path, {"cairn.flush": flush}) as rig:
        await rig.create("a")
        assert await commit(rig, "g", 7) == 0
        journal = rig.ctx.store.engine.paths[0].journal
        assert journal.end > 0 and (journal.synced == journal.end) is synced
    async with open_rig(tmp_path) as rig:
        assert (await fetch(rig, "g", {"a": [0]}))["a", 0][0] == 7
