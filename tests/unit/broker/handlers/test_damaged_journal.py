"""A journal that is damaged above the checkpoint: nobody is told an older end or older offsets than there were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairnmq.broker.http.status import Status
from cairnmq.errors import ErrorCode
from cairnmq.wire.apis import SERVED, request_class
from cairnmq.wire.messages import (
    AddPartitionsToTxnRequest,
    DeleteRecordsRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    TxnOffsetCommitRequest,
)
from unit.broker.rig import NOW_MS, Rig, batch, open_rig, records_of, scenario

RECORDS = 6
KEPT = 3  # of them lie before the damage


@asynccontextmanager
async def hurt_rig(directory: Path) -> AsyncIterator[Rig]:
    """A broker that was killed after it had acknowledged records and an offset, with a flipped bit in its journal."""
    async with open_rig(directory) as rig:
        await rig.create("t")
        for number in range(RECORDS):
            answer = await rig.produce("t", batch(b"%d" % number, timestamp=NOW_MS + number))
            assert answer.error_code == 0
            if number == KEPT - 1:
                at = rig.ctx.store.engine.paths[0].journal.end
        journal = rig.ctx.store.engine.paths[0].journal
        name = directory / "data" / "journal" / "0" / f"{journal.segments[-1].base:020d}.jnl"
    data = bytearray(name.read_bytes())
    data[at + 40] ^= 1
    name.write_bytes(data)
    async with open_rig(directory) as rig:
        assert rig.queue("t").cut_short and rig.queue("t").end == KEPT
        yield rig


@scenario
async def test_fetches_behind_it_get_an_error_that_rewinds_nobody(tmp_path: Path) -> None:
    """They got OFFSET_OUT_OF_RANGE, and `auto.offset.reset` took them back to the start or over what is stored."""
    async with hurt_rig(tmp_path) as rig:
        assert len(records_of(await rig.fetch("t", 0))) == KEPT
        for offset in (KEPT, KEPT + 1, RECORDS, RECORDS + 100):
            for epoch in (-1, 1):
                answer = await rig.fetch("t", offset, last_fetched_epoch=epoch, max_wait_ms=100_000, min_bytes=1)
                (row,) = answer.responses[0].partitions
                assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR and row.high_watermark == -1
                assert row.diverging_epoch.end_offset == -1
        row = (await rig.fetch("t", KEPT, isolation_level=1)).responses[0].partitions[0]
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    "timestamp, code, offset",
    [(-1, 56, -1), (-3, 56, -1), (-2, 0, 0), (-4, 0, 0), (NOW_MS + 1, 0, 1), (NOW_MS + KEPT, 56, -1)],
)
@scenario
async def test_the_end_is_not_told(timestamp: int, code: int, offset: int, tmp_path: Path) -> None:
    async with hurt_rig(tmp_path) as rig:
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
        (row,) = (await rig.ask(2, 8, ListOffsetsRequest(replica_id=-1, topics=[topic]))).topics[0].partitions
        assert (row.error_code, row.offset) == (code, offset)


@scenario
async def test_nobody_is_told_that_the_log_was_cut(tmp_path: Path) -> None:
    """A consumer that asks where its epoch ended, and hears of an offset below its own, starts over."""
    async with hurt_rig(tmp_path) as rig:
        for epoch in (1, 2, 3):
            asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
            topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[asked])
            answer = await rig.ask(23, 4, OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))
            assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("offset", [-1, RECORDS])
@scenario
async def test_nothing_is_written_or_deleted(offset: int, tmp_path: Path) -> None:
    async with hurt_rig(tmp_path) as rig:
        assert (await rig.produce("t", batch(b"x"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        asked = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[asked])
        answer = await rig.ask(21, 2, DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def questions(key: int) -> Any:
    """A request that names something of each kind."""
    request = request_class(key)()
    named: dict[str, Any] = {
        "groups": ["g"],
        "group_ids": ["g"],
        "groups_names": ["g"],
        "coordinator_keys": ["g"],
        "transactional_ids": ["x"],
    }
    for field, value in named.items():
        if field in request.__struct_fields__ and key != 9:
            setattr(request, field, value)
    if isinstance(request, OffsetFetchRequest):
        request.groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
        request.topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    if isinstance(request, OffsetCommitRequest):
        row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request.topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])]
    if isinstance(request, TxnOffsetCommitRequest):
        row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request.topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[row])]
    if isinstance(request, AddPartitionsToTxnRequest):
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
        request.v3_and_below_topics = [topic]
        request.transactions = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id="x", topics=[topic])
        ]
    if isinstance(request, InitProducerIdRequest):
        request.transactional_id = "x"
        request.producer_id = request.producer_epoch = -1
    return request


def for_version(request: Any, key: int, version: int) -> Any:
    """Without what this version does not know."""
    if isinstance(request, OffsetFetchRequest):
        return msgspec.structs.replace(request, **({"topics": []} if version >= 8 else {"groups": []}))
    if isinstance(request, AddPartitionsToTxnRequest):
        return msgspec.structs.replace(
            request, **({"v3_and_below_topics": []} if version >= 4 else {"transactions": []})
        )
    if key == 10:
        return msgspec.structs.replace(request, coordinator_keys=["g"] if version >= 4 else [])
    return request


COORDINATED = (8, 9, 10, 11, 12, 13, 14, 15, 16, 22, 24, 25, 26, 28, 42, 47, 65, 66, 68, 69)


@pytest.mark.parametrize("key", COORDINATED)
@scenario
async def test_coordinators_answer_that_they_are_not_there(key: int, tmp_path: Path) -> None:
    """Committed offsets, groups and transactions as of before the damage are old ones."""
    async with hurt_rig(tmp_path) as rig:
        low, high = SERVED[key]
        for version in range(max(low, 0), high + 1):
            answer = await rig.ask(key, version, for_version(questions(key), key, version))
            codes = codes_in(msgspec.to_builtins(answer))
            assert set(codes) - {0} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}, (version, answer)


def codes_in(tree: Any) -> list[int]:
    if isinstance(tree, list):
        return [code for each in tree for code in codes_in(each)]
    if not isinstance(tree, dict):
        return []
    own = [value for name, value in tree.items() if name in ("error_code", "partition_error_code")]
    return own + [code for value in tree.values() for code in codes_in(value)]


@scenario
async def test_producers_without_transactions_need_no_coordinator(tmp_path: Path) -> None:
    async with hurt_rig(tmp_path) as rig:
        plain = InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
        answer = await rig.ask(22, 4, plain)
        assert answer.error_code == 0 and answer.producer_id >= 0


@scenario
async def test_it_is_shown(tmp_path: Path) -> None:
    async with hurt_rig(tmp_path) as rig:
        status = Status(lambda: 0.0)
        status.serve(rig.ctx)
        (reason,) = status.problems()
        assert "journal 0 is damaged at position" in reason and "--accept-loss" in reason
        text = await status.metrics()
        assert 'cairn_journal_damaged{journal="0"} 1' in text and 'cairn_journal_stopped{journal="0"} 1' in text
        assert 'cairn_journal_cut_bytes_total{journal="0"} 0' in text
        assert "kafka_topic_partition_current_offset{" not in text, "it would have fallen"
        assert "cairn_group" not in text and await status.groups() == [] and await status.group("g") is None
