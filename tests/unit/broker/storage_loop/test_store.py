"""The store; most of it is tested through its handlers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cairnmq.broker.storage_loop.store import StorageStopped
from cairnmq.groups.offsets import SPACE, Committed, OffsetKey, put
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.files.damage import ReadFailure
from cairnmq.storage.files.format import Fact, Keyed
from cairnmq.storage.journal import journal
from cairnmq.storage.live.ack_policy import DURABLE, AckPoint
from cairnmq.storage.live.queue import Queue
from unit.broker.rig import NOW_MS, batch, open_rig, scenario


@scenario
async def test_who_waits_is_told_of_a_write_that_fails_in_the_same_turn(tmp_path: Path) -> None:
    """Else a marker that was taken back would count as stored when something else lies where it was."""
    async with open_rig(tmp_path) as rig:
        store, path = rig.ctx.store, rig.ctx.store.engine.paths[0]
        end = path.stage_fact(None, Keyed("space", b"key", b"value"), rig.now_ms)
        assert isinstance(end, int)
        waits = store.reached(AckPoint(0, DURABLE, end))
        write = path.take()
        assert write is not None
        path.failed(write, "no space")
        with pytest.raises(StorageStopped):
            await waits


@scenario
async def test_facts_that_cannot_be_staged_stop_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory for the second of two: neither is stored, and what is decided later does not wait for them."""
    async with open_rig(tmp_path) as rig:
        facts, store = rig.facts, rig.ctx.store
        real, before = journal.encode_fact, store.engine.paths[0].journal.staged_end

        def starved(fact: Fact) -> bytes:
            if isinstance(fact, Keyed) and fact.value == b"large":
                raise MemoryError
            return real(fact)

        monkeypatch.setattr(journal, "encode_fact", starved)
        key = put(OffsetKey("g", bytes(16), 7), Committed(1))[1]
        with pytest.raises(StorageStopped, match="MemoryError"):
            await facts.commit([put(OffsetKey("g", bytes(16), 0), Committed(1)), (SPACE, key, b"large")])
        assert store.engine.paths[0].journal.staged_end == before
        await facts.commit([put(OffsetKey("g", bytes(16), 1), Committed(2))])
        assert list(rig.coordinator.groups.offsets.topics("g")[bytes(16)]) == [1]


@scenario
async def test_a_clock_that_is_ahead_forgets_no_producers(tmp_path: Path) -> None:
    """What they send again would be stored twice."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"v", producer_id=8, producer_epoch=0, base_sequence=0))
        rig.now_ms += 30 * 86_400_000
        rig.ctx.store._expire()
        assert list(rig.queue("a").state.producers) == [8]
        assert rig.ctx.store._expiry is not None
        rig.ctx.store._expiry.cancel()


@scenario
async def test_a_cold_read_that_fails_is_told_whatever_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_rig(tmp_path) as rig:
        told: asyncio.Future[list[ReadFailure | None]] = asyncio.get_running_loop().create_future()
        rig.ctx.store.cold_reads.load([NotCached(lambda: None), NotCached({}.popitem)], told.set_result)
        first, second = await told
        assert first is None and second is not None and second.is_defect and "KeyError" in second.text
        assert "Traceback" in caplog.text, "where a defect is, the log says"


@scenario
async def test_a_lookup_by_time_begins_again_when_the_records_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that went back to packs meanwhile: the lookup found files no more, and their records are there."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"v"))
        store, queue, looks = rig.ctx.store, rig.queue("a"), []

        def find(queue: Queue, timestamp: int) -> int | None:
            looks.append(queue.segments_from)
            if len(looks) == 1:
                queue.segments_from -= 1
                return None
            return 0

        monkeypatch.setattr(store.engine.reads, "find_in_log", find)
        assert await store.times.find(queue, 0) == (0, NOW_MS, 1) and len(looks) == 2
