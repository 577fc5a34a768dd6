"""Transactions as handlers show them: Produce with the coordinator's word, markers, Fetch, ListOffsets,
DescribeProducers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cairnmq.codec.batch import read_header
from cairnmq.codec.records import iter_batches
from cairnmq.errors import ErrorCode
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.live.ack_policy import WRITTEN, AckPoint
from cairnmq.wire.messages import (
    DescribeProducersRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from unit.broker.rig import NOW_MS, Rig, batch, open_rig, scenario

COMMITTED = {"isolation_level": 1}


async def send(
    rig: Rig, pid: int, *values: bytes, epoch: int = 0, sequence: int = 0, topic: str = "a", version: int = 9
) -> Any:
    """A batch of a transaction; the answer for its partition."""
    data = batch(*values, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    partition = ProduceRequest.PartitionProduceData(index=0, records=data)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(transactional_id=f"t{pid}", acks=-1, timeout_ms=1000, topic_data=[named])
    response = await rig.ask(0, version, request)
    return response.responses[0].partition_responses[0]


async def end(rig: Rig, pid: int, *, commit: bool, epoch: int = 0) -> list[ErrorCode]:
    return await rig.ctx.store.write_markers([Marker(rig.queue("a").queue_id, pid, epoch, commit, 0)])


def allow(rig: Rig) -> list[tuple[str, int, int, int]]:
    asked: list[tuple[str, int, int, int]] = []

    def admits(*question: Any) -> ErrorCode:
        asked.append(question)
        return ErrorCode.NONE

    rig.transactions.admits = admits  # type: ignore[method-assign]
    return asked


def only(response: Any) -> Any:
    return response.responses[0].partitions[0]


def bases(answer: Any) -> list[int]:
    return [read_header(one).base_offset for one in iter_batches(answer.records or b"")]


def aborted(answer: Any) -> list[tuple[int, int]]:
    return [(row.producer_id, row.first_offset) for row in answer.aborted_transactions]


@scenario
async def test_a_transactional_batch_of_no_transactional_id(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        plain = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        assert (await rig.produce("a", plain)).error_code == ErrorCode.INVALID_TXN_STATE


@scenario
async def test_the_coordinator_is_asked(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        asked = allow(rig)
        assert (await send(rig, 5, b"x", epoch=2)).error_code == 0
        assert asked == [("t5", 5, 2, rig.queue("a").queue_id)]
        rig.transactions.admits = lambda *question: ErrorCode.INVALID_PRODUCER_ID_MAPPING  # type: ignore[method-assign]
        refused = await send(rig, 5, b"x", epoch=2, sequence=1)
        assert refused.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert rig.queue("a").end == 1


@pytest.mark.parametrize("version", range(4, 19))
@scenario
async def test_fetch(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        allow(rig)
        await rig.produce("a", batch(b"0"))
        await send(rig, 5, b"1", b"2")
        await send(rig, 6, b"3")
        open_ = only(await rig.fetch("a", 0, version=version, **COMMITTED))
        assert (open_.high_watermark, open_.last_stable_offset, bases(open_), aborted(open_)) == (4, 1, [0], [])
        assert await end(rig, 6, commit=False) == [ErrorCode.NONE]
        assert await end(rig, 5, commit=True) == [ErrorCode.NONE]
        done = only(await rig.fetch("a", 0, version=version, **COMMITTED))
        assert (done.last_stable_offset, bases(done), aborted(done)) == (6, [0, 1, 3, 4, 5], [(6, 3)])
        later = only(await rig.fetch("a", 5, version=version, **COMMITTED))
        assert (bases(later), aborted(later)) == ([5], [])
        uncommitted = only(await rig.fetch("a", 0, version=version))
        assert (bases(uncommitted), uncommitted.aborted_transactions) == ([0, 1, 3, 4, 5], None)


@scenario
async def test_a_fetch_waits_for_the_last_stable_offset(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        allow(rig)
        await send(rig, 5, b"0")
        parked = asyncio.create_task(rig.fetch("a", 0, max_wait_ms=20_000, min_bytes=1, **COMMITTED))
        await rig.produce("a", batch(b"1"))
        await asyncio.sleep(0.02)
        assert not parked.done()
        await end(rig, 5, commit=False)
        answer = only(await parked)
        assert (bases(answer), aborted(answer)) == ([0, 1, 2], [(5, 0)])


@scenario
async def test_list_offsets(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        allow(rig)
        await rig.produce("a", batch(b"0", timestamp=NOW_MS - 500))
        await send(rig, 5, b"1")

        async def listed(timestamp: int, isolation: int) -> int:
            row = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            named = ListOffsetsRequest.ListOffsetsTopic(name="a", partitions=[row])
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[named])
            offset: int = (await rig.ask(2, 7, request)).topics[0].partitions[0].offset
            return offset

        assert [await listed(-1, level) for level in (0, 1)] == [2, 1]
        assert [await listed(NOW_MS, level) for level in (0, 1)] == [1, -1]
        assert [await listed(NOW_MS - 500, level) for level in (0, 1)] == [0, 0]
        assert [await listed(-3, level) for level in (0, 1)] == [1, -1]
        await end(rig, 5, commit=True)
        assert [await listed(-1, level) for level in (0, 1)] == [3, 3]


@scenario
async def test_describe_producers(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        allow(rig)
        await rig.produce("a", batch(b"0"))

        async def described() -> list[tuple[int, int, int, int, int]]:
            topic = DescribeProducersRequest.TopicRequest(name="a", partition_indexes=[0])
            answer = await rig.ask(61, 0, DescribeProducersRequest(topics=[topic]))
            return [
                (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch, p.current_txn_start_offset)
                for p in answer.topics[0].partitions[0].active_producers
            ]

        await send(rig, 5, b"1", b"2")
        assert await described() == [(5, 0, 1, -1, 1)]
        await end(rig, 5, commit=True, epoch=1)
        assert await described() == [(5, 1, -1, 0, -1)]


@pytest.mark.parametrize("flush", ["commit", "interval", "none"])
@scenario
async def test_markers_of_many_queues_are_one_write(tmp_path: Path, flush: str) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=300, cairn_flush=flush)
        allow(rig)
        queues = [rig.queue("a", partition) for partition in range(300)]
        path = rig.ctx.store.engine.paths[0]
        for queue in queues[:-1]:
            data = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
            path.stage(queue, memoryview(bytearray(data)), 1, NOW_MS, in_transaction=True)
        await rig.ctx.store.reached(AckPoint(0, WRITTEN, path.journal.staged_end))
        groups: list[int] = []
        write = path.write
        path.write = lambda group: (groups.append(len(group.staged)), write(group))[1]  # type: ignore[method-assign]
        markers = [Marker(queue.queue_id, 5, 1, True, 0) for queue in queues]
        gone, old = Marker(10**6, 5, 1, True, 0), Marker(queues[0].queue_id, 5, 0, True, 0)
        codes = await rig.ctx.store.write_markers([*markers, gone, old])
        assert codes == [ErrorCode.NONE] * 301 + [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert groups == [300]
        assert all(queue.last_stable == queue.high_watermark == queue.end for queue in queues)
        assert await rig.ctx.store.write_markers(markers) == [ErrorCode.NONE] * 300
        assert groups == [300], "repeated ones are not written again"


@scenario
async def test_a_session_sees_transactions_end(tmp_path: Path) -> None:
    """A marker is a batch: an incremental fetch gets the partition again when it is visible."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        allow(rig)
        await send(rig, 5, b"0")
        asked = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        named = FetchRequest.FetchTopic(topic="a", partitions=[asked])
        first = await rig.ask(1, 12, FetchRequest(topics=[named], session_epoch=0, isolation_level=1))
        assert bases(only(first)) == []
        await end(rig, 5, commit=False)
        request = FetchRequest(session_id=first.session_id, session_epoch=1, isolation_level=1)
        answer = only(await rig.ask(1, 12, request))
        assert (bases(answer), aborted(answer)) == ([0, 1], [(5, 0)])


@scenario
async def test_with_an_epoch_per_transaction_an_unknown_producer_begins_at_0(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        known = await rig.ask(22, 5, asked)

        async def sent(sequence: int) -> int:
            data = batch(
                b"x",
                producer_id=known.producer_id,
                producer_epoch=known.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            partition = ProduceRequest.PartitionProduceData(index=0, records=data)
            named = ProduceRequest.TopicProduceData(name="a", partition_data=[partition])
            request = ProduceRequest(transactional_id="t", acks=-1, timeout_ms=1000, topic_data=[named])
            code: int = (await rig.ask(0, 12, request)).responses[0].partition_responses[0].error_code
            return code

        assert await sent(3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await sent(0) == ErrorCode.NONE
        queue = rig.queue("a")
        assert known.producer_id in queue.open_transactions
        assert queue.state.producers[known.producer_id].epoch == known.producer_epoch
