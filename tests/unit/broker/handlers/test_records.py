"""DeleteRecords."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import DeleteRecordsRequest
from unit.broker.rig import NOW_MS, Rig, batch, open_rig, scenario
from unit.broker.wire_client import until

KEY = 21


async def trim(rig: Rig, offset: int, *, topic: str = "a", partition: int = 0, version: int = 2) -> tuple[int, int]:
    """(error, low watermark)"""
    asked = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000
    )
    answer = (await rig.ask(KEY, version, request)).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


@scenario
async def test_moves_the_start_and_it_stays_moved(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(*[b"x"] * 10))
        assert await trim(rig, 4, version=0) == (0, 4)
        assert await trim(rig, 2) == (0, 4)
        assert rig.queue("a").log_start == 4
    async with open_rig(tmp_path) as rig:
        assert rig.queue("a").log_start == 4
        assert await trim(rig, -1) == (0, 10)
        assert (await rig.fetch("a", 0)).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await rig.produce("a", batch(b"next"))).base_offset == 10


@pytest.mark.parametrize("offset", [11, -2, 2**63 - 1])
@scenario
async def test_offsets_beyond_the_visible_end(tmp_path: Path, offset: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(*[b"x"] * 10))
        assert await trim(rig, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert rig.queue("a").log_start == 0


@pytest.mark.parametrize("policy, allowed", [("compact", False), ("compact,delete", True)])
@scenario
async def test_what_is_only_compacted_loses_no_records(tmp_path: Path, policy: str, allowed: bool) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", cleanup_policy=policy)
        data = build_batch([Record(0, NOW_MS, b"key", b"value", ()), Record(1, NOW_MS, b"other", b"value", ())])
        assert (await rig.produce("a", bytes(data))).error_code == 0
        assert await trim(rig, 1) == ((0, 1) if allowed else (ErrorCode.POLICY_VIOLATION, -1))
        assert rig.queue("a").log_start == int(allowed)


@scenario
async def test_unknown(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await trim(rig, 0, topic="b") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await trim(rig, 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@scenario
async def test_many_partitions_at_once(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=50)
        for partition in range(50):
            await rig.produce("a", batch(b"x", b"y"), partition=partition, acks=1)
        asked = [DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=1) for index in range(50)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="a", partitions=asked)])
        answer = await rig.ask(KEY, 2, request)
        assert {(p.error_code, p.low_watermark) for p in answer.topics[0].partitions} == {(0, 1)}
        assert [p.partition_index for p in answer.topics[0].partitions] == list(range(50))


@scenario
async def test_a_start_that_another_request_has_moved_is_told_when_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then a power loss would bring back what the second was told is deleted."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(*[b"v"] * 10))
        loop, queue = rig.ctx.store.loops[0], rig.queue("a")
        with monkeypatch.context() as patch:
            patch.setattr(loop, "sync", lambda: None)
            first = asyncio.create_task(trim(rig, 4))
            await until(lambda: queue.log_start == 4)
            others = [asyncio.create_task(trim(rig, offset)) for offset in (4, 2, 7)]
            await until(lambda: queue.log_start == 7)
            await asyncio.sleep(0.02)
            assert not any(task.done() for task in (first, *others))
        loop.sync()
        told = await asyncio.wait_for(asyncio.gather(first, *others), 10)
        assert told == [(0, 4), (0, 4), (0, 4), (0, 7)]
