"""Fetch: whole batches, soft limits, parking, epochs, sessions."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cairnmq.broker.storage_loop.cold_reads import FAILURES_MAX
from cairnmq.errors import ErrorCode
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.files.damage import Damage, Place, ReadFailure, failure_of
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Reads
from cairnmq.wire.codec import encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import FetchRequest
from unit.broker.rig import Rig, batch, open_rig, records_of, scenario, until


def of_all(partitions: int, partition_max_bytes: int, **fields: Any) -> FetchRequest:
    """From the start of the first partitions of `a`."""
    asked = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=partition_max_bytes)
        for index in range(partitions)
    ]
    return FetchRequest(topics=[FetchRequest.FetchTopic(topic="a", partitions=asked)], **fields)


def only(response: Any) -> Any:
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", range(4, 19))
@scenario
async def test_every_version_reads(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        await rig.produce("a", batch(b"x", b"y"))
        response = await rig.fetch("a", 0, version=version)
        assert (response.error_code, only(response).error_code, only(response).high_watermark) == (0, 0, 2)
        assert only(response).last_stable_offset == 2
        assert [record.value for record in records_of(response)] == [b"x", b"y"]
        named = (response.responses[0].topic, response.responses[0].topic_id)
        assert named == (("a", bytes(16)) if version < 13 else ("", topic.topic_id))


@scenario
async def test_an_offset_inside_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"0", b"1", b"2"))
        await rig.produce("a", batch(b"3"))
        assert [record.offset for record in records_of(await rig.fetch("a", 2))] == [0, 1, 2, 3]
        assert [record.offset for record in records_of(await rig.fetch("a", 3))] == [3]


@scenario
async def test_the_ends(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"0", b"1"))
        at_end = only(await rig.fetch("a", 2, max_wait_ms=0))
        assert (at_end.error_code, bytes(at_end.records), at_end.high_watermark) == (0, b"", 2)
        for offset in (3, -1):
            beyond = await rig.fetch("a", offset, max_wait_ms=60_000)
            assert only(beyond).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await rig.ctx.store.trim(rig.queue("a"), 1)
        assert only(await rig.fetch("a", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert only(await rig.fetch("a", 1)).log_start_offset == 1


@pytest.mark.parametrize("limits", [{"partition_max_bytes": 1}, {"max_bytes": 1}, {"partition_max_bytes": 0}])
@scenario
async def test_the_first_batch_comes_whole_whatever_the_limits(tmp_path: Path, limits: dict[str, int]) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x" * 1000))
        await rig.produce("a", batch(b"y" * 1000))
        assert [record.offset for record in records_of(await rig.fetch("a", 0, **limits))] == [0]


@scenario
async def test_later_partitions_get_what_fits_and_never_a_part_of_a_batch(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=3)
        size = len(batch(b"x" * 1000))
        for partition in (1, 2):
            for _ in range(3):
                await rig.produce("a", batch(b"x" * 1000), partition=partition)
        response = await rig.ask(1, 11, of_all(3, 2 * size + 10, max_wait_ms=0, max_bytes=3 * size))
        sizes = [len(partition.records) for partition in response.responses[0].partitions]
        assert sizes == [0, 2 * size, size]
        assert [partition.partition_index for partition in response.responses[0].partitions] == [0, 1, 2]


@scenario
async def test_nobody_reads_for_what_is_left_of_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=5)
        for partition in range(5):
            await rig.produce("a", batch(b"x" * 1000), partition=partition)
        reads = []
        read = rig.ctx.store.read

        def counted(queue: Queue, *args: Any, **kwargs: Any) -> Any:
            reads.append(queue.partition)
            return read(queue, *args, **kwargs)

        monkeypatch.setattr(rig.ctx.store, "read", counted)
        response = await rig.ask(1, 11, of_all(5, 2000, max_wait_ms=0, max_bytes=1500))
        assert [bool(len(partition.records)) for partition in response.responses[0].partitions] == [True] + 4 * [False]
        assert reads == [0, 1], "the second finds that its batch does not fit, and nobody tries after it"


@scenario
async def test_aborted_transactions_are_null_or_empty_by_isolation(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x"))
        assert only(await rig.fetch("a", 0, isolation_level=0)).aborted_transactions is None
        committed = only(await rig.fetch("a", 0, isolation_level=1))
        assert committed.aborted_transactions == [] and len(committed.records) > 0


@scenario
async def test_unknown_topics(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert only(await rig.fetch("none", 0, max_wait_ms=60_000)).error_code == unknown
        assert only(await rig.fetch("a", 0, partition=1, max_wait_ms=60_000)).error_code == unknown
        by_id = await rig.fetch("none", 0, version=13, max_wait_ms=60_000)
        assert only(by_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@scenario
async def test_the_id_of_a_topic_that_was_made_again_is_unknown(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        old = await rig.create("a")
        await rig.ctx.catalog.delete_topic(old)
        new = await rig.create("a")
        asked = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        for topic_id, code in ((old.topic_id, ErrorCode.UNKNOWN_TOPIC_ID), (new.topic_id, 0)):
            request = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[asked])])
            assert only(await rig.ask(1, 18, request)).error_code == code


@scenario
async def test_leader_epochs(tmp_path: Path) -> None:
    async with open_rig(tmp_path):
        pass
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x"))
        older = await rig.fetch("a", 0, current_leader_epoch=1, max_wait_ms=60_000)
        assert only(older).error_code == ErrorCode.FENCED_LEADER_EPOCH
        newer = await rig.fetch("a", 0, current_leader_epoch=3, max_wait_ms=60_000)
        assert only(newer).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert only(await rig.fetch("a", 0, current_leader_epoch=2)).error_code == 0


@scenario
async def test_a_log_that_diverged_is_told(tmp_path: Path) -> None:
    """KIP-595: the client read offset 5 in epoch 1, but epoch 1 ended at 2."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"0", b"1"))
    async with open_rig(tmp_path) as rig:
        await rig.produce("a", batch(*[b"x"] * 5))
        response = only(await rig.fetch("a", 5, last_fetched_epoch=1, max_wait_ms=60_000))
        assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (1, 2)
        assert only(await rig.fetch("a", 2, last_fetched_epoch=1)).diverging_epoch.end_offset == -1


