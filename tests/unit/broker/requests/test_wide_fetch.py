"""Fetches of very many partitions: one answer, piece by piece, and turns of the loop for others in between."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.requests import wide_fetch
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import ErrorCode
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.wire.messages import FetchRequest
from unit.broker.rig import Rig, batch, open_rig, scenario

NO_SESSION = {"session_epoch": -1, "max_bytes": 1 << 20}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_fetch, "TURN_PARTITIONS", 7)


def asked(rig: Rig, version: int, topic: str, partitions: list[int], most: int = 1 << 20) -> FetchRequest.FetchTopic:
    known = rig.ctx.catalog.image.topic(topic)
    return FetchRequest.FetchTopic(
        topic=topic if version < 13 else "",
        topic_id=known.topic_id if version >= 13 and known is not None else bytes(16),
        partitions=[FetchRequest.FetchPartition(partition=p, partition_max_bytes=most) for p in partitions],
    )


def told(answer: Any) -> dict[int, tuple[int, int]]:
    """Partition -> error and bytes; every partition once."""
    rows = [data for topic in answer.responses for data in topic.partitions]
    assert len({data.partition_index for data in rows}) == len(rows)
    return {data.partition_index: (data.error_code, len(data.records)) for data in rows}


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 18])
@scenario
async def test_every_partition_is_answered_once(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=20)
        await rig.produce("a", batch(b"x"), partition=0)
        await rig.produce("a", batch(b"y"), partition=17)
        many = asked(rig, version, "a", [*range(25), *range(10)])
        answer = await rig.ask(1, version, FetchRequest(topics=[many], max_wait_ms=60_000, **NO_SESSION))
        rows = told(answer)
        assert set(rows) == set(range(25)) and (answer.error_code, answer.session_id) == (0, 0)
        assert {p for p, (code, _) in rows.items() if code} == set(range(20, 25))
        assert rows[20][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert {p for p, (_, size) in rows.items() if size} == {0, 17}


@scenario
async def test_limits_hold_over_all_pieces(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=30)
        size = len(batch(bytes(1000)))
        for partition in range(30):
            await rig.produce("a", batch(bytes(1000)), partition=partition)
        for limit, batches in ((1, 1), (10 * size, 10), (100 * size, 30)):
            request = FetchRequest(topics=[asked(rig, 12, "a", [*range(30)], size)], max_bytes=limit, session_epoch=-1)
            rows = told(await rig.ask(1, 12, request))
            assert len(rows) == 30 and sum(bytes_ for _, bytes_ in rows.values()) == batches * size


@scenario
async def test_it_waits_for_records_but_not_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=20)
        many = FetchRequest(
            topics=[asked(rig, 12, "a", [*range(20)])], max_wait_ms=2**31 - 1, min_bytes=1, **NO_SESSION
        )
        waits = asyncio.ensure_future(rig.ask(1, 12, many))
        await asyncio.sleep(0.02)
        assert not waits.done()
        await rig.produce("a", batch(b"x"), partition=19)
        assert told(await waits)[19][1] > 0
        monkeypatch.setattr(wide_fetch, "WAIT_SECONDS_MAX", 0.05)
        many.min_bytes = 2**31 - 1
        assert told(await rig.ask(1, 12, many))[19][1] > 0


@scenario
async def test_others_get_turns_in_between(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=70)
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(turn)

        turn()
        await rig.ask(1, 12, FetchRequest(topics=[asked(rig, 12, "a", [*range(70)])], max_wait_ms=0, **NO_SESSION))
        assert turns >= 10


@scenario
async def test_a_session_is_still_to_be_had(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=20)
        request = FetchRequest(topics=[asked(rig, 12, "a", [*range(20)])], session_epoch=0, max_wait_ms=0)
        answer = await rig.ask(1, 12, request)
        assert answer.session_id > 0 and len(told(answer)) == 20


@scenario
async def test_a_piece_that_fails_later_leaves_no_frames_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector, which is off here, comes rarely, and the frames hold what was read."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=20)
        await rig.produce("a", batch(b"x"), partition=0)
        outcomes: list[Any] = [lambda: NotCached(lambda: None), {}.popitem] * 3  # it waits for the disk, and then fails

        def read(*_: Any, **__: Any) -> Any:
            return outcomes.pop(0)()

        monkeypatch.setattr(Store, "read", read)

        async def fail() -> None:
            many = asked(rig, 12, "a", list(range(20)))
            with pytest.raises(KeyError):
                await rig.ask(1, 12, FetchRequest(topics=[many], max_wait_ms=60_000, **NO_SESSION))

        gc.collect()
        before = sum(isinstance(one, KeyError) for one in gc.get_objects())
        gc.disable()
        try:
            for _ in range(3):
                await fail()
                await asyncio.sleep(0)
            assert sum(isinstance(one, KeyError) for one in gc.get_objects()) == before
        finally:
            gc.enable()
