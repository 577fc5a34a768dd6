"""The metadata of a start: found, perhaps made anew after a loss, opened on their thread, compared with the owner."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager

from cairnmq.broker import logs
from cairnmq.broker.data_directories import DataDirectories
from cairnmq.broker.directory_owner import METADATA_FILE, refuse_start_alone
from cairnmq.broker.found_metadata import FoundMetadata
from cairnmq.broker.opened import OpenMetadata
from cairnmq.broker.options import ServeOptions
from cairnmq.broker.runtime import Runtime
from cairnmq.broker.start_errors import CannotServe
from cairnmq.broker.start_report import tell_accepted
from cairnmq.errors import Corrupt, Lost, Refusal
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.start import (
    UNFINISHED,
    Known,
    OwnerWitness,
    check_owner,
    find_metadata_loss,
    put_aside,
    read_owner,
)

BESIDE_METADATA = tuple(METADATA_FILE + suffix for suffix in ("-wal", "-shm", "-journal"))  # SQLite's


async def open_metadata(
    stack: AsyncExitStack,
    options: ServeOptions,
    directories: DataDirectories,
    start_config: BrokerConfig,
    runtime: Runtime,
) -> tuple[OpenMetadata, FoundMetadata]:
    """Nothing is decided on them yet: until then they can be put back as they were found."""
    loop = asyncio.get_running_loop()
    owner = read_owner(directories.journal_disk())  # before anything is opened: of a newer version nothing is touched
    refuse_start_alone(options.data, directories.journal_disk(), directories.data_disk())
    found = FoundMetadata(options.data, METADATA_FILE)
    await asyncio.to_thread(found.keep)
    stack.callback(found.put_back)  # when the metadata are closed, unless a decision was made on them
    await asyncio.to_thread(replace_lost_metadata, options, directories, found, runtime)
    thread = runtime.executor("metadata", 1)
    stack.callback(thread.shutdown)
    with _advice_on_damage():
        store = await loop.run_in_executor(thread, SqliteStore, os.path.join(options.data, METADATA_FILE))
        stack.push_async_callback(loop.run_in_executor, thread, store.close)
        catalog = Catalog(
            store,
            node_id=options.node_id,
            journals=range(start_config.cairn_journals),
            random_bytes=runtime.random_bytes,
        )
        await loop.run_in_executor(thread, catalog.load)
    stack.callback(catalog.close)
    config = catalog.broker_config(start_config)
    if isinstance(config, Refusal):
        raise CannotServe(config.message)
    logs.set_level(config.cairn_log_level)
    await asyncio.to_thread(
        check_owner,
        directories.journal_disk(),
        directories.data_disk(),
        catalog.cluster_id,
        where=directories.journal,
        has_topics=bool(catalog.image.topics),
        accept_loss=options.accept_loss,
    )
    await loop.run_in_executor(thread, catalog.name_cluster, owner.cluster_id if owner is not None else "")
    witness = OwnerWitness(
        directories.journal_disk(), catalog.cluster_id, options.node_id, runtime.random_bytes(16).hex()
    )
    return OpenMetadata(catalog, thread, config, witness), found


@contextmanager
def _advice_on_damage() -> Iterator[None]:
    try:
        yield
    except Corrupt as error:
        raise Corrupt(f"{error}; nothing was changed. Restore the newest copy of this file") from error


def replace_lost_metadata(
    options: ServeOptions, directories: DataDirectories, found: FoundMetadata, runtime: Runtime
) -> None:
    """A new file hides that the old one is gone, and what no topic claims is deleted. So it gets its name only when all
    that was there is put aside: a start that is stopped before that is done again, with the same file.

    One in which nothing stands is as good as gone: SQLite drops a damaged write-ahead log without a word."""
    disk, begun = directories.data_disk(), METADATA_FILE + UNFINISHED
    is_there = disk.exists(METADATA_FILE)
    if is_there:
        with _advice_on_damage(), closing(SqliteStore(os.path.join(options.data, METADATA_FILE))) as store:
            if store.revision:
                return
        found.put_back()  # what is put aside, or left, is what was there
    what = f"{METADATA_FILE} is empty" if is_there else "the metadata is missing"
    loss = find_metadata_loss(directories.journal_disk(), disk, what)
    if is_there and loss is None:
        return  # the first start was stopped before it had begun
    if loss is None and not disk.exists(begun):
        return
    if loss is not None and not options.accept_loss:
        raise Lost(loss.text())
    with (
        closing(SqliteStore(os.path.join(options.data, begun))) as store,
        closing(Catalog(store, node_id=options.node_id, random_bytes=runtime.random_bytes)) as catalog,
    ):
        catalog.load()
        owner = read_owner(directories.journal_disk())
        catalog.name_cluster(owner.cluster_id if owner is not None else "")
        known = loss.known if loss is not None else Known()
        epoch = catalog.next_epoch(known.floor.epoch)
        catalog.raise_to(known.floor)
        if loss is not None:
            tell_accepted(loss)
            seed = runtime.random_bits(32)
            directories.accept(loss, epoch=epoch, node_id=options.node_id, seed=seed, now_ms=runtime.wall_ms())
    if disk.exists(begun + "-wal"):
        raise CannotServe(f"{begun} could not be written completely: is the disk full?")
    # Of the lost file, if a broker was killed: SQLite would replay it into the new one.
    put_aside(disk, [name for name in (METADATA_FILE, *BESIDE_METADATA) if disk.exists(name)], epoch)
    disk.rename(begun, METADATA_FILE)
    disk.sync_dir("")