# --------------------------------------------------------------------------------------------------------- parking


@scenario
async def test_a_parked_fetch_is_woken_by_what_is_visible(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        parked = asyncio.create_task(rig.fetch("a", 0, max_wait_ms=20_000, min_bytes=1))
        await asyncio.sleep(0)
        assert not parked.done() and rig.queue("a").waiters
        await rig.produce("a", batch(b"x"))
        assert [record.value for record in records_of(await parked)] == [b"x"]
        assert not rig.queue("a").waiters


@scenario
async def test_what_is_written_but_not_visible_is_no_error_and_wakes_nobody(tmp_path: Path) -> None:
    """Offsets between the high watermark and the end are waited for; visibility wakes, writing does not."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        queue, gate = rig.queue("a"), threading.Event()
        rig.ctx.store.loops[queue.journal].threads.sync.submit(gate.wait, 20)
        try:
            at_start = asyncio.create_task(rig.fetch("a", 0, max_wait_ms=20_000, min_bytes=1))
            producing = asyncio.create_task(rig.produce("a", batch(b"x")))
            while queue.end < 1:  # noqa: ASYNC110 - the journal writes at the end of a turn of the loop
                await asyncio.sleep(0)
            assert (queue.high_watermark, at_start.done(), producing.done()) == (0, False, False)
            at_end = only(await rig.fetch("a", 1, max_wait_ms=20, min_bytes=1))
            assert (at_end.error_code, at_end.high_watermark, bytes(at_end.records)) == (0, 0, b"")
            between = only(await rig.fetch("a", 0, max_wait_ms=0))
            assert (between.error_code, bytes(between.records)) == (0, b"")
        finally:
            gate.set()
        assert [record.value for record in records_of(await at_start)] == [b"x"]
        assert (await producing).error_code == 0


@scenario
async def test_it_waits_for_min_bytes(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        size = len(batch(b"x"))
        parked = asyncio.create_task(rig.fetch("a", 0, max_wait_ms=20_000, min_bytes=size + 1))
        await rig.produce("a", batch(b"x"))
        await asyncio.sleep(0)
        assert not parked.done()
        await rig.produce("a", batch(b"y"))
        assert [record.value for record in records_of(await parked)] == [b"x", b"y"]


@scenario
async def test_a_near_client_gets_little_at_a_time_and_one_that_is_far_much(tmp_path: Path) -> None:
    """An answer keeps everybody else waiting while it is made; but each one costs the client a round trip."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        for _ in range(30):
            await rig.produce("a", batch(bytes(100_000)))
        sizes = []
        for rig.far in (False, True):
            answer = only(await rig.fetch("a", 0, max_bytes=50 << 20, partition_max_bytes=8 << 20))
            sizes.append(len(bytes(answer.records)))
        assert sizes[0] <= 1 << 20 < 29 * 100_000 < sizes[1]


@scenario
async def test_small_batches_of_many_partitions_come_together(tmp_path: Path) -> None:
    """With limits as clients have them: what is asked of each partition is as much as an answer holds."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=5)
        for partition in range(5):
            await rig.produce("a", batch(b"v"), partition=partition)
        answer = await rig.ask(1, 12, of_all(5, 1 << 20, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20))
        assert all(partition.records for partition in answer.responses[0].partitions)


@scenario
async def test_min_bytes_are_waited_for_however_many_partitions_have_some(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=3)
        for partition in range(2):
            await rig.produce("a", batch(b"v"), partition=partition)
        request = of_all(3, 1 << 20, max_wait_ms=20_000, min_bytes=100_000, max_bytes=50 << 20)
        waiting = asyncio.ensure_future(rig.ask(1, 12, request))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        await rig.produce("a", batch(bytes(100_000)), partition=2)
        answer = await waiting
        assert all(partition.records for partition in answer.responses[0].partitions)


@scenario
async def test_a_near_client_that_waits_for_much_gets_that_much(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        for _ in range(30):
            await rig.produce("a", batch(bytes(100_000)))
        limits = {"min_bytes": 2 << 20, "max_bytes": 50 << 20, "partition_max_bytes": 8 << 20}
        answer = only(await rig.fetch("a", 0, **limits))
        assert (2 << 20) - 200_000 < len(bytes(answer.records)) <= 2 << 20


@scenario
async def test_min_bytes_above_max_bytes_are_no_trap(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x" * 100))
        response = await rig.fetch("a", 0, max_wait_ms=20_000, min_bytes=1 << 30, max_bytes=50)
        assert len(records_of(response)) == 1


@scenario
async def test_time_is_up(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        response = await rig.fetch("a", 0, max_wait_ms=20, min_bytes=1)
        assert (only(response).error_code, records_of(response)) == (0, [])
        assert not rig.queue("a").waiters


@scenario
async def test_nothing_to_wait_for(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        response = await rig.ask(1, 12, FetchRequest(max_wait_ms=20_000, min_bytes=1, topics=[]))
        assert response.responses == []


@scenario
async def test_one_fetch_over_many_partitions_is_woken_by_any(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=100)
        asked = [FetchRequest.FetchPartition(partition=i, partition_max_bytes=1 << 20) for i in range(100)]
        request = FetchRequest(
            max_wait_ms=20_000, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="a", partitions=asked)]
        )
        parked = asyncio.create_task(rig.ask(1, 11, request))
        await asyncio.sleep(0)
        await rig.produce("a", batch(b"x"), partition=57)
        response = await parked
        filled = [p.partition_index for p in response.responses[0].partitions if len(p.records)]
        assert filled == [57]


@scenario
async def test_a_deleted_topic_wakes_its_readers(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a")
        parked = asyncio.create_task(rig.fetch("a", 0, max_wait_ms=20_000, min_bytes=1))
        await asyncio.sleep(0)
        await rig.ctx.catalog.delete_topic(topic)
        assert only(await parked).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -------------------------------------------------------------------------------------------------------- sessions


async def session(rig: Rig, session_id: int, epoch: int, offsets: dict[int, int], **fields: Any) -> Any:
    asked = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    topics = [FetchRequest.FetchTopic(topic="a", partitions=asked)] if asked else []
    request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, **fields)
    return await rig.ask(1, fields.pop("version", 12), request)


def answered(response: Any) -> list[int]:
    return [partition.partition_index for topic in response.responses for partition in topic.partitions]


@scenario
async def test_an_incremental_answer_names_only_what_changed(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=3)
        first = await session(rig, 0, 0, {0: 0, 1: 0, 2: 0})
        assert first.session_id > 0 and answered(first) == [0, 1, 2]
        assert answered(await session(rig, first.session_id, 1, {})) == []
        await rig.produce("a", batch(b"x"), partition=1)
        news = await session(rig, first.session_id, 2, {})
        assert answered(news) == [1] and news.session_id == first.session_id
        assert answered(await session(rig, first.session_id, 3, {1: 1})) == []
        await rig.produce("a", batch(b"y"), partition=1)
        assert answered(await session(rig, first.session_id, 4, {})) == [1]
        forgotten = [FetchRequest.ForgottenTopic(topic="a", partitions=[1])]
        assert answered(await session(rig, first.session_id, 5, {}, forgotten_topics_data=forgotten)) == []


@scenario
async def test_wrong_ids_and_epochs(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        first = await session(rig, 0, 0, {0: 0})
        lost = await session(rig, first.session_id + 1, 1, {})
        assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and lost.responses == []
        wrong = await session(rig, first.session_id, 5, {})
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        mixed = await rig.ask(1, 13, FetchRequest(session_id=first.session_id, session_epoch=1))
        assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@scenario
async def test_epoch_minus_1_is_a_full_fetch_without_a_session(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        first = await session(rig, 0, 0, {0: 0})
        last = await session(rig, first.session_id, -1, {0: 0})
        assert (last.session_id, answered(last)) == (0, [0])
        gone = await session(rig, first.session_id, 1, {})
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@scenario
async def test_without_a_free_slot_there_is_no_session_and_no_error(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"max.incremental.fetch.session.cache.slots": "1"}) as rig:
        await rig.create("a")
        assert (await session(rig, 0, 0, {0: 0})).session_id > 0
        second = await session(rig, 0, 0, {0: 0})
        assert (second.session_id, second.error_code, answered(second)) == (0, 0, [0])


@scenario
async def test_with_no_memory_for_answers_it_waits_and_with_little_it_gives_less(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        for _ in range(8):
            await rig.produce("a", batch(bytes(40_000)))
        answers = rig.ctx.answers
        answers.take(answers.limit)
        fetch = asyncio.ensure_future(rig.fetch("a", 0, max_wait_ms=1))
        await asyncio.sleep(0.02)
        assert not fetch.done()
        answers.release(1)
        assert len(records_of(await fetch)) == 1, "64 KB are always given, and one batch"
        answers.release(answers.used)
        assert len(records_of(await rig.fetch("a", 0))) == 8


@scenario
async def test_damage_is_logged_once_however_often_it_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x"))
        (queue,) = rig.ctx.store.queues.values()
        for place in (7, 7, 8):
            rig.ctx.store.cold_reads.failures[queue.queue_id, 0] = failure_of(Damage(Place("a.log", place)))
            assert only(await rig.fetch("a", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert caplog.text.count("cannot read a-0 at offset 0") == 2


def exceptions_alive() -> list[Exception]:
    """Those of reads that failed, if nothing has collected them: whatever holds one holds every buffer it came by."""
    return [one for one in gc.get_objects() if isinstance(one, Damage | KeyError)]


@pytest.mark.parametrize("kind", ["cold", "on the loop", "cold, beside a hot one", "defect"])
@scenario
async def test_a_read_that_failed_leaves_no_frames_behind(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the collector off: it comes rarely, and each of a thousand readers may fail several times a second."""
    # pytest keeps what is logged, a traceback too
    caplog.set_level(logging.CRITICAL, "cairnmq.broker.storage_loop.cold_reads")

    def fail() -> None:
        buffer = bytearray(1000)
        if kind == "defect":
            raise KeyError(len(buffer))
        raise Damage(Place("a.log", len(buffer)))

    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.create("hot")
        for topic in ("a", "hot"):
            await rig.produce(topic, batch(b"x"))
        told, damaged, read = rig.ctx.store.cold_reads.failures, rig.queue("a"), Reads.read
        told.update({(-1, offset): ReadFailure("nobody asks again") for offset in range(FAILURES_MAX)})

        def read_or_fail(reads: Reads, queue: Queue, *args: Any, **more: Any) -> Any:
            if queue is not damaged:
                return read(reads, queue, *args, **more)
            return fail() if kind == "on the loop" else NotCached(fail)

        monkeypatch.setattr(Reads, "read", read_or_fail)
        asked = [FetchRequest.FetchTopic(topic="a", partitions=[FetchRequest.FetchPartition(partition_max_bytes=9000)])]
        if kind == "cold, beside a hot one":
            asked.append(replace(asked[0], topic="hot"))
        before = len(exceptions_alive())
        gc.disable()
        try:
            codes = set()
            for _ in range(5):
                answer = await rig.ask(1, 12, FetchRequest(max_bytes=1 << 20, topics=asked))
                codes.add(answer.responses[0].partitions[0].error_code)
                await asyncio.sleep(0.01)
            del answer
            assert len(exceptions_alive()) == before
        finally:
            gc.enable()
        expected = ErrorCode.UNKNOWN_SERVER_ERROR if kind == "defect" else ErrorCode.KAFKA_STORAGE_ERROR
        assert expected in codes and codes <= {expected, ErrorCode.NONE}
        assert len(told) <= FAILURES_MAX and all(isinstance(failure, ReadFailure) for failure in told.values())


@scenario
async def test_an_abandoned_fetch_that_waits_for_memory_is_forgotten(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        answers = rig.ctx.answers
        answers.take(answers.limit)
        asked = FetchRequest.FetchTopic(topic="a", partitions=[FetchRequest.FetchPartition()])
        frame = memoryview(b"".join(encode(FetchRequest(topics=[asked]), 12)))
        reply: Any = rig.ctx.router.routes[1].call(rig.ctx, RequestHeader(1, 12, 1, "test"), frame, 0)
        assert answers.wanted
        assert reply.abandon()
        assert not answers.wanted


@scenario
async def test_a_parked_fetch_of_many_partitions_can_be_answered_early(tmp_path: Path) -> None:
    """It is objects for each of them; when others wait for that memory it goes, whatever wait it asked for."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", 4)
        asked = [FetchRequest.FetchPartition(partition=number % 4) for number in range(200)]
        wait = {"max_wait_ms": 2**31 - 1, "min_bytes": 1}
        few = FetchRequest(**wait, topics=[FetchRequest.FetchTopic(topic="a", partitions=asked[:4])])
        many = FetchRequest(**wait, topics=[FetchRequest.FetchTopic(topic="a", partitions=asked)])
        parked = [asyncio.ensure_future(rig.ask(1, 12, request)) for request in (few, many)]
        await asyncio.sleep(0.01)
        (answer_now,) = rig.ctx.large_polls
        answer_now()
        assert len((await parked[1]).responses[0].partitions) == 200
        assert not rig.ctx.large_polls and not parked[0].done()
        parked[0].cancel()


@scenario
async def test_a_client_that_goes_during_a_cold_read_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can be told while the disk works. Afterwards the request must not be parked: nobody would take it out."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x"))
        store, warm = rig.ctx.store, threading.Event()
        monkeypatch.setattr(type(store), "read", lambda *_, **__: NotCached(warm.wait))
        topic = FetchRequest.FetchTopic(topic="a", partitions=[FetchRequest.FetchPartition(partition_max_bytes=1000)])
        request = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=10_000_000, max_bytes=1 << 20, topics=[topic])
        frame = memoryview(b"".join(encode(request, 12)))
        reply: Any = rig.ctx.router.routes[1].call(rig.ctx, RequestHeader(1, 12, 1, "test"), frame, 0)
        settled: list[Any] = []
        reply.deliver = settled.append
        assert not reply.abandon()
        monkeypatch.undo()
        warm.set()
        await until(lambda: settled)
        assert reply.done and not rig.queue("a").waiters
