"""Recovery at a start: the epoch rises, and metadata that are older than the records are refused."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from errno import ENOSPC
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from cairnmq.broker.data_directories import DataDirectories
from cairnmq.broker.found_metadata import FoundMetadata
from cairnmq.broker.machine import MACHINE
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.start_storage import engine_config, open_storage
from cairnmq.errors import Corrupt, Lost, Outdated
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import ABSENT
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import EngineConfig
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.recovery.owner import OwnerWitness
from golden.directory import unpack
from unit.broker.rig import scenario


async def started(
    directory: Path,
    name: str,
    *,
    accept_loss: bool = False,
    journals: Sequence[int] = (0,),
    kind: type[Catalog] = Catalog,
) -> OpenStorage:
    """With the metadata file of that name."""
    directories = DataDirectories(str(directory / "journal"), str(directory))
    directories.data_disk().make_dir("")
    found = FoundMetadata(str(directory), name)
    found.keep()
    with (
        ExitStack() as stack,
        closing(SqliteStore(str(directory / name))) as store,
        closing(kind(store, journals=journals)) as catalog,
    ):
        stack.callback(found.put_back)
        with ThreadPoolExecutor(1) as thread:
            catalog.load()
            catalog.name_cluster()
            witness = OwnerWitness(directories.journal_disk(), catalog.cluster_id)
            return await open_storage(
                directories,
                [],
                OpenMetadata(catalog, thread, BrokerConfig(), witness),
                found,
                node_id=1,
                accept_loss=accept_loss,
                progress=lambda scanned, whole: None,
                runtime=replace(MACHINE, wall_ms=lambda: 0),
            )


@scenario
async def test_each_start_has_a_higher_epoch_and_older_metadata_are_refused(tmp_path: Path) -> None:
    epochs = [(await started(tmp_path, "meta.db")).engine.epoch for _ in range(3)]
    assert epochs == sorted(set(epochs))
    with pytest.raises((Lost, Outdated), match="older than the records"):
        await started(tmp_path, "older.db")
    accepted = (await started(tmp_path, "older.db", accept_loss=True)).engine.epoch
    assert accepted > epochs[-1]


def put_old_topic(store: SqliteStore) -> None:
    """As a version stored it that took the journal from the queue id: without cycles."""
    known = store.get("ids/next-queue")
    store.put("topics/t", b'{"name":"t","topic_id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[1,2],[5,3]]}', ABSENT)
    store.put("ids/next-queue", b"50", known.revision if known is not None else ABSENT)


def store_old_topic(path: Path) -> None:
    with closing(SqliteStore(str(path))) as store:
        put_old_topic(store)


def cycles(path: Path) -> list[tuple[int, ...]]:
    with closing(SqliteStore(str(path))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
        return [each.cycle for each in catalog.image.topics["t"].partitions]


@scenario
async def test_topics_of_an_earlier_version_get_their_journals_for_good(tmp_path: Path) -> None:
    store_old_topic(tmp_path / "meta.db")
    for journals in ((0, 1, 2), (0,), (0, 1)):
        engine = (await started(tmp_path, "meta.db", journals=journals)).engine
        assert {queue_id: queue.journal for queue_id, queue in engine.queues.items()} == {1: 1, 2: 2, 5: 2, 6: 0, 7: 1}
        assert list(engine.paths) == [0, 1, 2], "those that a topic names are hosted, whatever the setting says"
        assert cycles(tmp_path / "meta.db") == [(1, 2, 0), (2, 0, 1)]


@scenario
async def test_a_start_that_is_refused_places_nothing(tmp_path: Path) -> None:
    for _ in range(3):
        await started(tmp_path, "meta.db")
    store_old_topic(tmp_path / "older.db")
    with pytest.raises((Lost, Outdated), match="older than the records"):
        await started(tmp_path, "older.db")
    assert cycles(tmp_path / "older.db") == [(), ()]


@scenario
async def test_an_upgrade_that_is_refused_leaves_topics_to_the_version_before(tmp_path: Path) -> None:
    """That one still serves what is sound, but cannot read topics with cycles."""
    unpack("version-1", tmp_path)
    disk = RealDisk(str(tmp_path / "journal"))
    reader, mark = JournalReader(disk, 0), load_checkpoint(RealDisk(str(tmp_path))).marks[0]
    first = next(reader.entries(mark.split, reader.end()))
    with (tmp_path / "journal/0/00000000000000000000.jnl").open("r+b") as file:
        file.seek(first.position + 40)
        file.write(bytes(8))
    with pytest.raises(Corrupt, match="earlier version and cannot be upgraded"):
        await started(tmp_path, "meta.db", journals=(0, 1))
    with closing(SqliteStore(str(tmp_path / "meta.db"))) as store:
        stored = [entry.value for entry in store.list("topics/")]
    assert stored and all(len(each) == 2 for value in stored for each in msgspec.json.decode(value)["partitions"])


class FullDisk(Catalog):
    """One that takes no more when queues are to be placed."""

    def place_queues(self) -> None:
        raise OSError(ENOSPC, "No space left on device")


@scenario
async def test_a_start_that_fails_in_the_middle_does_not_take_its_epoch_back(tmp_path: Path) -> None:
    """The witness knows it, so metadata that were put back would be older than the records from then on."""
    await started(tmp_path / "stopped", "meta.db")
    killed = tmp_path / "killed"
    with closing(SqliteStore(str(tmp_path / "stopped/meta.db"))) as store:
        put_old_topic(store)
        shutil.copytree(tmp_path / "stopped", killed)
    assert (killed / "meta.db-wal").stat().st_size > 0, "so the start keeps a copy"
    with pytest.raises(OSError, match="No space"):
        await started(killed, "meta.db", kind=FullDisk)
    assert (await started(killed, "meta.db")).engine.epoch == 3


def test_storage_has_the_settings_of_the_broker() -> None:
    assert engine_config(BrokerConfig(), 1) == EngineConfig(), "the defaults are the same"
    config = BrokerConfig(cairn_unsplit_entries_max=7)
    assert engine_config(config, 4) == EngineConfig(node_id=4, unsplit_entries_max=7)
