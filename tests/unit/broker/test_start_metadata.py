"""Metadata that are gone: what is left is put aside before new ones get the name."""

from __future__ import annotations

import errno
import itertools
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from cairnmq.broker.data_directories import DataDirectories
from cairnmq.broker.found_metadata import FoundMetadata
from cairnmq.broker.machine import MACHINE
from cairnmq.broker.options import ServeOptions
from cairnmq.broker.start_metadata import replace_lost_metadata
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Lost
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.splitter import Splitter


def leave_wal(path: Path) -> None:
    """What a killed broker leaves beside its metadata, which are gone."""
    wal = path.with_name(path.name + "-wal")
    with closing(SqliteStore(str(path))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
        catalog.next_epoch()
        left = wal.read_bytes()
    path.unlink()
    wal.write_bytes(left)


@pytest.mark.parametrize("which", range(1, 7))
def test_a_stopped_start_with_accept_loss_keeps_what_no_topic_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """The next start found the new metadata, saw no loss, and deleted what should have been put aside."""
    data, journals = str(tmp_path), str(tmp_path / "journal")
    spec = QueueSpec(7, "t", 0, bytes(16), LogConfig(model="dedicated"))
    disks = RealDisk(journals), RealDisk(data)
    engine = Engine.open(*disks, [spec], begin=lambda _: 3, seed=5, config=EngineConfig(), now_ms=0)
    path = engine.paths[0]
    path.stage(engine.queues[7], memoryview(bytearray(build_batch([Record(0, 0, None, b"value", ())]))), -1, 0)
    write = path.take()
    assert write is not None
    path.write(write)
    path.written(write)
    path.synced_to(path.sync())
    splitter = Splitter(*disks, load_checkpoint(disks[1]), lambda ids: [spec], journals=[0])
    splitter.split(0, engine.splittable(0), 0)
    splitter.checkpoint(0)
    splitter.close()
    leave_wal(tmp_path / "meta.db")
    options, rename, calls = ServeOptions(data=data, accept_loss=True), RealDisk.rename, itertools.count(1)
    found, directories = FoundMetadata(data, "meta.db"), DataDirectories.of(options)

    def fail(disk: RealDisk, old: str, new: str) -> None:
        if next(calls) == which:
            raise OSError(errno.ENOSPC, "no room")
        rename(disk, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "rename", fail)
        with pytest.raises(OSError, match="no room"):
            replace_lost_metadata(options, directories, found, replace(MACHINE, wall_ms=lambda: 0))
    assert not (tmp_path / "meta.db").exists()
    if which != 4:  # there all is put aside and nothing new is made: nothing is left that could be lost
        with pytest.raises(Lost):
            replace_lost_metadata(ServeOptions(data=data), directories, found, replace(MACHINE, wall_ms=lambda: 0))
    replace_lost_metadata(options, directories, found, replace(MACHINE, wall_ms=lambda: 0))
    assert list(tmp_path.glob("lost/*/queues/t-0/*.log")), "records are kept aside"
    assert list(tmp_path.glob("journal/lost/*/0/*")), "and journals"
    assert not list(tmp_path.glob("queues/*"))
    assert list(tmp_path.glob("lost/*/meta.db-wal")), "and changes of the lost metadata, not replayed into the new"
    with closing(SqliteStore(str(tmp_path / "meta.db"))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
        assert catalog.image.next_queue_id > 7 and catalog.next_epoch() > 4
    assert not (tmp_path / "meta.db.new").exists()
