"""Sizes of queues: which of them are looked at again, and which are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.broker.storage_loop.queue_sizes import LogSizes
from cairnmq.storage.files.damage import Damage, Place
from unit.broker.rig import Rig, batch, open_rig, scenario


async def split(rig: Rig, tmp_path: Path, size: int) -> Path:
    """One record, as if the splitter had moved it to a log of `size` bytes."""
    await rig.create("a")
    await rig.produce("a", batch(b"1"))
    queue = rig.queue("a")
    queue.split_to(queue.end)
    directory = tmp_path / "data" / queue.spec.directory
    directory.mkdir(parents=True)
    log = directory / f"{0:020}.log"
    log.write_bytes(bytes(size))
    return log


def checkpoint(rig: Rig) -> None:
    engine = rig.ctx.store.engine
    engine.checkpointed[0] = engine.paths[0].journal.staged_end


@scenario
async def test_a_queue_that_rests_is_looked_at_until_a_checkpoint_covers_it(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        log = await split(rig, tmp_path, 10)
        sizes, queues = LogSizes(), [rig.queue("a")]
        assert await sizes.measure(rig.ctx.store, queues) == [10]
        log.write_bytes(bytes(20))
        assert await sizes.measure(rig.ctx.store, queues) == [20]
        checkpoint(rig)
        assert await sizes.measure(rig.ctx.store, queues) == [20]
        log.unlink()
        assert await sizes.measure(rig.ctx.store, queues) == [20], "it was looked at although it cannot have changed"


@scenario
async def test_a_moved_start_is_looked_at_until_its_files_are_gone(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        log = await split(rig, tmp_path, 10)
        checkpoint(rig)
        sizes, queues = LogSizes(), [rig.queue("a")]
        assert await sizes.measure(rig.ctx.store, queues) == [10]
        await rig.ctx.store.trim(rig.queue("a"), 1)
        assert await sizes.measure(rig.ctx.store, queues) == [10]
        log.unlink()  # the splitter does that before it reports the checkpoint
        checkpoint(rig)
        assert await sizes.measure(rig.ctx.store, queues) == [0]
        log.write_bytes(bytes(99))
        assert await sizes.measure(rig.ctx.store, queues) == [0]


@scenario
async def test_a_queue_that_was_never_split_is_not_looked_at(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        directory = tmp_path / "data" / rig.queue("a").spec.directory
        directory.mkdir(parents=True)
        (directory / f"{0:020}.log").write_bytes(bytes(5))
        assert await LogSizes().measure(rig.ctx.store, [rig.queue("a")]) == [0]


@scenario
async def test_a_damaged_pack_hides_no_other_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an error of the whole answer about all queues."""
    async with open_rig(tmp_path) as rig:
        await split(rig, tmp_path, 10)
        pack_set = rig.ctx.store.engine.pack_set

        def damaged(pack_set: object, queue_id: int, start: int) -> int:
            raise Damage(Place("packs/1.pack", 0))

        monkeypatch.setattr(type(pack_set), "bytes_of", damaged)
        assert await LogSizes().measure(rig.ctx.store, [rig.queue("a")]) == [10]


@scenario
async def test_deleted_queues_are_forgotten(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await split(rig, tmp_path, 10)
        sizes, queue = LogSizes(), rig.queue("a")
        await sizes.measure(rig.ctx.store, [queue])
        known = sizes._known
        known.update(dict.fromkeys(range(10_000, 20_000), known[queue.queue_id]))
        assert await sizes.measure(rig.ctx.store, [queue]) == [10]
        assert set(sizes._known) == {queue.queue_id}
