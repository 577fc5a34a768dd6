"""ListOffsets: both ends, times, special values and who may ask for them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.storage_loop import time_lookup
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, append_record, sealed_batch
from cairnmq.errors import ErrorCode
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.live.time_lookup import find_record
from cairnmq.wire.apis import LIST_OFFSETS
from cairnmq.wire.messages import ListOffsetsRequest
from unit.broker.rig import NOW_MS, Rig, batch, open_rig, scenario

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
Partition = ListOffsetsRequest.ListOffsetsPartition


async def look(
    rig: Rig,
    timestamp: int,
    *,
    version: int = 11,
    topic: str = "a",
    partition: int = 0,
    epoch: int = -1,
    times: int = 1,
    isolation: int = 0,
) -> tuple[int, int, int]:
    """(error, offset, timestamp)"""
    asked = [Partition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)] * times
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked)],
    )
    answer = (await rig.ask(LIST_OFFSETS, version, request)).topics[0].partitions[0]
    return answer.error_code, answer.offset, answer.timestamp


@scenario
async def test_both_ends(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await look(rig, LATEST) == (0, 0, -1)
        assert await look(rig, EARLIEST) == (0, 0, -1)
        await rig.produce("a", batch(b"x", b"y", b"z"))
        await rig.ctx.store.trim(rig.queue("a"), 1)
        for version in (1, 4, 7, 11):
            assert await look(rig, LATEST, version=version) == (0, 3, -1)
            assert await look(rig, EARLIEST, version=version) == (0, 1, -1)
        assert await look(rig, LATEST, isolation=1) == (0, 3, -1), "without transactions all that is visible is stable"
        assert await look(rig, EARLIEST_LOCAL) == (0, 1, -1)


@scenario
async def test_nothing_is_tiered(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x"))
        assert await look(rig, LATEST_TIERED) == (0, -1, -1)
        assert await look(rig, PENDING_UPLOAD) == (0, -1, -1)


@scenario
async def test_by_time(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"0", b"1", b"2", timestamp=NOW_MS))
        await rig.produce("a", batch(b"3", b"4", timestamp=NOW_MS + 1000))
        assert await look(rig, 0) == (0, 0, NOW_MS)
        assert await look(rig, NOW_MS + 2) == (0, 2, NOW_MS + 2)
        assert await look(rig, NOW_MS + 3) == (0, 3, NOW_MS + 1000)
        assert await look(rig, NOW_MS + 1001, version=1) == (0, 4, NOW_MS + 1001)
        assert await look(rig, NOW_MS + 1002) == (0, -1, -1)


@scenario
async def test_the_largest_timestamp_need_not_be_the_last(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await look(rig, MAX_TIMESTAMP) == (0, -1, -1)
        await rig.produce("a", batch(b"0", b"1", timestamp=NOW_MS + 500))
        await rig.produce("a", batch(b"2", timestamp=NOW_MS))
        assert await look(rig, MAX_TIMESTAMP) == (0, 1, NOW_MS + 501)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)]
)
@scenario
async def test_special_values_need_their_version(tmp_path: Path, timestamp: int, since: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert (await look(rig, timestamp, version=since))[0] == 0
        assert (await look(rig, timestamp, version=since - 1))[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("timestamp", [-7, -1000])
@scenario
async def test_special_values_of_a_later_protocol(tmp_path: Path, timestamp: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"0"))
        assert await look(rig, timestamp, version=11) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


@scenario
async def test_leader_epochs(tmp_path: Path) -> None:
    async with open_rig(tmp_path):
        pass
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert rig.ctx.store.epochs == {0: 2}
        assert (await look(rig, LATEST, epoch=1))[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert (await look(rig, LATEST, epoch=2))[0] == 0
        assert (await look(rig, LATEST, epoch=3))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


@scenario
async def test_unknown_and_doubled_partitions(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await look(rig, LATEST, topic="b") == unknown
        assert await look(rig, LATEST, partition=1) == unknown
        assert await look(rig, LATEST, partition=-1) == unknown
        assert await look(rig, LATEST, times=2) == (ErrorCode.INVALID_REQUEST, -1, -1)


@scenario
async def test_a_batch_nobody_can_decompress_fails_only_its_partition(tmp_path: Path) -> None:
    """Brokers do not look into batches when they take them, so anything may stand there."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.create("b")
        await rig.produce("b", batch(b"x"))
        await rig.produce("a", no_zstd_frame())
        assert (await look(rig, 0))[0] == ErrorCode.CORRUPT_MESSAGE
        assert (await look(rig, 0, topic="b"))[:2] == (0, 0)


