"""Sizes of queues as the status page shows them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from cairnmq.broker.http.queue_size_cache import Sizes
from cairnmq.broker.http.status import Status
from cairnmq.broker.storage_loop.queue_sizes import LogSizes
from cairnmq.broker.storage_loop.store import Store
from cairnmq.storage.live.queue import Queue
from cairnmq.wire.messages import DescribeLogDirsRequest
from unit.broker.rig import Rig, batch, open_rig, scenario


class Desk:
    """Sizes that are asked for as if an hour lay between."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.now = 0.0
        self.sizes = Sizes(lambda: self.now)

    async def seen(self, *topics: str) -> list[int]:
        ctx = self.rig.ctx
        known = await self.sizes.current(ctx.store, ctx.log_sizes)
        return [known.get(self.rig.queue(topic).queue_id, 0) for topic in topics]

    async def seen_later(self, *topics: str) -> list[int]:
        self.now += 3600.0
        return await self.seen(*topics)


@scenario
async def test_they_are_those_of_describe_log_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments, packs and what only the journal has. Packs did not count: topics that live in them had 0 bytes."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        data = batch(b"1", b"2")
        await rig.produce("a", data)
        await rig.produce("a", data)
        queue = rig.queue("a")
        directory = tmp_path / "data" / queue.spec.directory
        directory.mkdir(parents=True)
        (directory / f"{0:020}.log").write_bytes(bytes(70))
        (directory / f"{0:020}.index").write_bytes(bytes(1000))
        queue.split_to(2)
        pack_set = rig.ctx.store.engine.pack_set
        monkeypatch.setattr(type(pack_set), "bytes_of", lambda pack_set, queue_id, start: 500)
        status = Status(lambda: 0.0)
        status.serve(rig.ctx)
        topic = await status.topic("a")
        assert topic is not None
        shown = [partition["bytes"] for partition in topic["partitions"]]
        answer = await rig.ask(35, 4, DescribeLogDirsRequest(topics=None))
        assert shown == [each.partition_size for each in answer.results[0].topics[0].partitions]
        assert shown == [70 + 500 + len(data), 0]
        assert [topic["bytes"] for topic in await status.topics()] == [sum(shown)]


@scenario
async def test_looking_is_rare(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        desk, data = Desk(rig), batch(b"1")
        await rig.produce("a", data)
        assert await desk.seen("a") == [len(data)]
        await rig.produce("a", data)
        assert await desk.seen("a") == [len(data)]
        assert await desk.seen_later("a") == [2 * len(data)]


@scenario
async def test_a_disk_that_fails_once_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.create("b")
        desk, data = Desk(rig), batch(b"1")
        await rig.produce("a", data)
        assert await desk.seen_later("a", "b") == [len(data), 0]
        await rig.produce("b", data)
        with monkeypatch.context() as patch:

            async def fail(sizes: LogSizes, store: Store, queues: Sequence[Queue]) -> list[int]:
                raise OSError(errno.EIO, "Input/output error")

            patch.setattr(LogSizes, "measure", fail)
            assert await desk.seen_later("a", "b") == [len(data), 0], "those known before"
            assert "the disk failed" in caplog.text
        assert await desk.seen_later("a", "b") == [len(data), len(data)]


@scenario
async def test_many_askers_look_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        desk, looks = Desk(rig), 0
        measure = LogSizes.measure

        async def counted(sizes: LogSizes, store: Store, queues: Sequence[Queue]) -> list[int]:
            nonlocal looks
            looks += 1
            return await measure(sizes, store, queues)

        monkeypatch.setattr(LogSizes, "measure", counted)
        assert await asyncio.gather(*(desk.seen("a") for _ in range(10))) == [[0]] * 10
        assert looks == 1
