"""Produce: what is checked before a batch is taken, what acks mean, idempotence."""

from __future__ import annotations

import asyncio
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cairnmq.broker.context import Context
from cairnmq.broker.handlers import produce as produce_module
from cairnmq.broker.requests import queue_lookup
from cairnmq.broker.requests.reply import CloseConnection
from cairnmq.codec.crc32c import crc32c
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Topic
from cairnmq.storage.batches.compaction_admission import NO_KEY
from cairnmq.storage.live.queue import Queue
from cairnmq.wire.messages import ProduceRequest
from unit.broker.rig import NOW_MS, Rig, batch, open_rig, records_of, scenario


def patched(data: bytes, position: int, layout: str, value: int, *, sign: bool = True) -> bytes:
    """One header field changed, and the CRC made right again unless it is what was broken."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    if sign:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("version", range(3, 14))
@scenario
async def test_every_version_stores_and_answers(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        for expected, acks in ((0, -1), (2, 1)):
            answer = await rig.produce("a", batch(b"x", b"y"), acks=acks, version=version)
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)
            if version >= 5:
                assert answer.log_start_offset == 0
            if version >= 8:
                assert (answer.record_errors, answer.error_message) == ([], None)
        assert [record.value for record in records_of(await rig.fetch("a", 0))] == [b"x", b"y"] * 2


@scenario
async def test_acks_0_has_no_answer(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await rig.produce("a", batch(b"x"), acks=0) is None
        assert (await rig.produce("a", batch(b"y"))).base_offset == 1


@scenario
async def test_acks_0_is_in_flight_until_it_is_written(tmp_path: Path) -> None:
    """Else what a slow disk has not taken yet would not count."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        asked = asyncio.ensure_future(rig.produce("a", batch(b"x"), acks=0))
        await asyncio.sleep(0)
        journal = rig.ctx.store.loops[0].path.journal
        assert not asked.done() and journal.end < journal.staged_end
        assert await asked is None
        assert journal.end == journal.staged_end


@pytest.mark.parametrize("topic", ["none", "a b"])
@scenario
async def test_acks_0_that_failed_hangs_up(tmp_path: Path, topic: str) -> None:
    async with open_rig(tmp_path) as rig:
        with pytest.raises(CloseConnection):
            await rig.produce(topic, batch(b"x"), acks=0)


