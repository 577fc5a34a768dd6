"""KeepOffsets: all of a partition's part or nothing, durable when answered, found again by a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode
from cairnmq.types import OWN_PRODUCERS_FROM
from cairnmq.wire.apis import KEEP_OFFSETS
from cairnmq.wire.messages import InitProducerIdRequest, KeepOffsetsRequest
from unit.broker.rig import NOW_MS, Rig, batch, open_rig, records_of, scenario


def kept(offset: int, *values: bytes, **fields: Any) -> bytes:
    return build_batch([Record(0, NOW_MS, None, value) for value in values], base_offset=offset, **fields)


async def keep(rig: Rig, start: int, end: int, *batches: bytes, topic: str = "a", partition: int = 0) -> Any:
    known = rig.ctx.catalog.image.topic(topic)
    part = KeepOffsetsRequest.KeptPartition(
        index=partition, start_offset=start, end_offset=end, records=b"".join(batches)
    )
    topic_id = known.topic_id if known is not None else bytes(15) + b"\1"
    request = KeepOffsetsRequest(topics=[KeepOffsetsRequest.KeptTopic(topic_id=topic_id, partitions=[part])])
    return (await rig.ask(KEEP_OFFSETS, 0, request)).topics[0].partitions[0]


async def producer_id(rig: Rig) -> int:
    answer = await rig.ask(22, 4, InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1))
    number: int = answer.producer_id
    return number


@scenario
async def test_offsets_are_kept_and_found_again(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        done = await keep(rig, 40, 50, kept(41, b"x", b"y"), kept(45, b"z"))
        assert (done.error_code, done.log_start_offset, done.end_offset) == (0, 40, 50)
    async with open_rig(tmp_path) as rig:
        queue = rig.queue("a")
        assert (queue.log_start, queue.high_watermark, queue.end) == (40, 50, 50)
        found = [(record.offset, record.value) for record in records_of(await rig.fetch("a", 40))]
        assert found == [(41, b"x"), (42, b"y"), (45, b"z")]
        assert (await keep(rig, 50, 51, kept(50, b"more"))).error_code == 0
        assert (await rig.produce("a", batch(b"produced"))).base_offset == 51
        answer = (await rig.fetch("a", 39)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@scenario
async def test_a_batch_behind_a_gap_comes_whatever_the_limit(tmp_path: Path) -> None:
    """kafkajs does not move on over an empty batch: without the next one beside it, it would ask for ever."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await keep(rig, 0, 30, kept(0, b"x"), kept(20, b"y" * 500), kept(25, b"z" * 500))
        for limit in (1, 61, 62, 400):
            found = records_of(await rig.fetch("a", 5, partition_max_bytes=limit, max_bytes=limit))
            assert [record.offset for record in found] == [20], limit
        assert [record.offset for record in records_of(await rig.fetch("a", 5))] == [20, 25]
        assert records_of(await rig.fetch("a", 26, partition_max_bytes=1)) == []


@scenario
async def test_refusals_tell_the_end(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"first"))
        refused = await keep(rig, 0, 1, kept(0, b"x"))
        assert (refused.error_code, refused.end_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)
        assert "the partition ends at offset 1, not at 0" in refused.error_message
        assert (await keep(rig, 1, 2, kept(1, b"x")[:-1])).error_code == ErrorCode.INVALID_RECORD
        assert (await keep(rig, 1, 2, b"\0" * 80)).error_code == ErrorCode.INVALID_RECORD
        for place in ({"topic": "b"}, {"partition": 1}):
            unknown = await keep(rig, 0, 1, kept(0, b"x"), **place)  # type: ignore[arg-type]
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rig.queue("a").end == 1


@scenario
async def test_no_producer_has_an_id_that_can_be_imported(tmp_path: Path) -> None:
    """It would be taken for the other one: its first batches were out of order, or duplicates and lost."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        own = await producer_id(rig)
        assert own >= OWN_PRODUCERS_FROM
        refused = await keep(rig, 0, 1, kept(0, b"x", producer_id=own, producer_epoch=0, base_sequence=0))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        largest = kept(0, b"x", producer_id=OWN_PRODUCERS_FROM - 1, producer_epoch=0, base_sequence=0)
        assert (await keep(rig, 0, 1, largest)).error_code == 0
