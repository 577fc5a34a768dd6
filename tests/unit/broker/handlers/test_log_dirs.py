"""DescribeLogDirs and AlterReplicaLogDirs: one directory, real sizes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from unit.broker.rig import Rig, batch, open_rig, scenario

ALL: dict[str, list[int]] | None = None


async def describe(rig: Rig, asked: dict[str, list[int]] | None, version: int = 4) -> Any:
    topics = None
    if asked is not None:
        topics = [
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in asked.items()
        ]
    answer = await rig.ask(35, version, DescribeLogDirsRequest(topics=topics))
    assert answer.error_code == 0
    (only,) = answer.results
    return only


def sizes(result: Any) -> dict[tuple[str, int], int]:
    assert all(not each.is_future_key and each.offset_lag == 0 for topic in result.topics for each in topic.partitions)
    return {
        (topic.name, each.partition_index): each.partition_size for topic in result.topics for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
@scenario
async def test_what_is_only_in_the_journal_counts(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        data = batch(b"x" * 100)
        await rig.produce("a", data)
        await rig.produce("a", data)
        result = await describe(rig, ALL, version)
        assert (result.error_code, result.log_dir) == (0, str(tmp_path / "data"))
        assert sizes(result) == {("a", 0): 2 * len(data), ("a", 1): 0}
        assert result.is_cordoned is False, "there is no other directory that new partitions could go to"
        if version >= 4:
            space = os.statvfs(tmp_path)
            assert result.total_bytes == space.f_blocks * space.f_frsize
            assert 0 < result.usable_bytes <= result.total_bytes
        else:
            assert (result.total_bytes, result.usable_bytes) == (-1, -1)


@scenario
async def test_what_is_in_queue_logs_counts_and_other_files_do_not(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        data = batch(b"1", b"2")
        await rig.produce("a", data)
        await rig.produce("a", data)
        directory = tmp_path / "data" / rig.queue("a").spec.directory
        directory.mkdir(parents=True)
        (directory / f"{0:020}.log").write_bytes(bytes(70))
        (directory / f"{1:020}.log").write_bytes(bytes(7))
        (directory / f"{0:020}.index").write_bytes(bytes(1000))
        rig.queue("a").split_to(2)
        assert sizes(await describe(rig, {"a": [0]})) == {("a", 0): 77 + len(data)}


@scenario
async def test_only_what_was_asked_for_and_exists(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=3)
        await rig.create("b")
        assert sizes(await describe(rig, {"a": [2, 0, 2, 9], "none": [0]})) == {("a", 2): 0, ("a", 0): 0}
        assert sizes(await describe(rig, {})) == {}
        assert len(sizes(await describe(rig, ALL))) == 4


@scenario
async def test_a_stopped_journal_shows_as_kafka_shows_a_failed_disk(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.ctx.store.loops[0].path.stopped = "the disk is full"
        result = await describe(rig, ALL)
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR and sizes(result) == {("a", 0): 0}


@scenario
async def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        shutil.move(tmp_path / "data", tmp_path / "elsewhere")
        result = await describe(rig, ALL)
        assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        shutil.move(tmp_path / "elsewhere", tmp_path / "data")


@pytest.mark.parametrize("version", [1, 2])
@scenario
async def test_a_replica_may_only_stay(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")

        def dirs(path: str) -> AlterReplicaLogDirsRequest.AlterReplicaLogDir:
            topics = [
                AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in ("a", "none")
            ]
            return AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=topics)

        async def move(path: str) -> dict[str, int]:
            answer = await rig.ask(34, version, AlterReplicaLogDirsRequest(dirs=[dirs(path)]))
            return {each.topic_name: each.partitions[0].error_code for each in answer.results}

        nowhere = ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(str(tmp_path / "data")) == {"a": 0, "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await move(str(tmp_path)) == {"a": nowhere, "none": nowhere}
