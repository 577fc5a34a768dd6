"""Recovery at a start: the epoch rises, and metadata that are older than the records are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from cairnmq.broker.data_directories import DataDirectories
from cairnmq.broker.found_metadata import FoundMetadata
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.start_storage import engine_config, open_storage
from cairnmq.errors import Lost, Outdated
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.engine import EngineConfig
from cairnmq.storage.recovery.owner import OwnerWitness
from unit.broker.rig import scenario


async def started(directory: Path, name: str, *, accept_loss: bool = False) -> OpenStorage:
    """With the metadata file of that name."""
    directories = DataDirectories(str(directory / "journal"), str(directory))
    with closing(SqliteStore(str(directory / name))) as store, closing(Catalog(store)) as catalog:
        with ThreadPoolExecutor(1) as thread:
            catalog.load()
            catalog.name_cluster()
            witness = OwnerWitness(directories.journal_disk(), catalog.cluster_id, 1)
            return await open_storage(
                directories,
                [],
                OpenMetadata(catalog, thread, BrokerConfig(), witness),
                FoundMetadata(str(directory), name),
                node_id=1,
                accept_loss=accept_loss,
                progress=lambda scanned, whole: None,
                wall=lambda: 0,
                clock=lambda: 0.0,
            )


@scenario
async def test_each_start_has_a_higher_epoch_and_older_metadata_are_refused(tmp_path: Path) -> None:
    epochs = [(await started(tmp_path, "meta.db")).engine.epoch for _ in range(3)]
    assert epochs == sorted(set(epochs))
    with pytest.raises((Lost, Outdated), match="older than the records"):
        await started(tmp_path, "older.db")
    accepted = (await started(tmp_path, "older.db", accept_loss=True)).engine.epoch
    assert accepted > epochs[-1]


def test_storage_has_the_settings_of_the_broker() -> None:
    assert engine_config(BrokerConfig(), 1) == EngineConfig(), "the defaults are the same"
    config = BrokerConfig(cairn_journals=3, cairn_unsplit_entries_max=7)
    assert engine_config(config, 4) == EngineConfig(journals=3, node_id=4, unsplit_entries_max=7)