def no_zstd_frame() -> bytearray:
    """A batch that says zstd, under a right CRC."""
    garbage = bytearray(batch(b"what is no zstd frame"))
    garbage[22] |= 4
    garbage[17:21] = crc32c(memoryview(garbage)[21:]).to_bytes(4, "big")
    return garbage


@pytest.fixture
def no_collector() -> Iterator[None]:
    """The broker's garbage collector runs so rarely that memory must be freed without it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def batches_in_memory() -> int:
    return sum(type(one) is Batches for one in gc.get_objects())


@pytest.mark.parametrize("timestamp", [0, MAX_TIMESTAMP])
@scenario
async def test_a_lookup_that_fails_keeps_no_batch(tmp_path: Path, no_collector: None, timestamp: int) -> None:
    """Found by hostile clients: each failed lookup kept up to a megabyte, 76 MB in 20 seconds."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", no_zstd_frame())
        assert (await look(rig, timestamp))[0] == ErrorCode.CORRUPT_MESSAGE
        assert batches_in_memory() == 0


@scenario
async def test_lookups_of_many_partitions_hold_few_batches_at_once(
    tmp_path: Path, no_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def noted(*asked: Any) -> Any:
        seen.append(batches_in_memory())
        return find_record(*asked)

    monkeypatch.setattr(time_lookup, "find_record", noted)
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=20)
        for partition in range(20):
            await rig.produce("a", batch(b"x"), partition=partition)
        asked = [Partition(partition_index=partition, timestamp=0) for partition in range(20)]
        request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="a", partitions=asked)])
        answers = (await rig.ask(LIST_OFFSETS, 7, request)).topics[0].partitions
        assert [answer.offset for answer in answers] == [0] * 20
    assert len(seen) == 20
    assert max(seen) <= time_lookup.AT_ONCE


@pytest.mark.parametrize(("delta", "time_delta"), [(0, 2**63 - 1), (-2, 0), (1000, 0)])
@scenario
async def test_what_a_record_says_is_not_believed(delta: int, time_delta: int, tmp_path: Path) -> None:
    """A time that is no 64-bit number could not even be sent; an offset may lie anywhere."""
    odd = bytearray()
    append_record(odd, delta, 0, Record(0, time_delta, b"k", b"v"))
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x", b"y", b"z", timestamp=NOW_MS - 10))
        await rig.produce("a", sealed_batch(odd, 1, NOW_MS, NOW_MS))
        await rig.produce("a", batch(b"x"))
        assert await look(rig, NOW_MS - 1) == (0, 4, NOW_MS)
        assert await look(rig, MAX_TIMESTAMP) == (0, 4, NOW_MS)
        assert await look(rig, NOW_MS - 10) == (0, 0, NOW_MS - 10)


@pytest.fixture
def decoders(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads on which batches were looked into."""
    threads: list[threading.Thread] = []

    def noted(*asked: Any) -> Any:
        threads.append(threading.current_thread())
        return find_record(*asked)

    monkeypatch.setattr(time_lookup, "find_record", noted)
    return threads


@scenario
async def test_lookups_leave_the_event_loop_to_others(tmp_path: Path, decoders: list[threading.Thread]) -> None:
    """Decompressing a batch takes its time."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(*[b"x" * 10] * 100))
        assert (await look(rig, NOW_MS))[:2] == (0, 0)
    assert decoders and threading.main_thread() not in decoders