@pytest.mark.parametrize("acks", [2, -2, 100])
@scenario
async def test_other_acks(tmp_path: Path, acks: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert (await rig.produce("a", batch(b"x"), acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert rig.queue("a").end == 0


@scenario
async def test_unknown_and_invalid_topics(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await rig.produce("none", batch(b"x"))).error_code == unknown
        assert (await rig.produce("a", batch(b"x"), partition=1)).error_code == unknown
        assert (await rig.produce("a b", batch(b"x"))).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await rig.produce("none", batch(b"x"), version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


PLAIN = batch(b"x", b"y")


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (PLAIN + PLAIN, ErrorCode.INVALID_RECORD),
        (PLAIN[:-1], ErrorCode.INVALID_RECORD),
        (PLAIN + b"x", ErrorCode.INVALID_RECORD),
        (PLAIN[:60], ErrorCode.INVALID_RECORD),
        (PLAIN[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (patched(PLAIN, 16, ">b", 1), ErrorCode.INVALID_RECORD),
        (patched(PLAIN, 16, ">b", 0), ErrorCode.INVALID_RECORD),
        (patched(PLAIN, 17, ">I", 1, sign=False), ErrorCode.CORRUPT_MESSAGE),
        (patched(PLAIN, 21, ">h", 0b100000), ErrorCode.INVALID_RECORD),
        (patched(PLAIN, 23, ">i", 2), ErrorCode.INVALID_RECORD),
        (patched(PLAIN, 23, ">i", -1), ErrorCode.INVALID_RECORD),
        (patched(PLAIN, 57, ">i", 0), ErrorCode.INVALID_RECORD),
        (batch(b"x", producer_id=5, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "null", "empty", "two batches", "cut", "trailing byte", "no header", "bad data", "magic 1", "magic 0",
        "bad crc", "control", "count below delta", "negative delta", "no records", "producer without sequence",
    ],
)  # fmt: skip
@scenario
async def test_batches_that_are_not_taken(tmp_path: Path, records: bytes | None, code: ErrorCode) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        answer = await rig.produce("a", records)
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert answer.error_message
        assert rig.queue("a").end == 0
        assert (await rig.produce("a", PLAIN)).base_offset == 0


@scenario
async def test_one_bad_partition_does_not_spoil_the_others(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=3)
        data = [
            ProduceRequest.PartitionProduceData(index=0, records=batch(b"x")),
            ProduceRequest.PartitionProduceData(index=1, records=PLAIN[:-1] + b"?"),
            ProduceRequest.PartitionProduceData(index=9, records=batch(b"x")),
            ProduceRequest.PartitionProduceData(index=2, records=batch(b"x")),
        ]
        request = ProduceRequest(acks=-1, topic_data=[ProduceRequest.TopicProduceData(name="a", partition_data=data)])
        answer = await rig.ask(0, 9, request)
        codes = [(p.index, p.error_code) for p in answer.responses[0].partition_responses]
        assert codes == [(0, 0), (1, 2), (9, 3), (2, 0)]


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, 0), (13, 0)])
@scenario
async def test_zstd_needs_version_7(tmp_path: Path, version: int, code: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert (await rig.produce("a", batch(b"x" * 100, codec=4), version=version)).error_code == code


@scenario
async def test_size_limits(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        size = len(batch(b"x" * 1000))
        await rig.create("fits", max_message_bytes=str(size))
        await rig.create("small", max_message_bytes=str(size - 1))
        assert (await rig.produce("fits", batch(b"x" * 1000))).error_code == 0
        assert (await rig.produce("small", batch(b"x" * 1000))).error_code == ErrorCode.MESSAGE_TOO_LARGE


@scenario
async def test_too_few_replicas_are_told_before_anything_is_appended(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", min_insync_replicas="2")
        refused = await rig.produce("a", batch(b"x"), acks=-1)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert rig.queue("a").end == 0
        assert (await rig.produce("a", batch(b"x"), acks=1)).error_code == 0, "only acks=all asks for replicas"


@scenario
async def test_timestamps_out_of_the_window(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="1000")
        assert (await rig.produce("a", batch(b"x", timestamp=NOW_MS))).error_code == 0
        late = await rig.produce("a", batch(b"x", timestamp=NOW_MS + 1001))
        assert late.error_code == ErrorCode.INVALID_TIMESTAMP
        early = await rig.produce("a", batch(b"x", timestamp=NOW_MS - 1002))
        assert early.error_code == ErrorCode.INVALID_TIMESTAMP


@scenario
async def test_log_append_time(tmp_path: Path) -> None:
    """The stamp is the broker's, the CRC is right again, and the producer is told."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", message_timestamp_type="LogAppendTime")
        answer = await rig.produce("a", batch(b"x", b"y", timestamp=5))
        assert (answer.error_code, answer.log_append_time_ms) == (0, NOW_MS)
        response = await rig.fetch("a", 0)
        assert [record.timestamp for record in records_of(response)] == [NOW_MS, NOW_MS]
        data = bytes(response.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]
        assert struct.unpack_from(">I", data, 17)[0] == crc32c(data[21:])


@scenario
async def test_a_batch_of_no_transaction_is_refused_without_writing(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        records = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        data = ProduceRequest.PartitionProduceData(index=0, records=records)
        topic = ProduceRequest.TopicProduceData(name="a", partition_data=[data])
        for version in (9, 12):
            request = ProduceRequest(transactional_id="t", acks=-1, topic_data=[topic])
            answer = (await rig.ask(0, version, request)).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING and rig.queue("a").end == 0


# ----------------------------------------------------------------------------------------------------- idempotence


def numbered(sequence: int, *values: bytes, epoch: int = 0, producer_id: int = 7) -> bytes:
    return batch(*(values or (b"x",)), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def send(rig: Rig, data: bytes) -> tuple[int, int]:
    answer: Any = await rig.produce("a", data)
    return answer.error_code, answer.base_offset


@scenario
async def test_a_repeated_batch_is_answered_with_its_first_offset(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await send(rig, numbered(0, b"x", b"y")) == (0, 0)
        assert await send(rig, numbered(2)) == (0, 2)
        assert await send(rig, numbered(0, b"x", b"y")) == (0, 0)
        assert await send(rig, numbered(2)) == (0, 2)
        assert rig.queue("a").high_watermark == 3


@scenario
async def test_the_last_five_batches_are_remembered(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        for sequence in range(6):
            assert await send(rig, numbered(sequence)) == (0, sequence)
        for sequence in range(1, 6):
            assert await send(rig, numbered(sequence)) == (0, sequence)
        assert (await send(rig, numbered(0)))[0] in (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        )
        assert rig.queue("a").high_watermark == 6


@scenario
async def test_gaps_and_epochs(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(rig, numbered(0)) == (0, 0)
        assert (await send(rig, numbered(2)))[0] == out_of_order
        assert (await send(rig, numbered(5, epoch=1)))[0] == out_of_order
        assert await send(rig, numbered(0, epoch=1)) == (0, 1)
        assert (await send(rig, numbered(1, epoch=0)))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await send(rig, numbered(1, epoch=1)) == (0, 2)


@scenario
async def test_a_producer_nobody_knows_may_begin_anywhere(tmp_path: Path) -> None:
    """Its state may have expired or been deleted with the records."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await send(rig, numbered(77)) == (0, 0)
        assert await send(rig, numbered(78)) == (0, 1)


@scenario
async def test_sequences_wrap(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await send(rig, numbered(2**31 - 1)) == (0, 0)
        assert await send(rig, numbered(0)) == (0, 1)


@scenario
async def test_remembered_over_a_restart(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await send(rig, numbered(0)) == (0, 0)
        assert await send(rig, numbered(1)) == (0, 1)
    async with open_rig(tmp_path) as rig:
        assert await send(rig, numbered(1)) == (0, 1)
        assert (await send(rig, numbered(3)))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(rig, numbered(2)) == (0, 2)


@scenario
async def test_pipelined_batches_keep_their_order(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        answers = await asyncio.gather(*(send(rig, numbered(sequence)) for sequence in range(5)))
        assert answers == [(0, sequence) for sequence in range(5)]


@scenario
async def test_batches_for_a_topic_that_another_broker_has_just_made_keep_their_order(tmp_path: Path) -> None:
    """The first was refused while the topic was unknown and the next taken: whoever is new may begin anywhere."""
    async with open_rig(tmp_path) as rig:
        looks = 0

        async def catch_up() -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                await rig.create("a")
                asked.append(asyncio.ensure_future(send(rig, numbered(3))))  # finds the topic, and others before it
                await asyncio.sleep(0)

        rig.ctx = replace(rig.ctx, catch_up=catch_up)
        asked = [asyncio.ensure_future(send(rig, numbered(sequence))) for sequence in range(3)]
        await asyncio.gather(*asked)
        assert [each.result() for each in asked] == [(0, sequence) for sequence in range(4)]
        assert await send(rig, numbered(4)) == (0, 4) and looks == 2, "what is known costs no look"
        assert (await rig.produce("none", batch(b"x"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(CloseConnection):
            await rig.produce("none", batch(b"x"), acks=0)
        assert looks == 4


@scenario
async def test_producers_are_told_apart_by_partition_and_id(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        assert await send(rig, numbered(0)) == (0, 0)
        assert await send(rig, numbered(0, producer_id=8)) == (0, 1)
        assert (await rig.produce("a", numbered(0), partition=1)).base_offset == 0


def keyed(value: bytes, codec: int = 0) -> bytes:
    return build_batch([Record(0, NOW_MS, b"k", value)], codec=codec)


@scenario
async def test_a_plain_topic_beside_a_compacted_one_keeps_its_order(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("compacted", cleanup_policy="compact")
        await rig.create("plain")
        topics = [
            ProduceRequest.TopicProduceData(
                name=name, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)]
            )
            for name, records in (("compacted", keyed(bytes(8 << 20), codec=4)), ("plain", batch(b"first")))
        ]
        first = asyncio.ensure_future(rig.ask(0, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(rig.produce("plain", batch(b"second")))
        assert (await second).base_offset == 1
        assert [topic.partition_responses[0].base_offset for topic in (await first).responses] == [0, 0]
        assert not rig.ctx.store.unpacking.queues and (await rig.produce("plain", batch(b"third"))).base_offset == 2


@scenario
async def test_what_fails_while_a_batch_is_unpacked_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", cleanup_policy="compact")
        large = keyed(bytes(8 << 20), codec=4)
        look = produce_module._look_into

        def fail(*arguments: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                return look(*arguments)
            raise MemoryError

        monkeypatch.setattr(produce_module, "_look_into", fail)
        with pytest.raises(MemoryError):
            await rig.produce("a", large)
        assert rig.ctx.store.unpacking.requests == 0


@scenario
async def test_large_batches_for_compacted_topics_are_unpacked_off_the_loop(tmp_path: Path) -> None:
    """And what comes behind one keeps its place; other topics do not wait."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", cleanup_policy="compact")
        await rig.create("b")
        large = asyncio.ensure_future(rig.produce("a", keyed(bytes(8 << 20), codec=4)))
        small = asyncio.ensure_future(rig.produce("a", keyed(b"v")))
        bare = asyncio.ensure_future(rig.produce("a", batch(b"v")))
        other = asyncio.ensure_future(rig.produce("b", batch(b"v")))
        await asyncio.sleep(0)
        assert rig.ctx.store.unpacking.requests == 3 and rig.queue("a").state.end == 0 and rig.queue("b").state.end == 1
        assert ((await large).base_offset, (await small).base_offset, (await other).base_offset) == (0, 1, 0)
        assert (await bare).error_code == ErrorCode.INVALID_RECORD
        assert rig.ctx.store.unpacking.requests == 0
        small = asyncio.ensure_future(rig.produce("a", keyed(b"v", codec=4)))
        await asyncio.sleep(0)
        assert rig.queue("a").state.end == 3, "a small one is unpacked at once"
        assert (await small).base_offset == 2


@scenario
async def test_the_first_batch_that_is_too_large_ends_the_look_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", 8, cleanup_policy="compact")
        look, on_loop = produce_module.refuse_keyless, []

        def watch(records: memoryview, *rest: Any, **limits: int) -> Refusal | None:
            refusal = look(records, *rest, **limits)
            if threading.current_thread() is threading.main_thread():
                on_loop.append(refusal)
            return refusal

        monkeypatch.setattr(produce_module, "refuse_keyless", watch)
        large = [keyed(b"v" if index == 0 else bytes(1 << 20), codec=4) for index in range(8)]
        parts = [produce_module.PartitionData(index=index, records=data) for index, data in enumerate(large)]
        topics = [ProduceRequest.TopicProduceData(name="a", partition_data=parts)]
        answer = await rig.ask(0, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
        assert [part.base_offset for part in answer.responses[0].partition_responses] == [0] * 8
        assert len(on_loop) == 2 and on_loop[0] is None


@scenario
async def test_what_a_batch_for_a_compacted_topic_expands_to_is_bounded(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"cairn.decompressed.bytes.max": str(2 << 20)}) as rig:
        await rig.create("a", cleanup_policy="compact")
        answer = await rig.produce("a", keyed(bytes(3 << 20), codec=4))
        assert answer.error_code == ErrorCode.INVALID_RECORD and "more than 2097152 bytes" in answer.error_message
        assert (await rig.produce("a", keyed(bytes((1 << 20) + 1), codec=4))).base_offset == 0


def mixed(*records: tuple[int, bytes | None], codec: int = 0) -> bytes:
    """A batch of records with these times and keys."""
    return build_batch([Record(0, timestamp, key, b"v") for timestamp, key in records], codec=codec)


def named(answer: Any) -> list[tuple[int, str]]:
    return [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors]


@pytest.mark.parametrize("codec", [0, 4])
@scenario
async def test_records_that_a_compacted_topic_refuses_are_named(tmp_path: Path, codec: int) -> None:
    """KIP-467: the batch is refused as a whole, and its producer learns because of which records."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", cleanup_policy="compact")
        data = mixed((NOW_MS, None), (NOW_MS, b"k"), (NOW_MS, None), codec=codec)
        for version in (8, 12, 13):
            answer = await rig.produce("a", data, version=version)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            assert answer.error_message.startswith("records 0, 2 have no key;")
            assert named(answer) == [(0, NO_KEY), (2, NO_KEY)]
        old = await rig.produce("a", data, version=7)
        assert old.error_code == ErrorCode.INVALID_RECORD and old.record_errors == []
        assert rig.queue("a").end == 0
        assert (await rig.produce("a", mixed((NOW_MS, b"k"), codec=codec))).base_offset == 0


@pytest.mark.parametrize("codec", [0, 4])
@scenario
async def test_records_with_times_out_of_the_window_are_named(tmp_path: Path, codec: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="1000")
        times = (NOW_MS, NOW_MS + 1001, NOW_MS - 1001, NOW_MS + 1000, NOW_MS - 1000, -1)
        answer = await rig.produce("a", mixed(*((time, None) for time in times), codec=codec))
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP and answer.log_start_offset == 0
        between = f"is not between {NOW_MS - 1000} and {NOW_MS + 1000}"
        assert named(answer) == [(1, f"timestamp {times[1]} {between}"), (2, f"timestamp {times[2]} {between}")]


@scenario
async def test_an_answer_names_so_many_records_and_unpacks_so_much_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_module, "NAMED_MAX", 3)
    async with open_rig(tmp_path) as rig:
        await rig.create("a", 2, cleanup_policy="compact")
        await rig.create("b", 2)
        late = NOW_MS + 86_400_000
        asked = {
            "a": [mixed((NOW_MS, None), (NOW_MS, None)), mixed((NOW_MS, None), (NOW_MS, None))],
            "b": [mixed((late, None)), build_batch([Record(0, late, None, bytes(2 << 20))], codec=4)],
        }
        topics = [
            ProduceRequest.TopicProduceData(
                name=name,
                partition_data=[
                    produce_module.PartitionData(index=at, records=data) for at, data in enumerate(batches)
                ],
            )
            for name, batches in asked.items()
        ]
        answer = await rig.ask(0, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
        parts = [part for topic in answer.responses for part in topic.partition_responses]
        invalid, late_code = ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP
        assert [part.error_code for part in parts] == [invalid, invalid, late_code, late_code]
        assert [len(part.record_errors) for part in parts] == [2, 1, 0, 0]
        monkeypatch.undo()
        alone = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics[1:])
        parts = (await rig.ask(0, 9, alone)).responses[0].partition_responses
        assert [len(part.record_errors) for part in parts] == [1, 0], "what is large when unpacked is not looked into"


@pytest.mark.parametrize("line", ["journal", "sync"])
@scenario
async def test_what_is_stored_is_acknowledged_beside_what_is_not(tmp_path: Path, line: str) -> None:
    """In another journal, or written where that is all that its topic asks for: a producer that was told otherwise
    would send it again."""
    async with open_rig(tmp_path, journals=(0, 1)) as rig:
        await rig.create("a", partitions=2)
        await rig.create("b", cairn_flush="none")
        first, second = rig.queue("a"), rig.queue("a", 1)
        assert first.journal != second.journal
        failing = rig.ctx.store.loops[first.journal].path.lines
        failing.when_durable = lambda position, released: released(False)  # type: ignore[method-assign]
        parts = [ProduceRequest.PartitionProduceData(index=index, records=batch(b"x")) for index in range(2)]
        data = [ProduceRequest.TopicProduceData(name="a", partition_data=parts)]
        if line == "sync":
            del parts[1:]
            rig.queue("b").journal = first.journal
            part = ProduceRequest.PartitionProduceData(index=0, records=batch(b"y"))
            data.append(ProduceRequest.TopicProduceData(name="b", partition_data=[part]))
        answer = await rig.ask(0, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data))
        told = [(each.error_code, each.base_offset) for topic in answer.responses for each in topic.partition_responses]
        assert told == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 0)]


@scenario
async def test_queue_is_looked_up_once_per_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("t", partitions=2)
        asked: list[int] = []

        def counted(ctx: Context, topic: Topic | None, partition: int, missing: Refusal) -> Queue | Refusal:
            asked.append(partition)
            return queue_lookup.find_queue(ctx, topic, partition, missing)

        monkeypatch.setattr(produce_module, "find_queue", counted)
        parts = [ProduceRequest.PartitionProduceData(index=index, records=batch(b"x")) for index in range(2)]
        data = [ProduceRequest.TopicProduceData(name="t", partition_data=parts)]
        await rig.ask(0, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data))
        assert asked == [0, 1]


@scenario
async def test_queue_that_was_deleted_during_a_wait_is_refused(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("t")
        store = rig.ctx.store
        store.engine.config = replace(store.engine.config, unsplit_bytes_max=0)  # no room: requests wait
        waiting = asyncio.ensure_future(rig.produce("t", batch(b"x")))
        await asyncio.sleep(0)
        await store.delete_queues([rig.queue("t").queue_id])
        store.engine.config = replace(store.engine.config, unsplit_bytes_max=1 << 30)
        store.backlog.give_room()
        assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
