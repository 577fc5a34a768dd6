"""Recovery at a start: what was found is compared with the metadata, a loss is accepted or refused, journals open."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Callable, Sequence

from cairnmq import __version__, kernels
from cairnmq.broker.data_directories import DataDirectories
from cairnmq.broker.found_metadata import FoundMetadata
from cairnmq.broker.live_catalog import all_queue_specs
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.start_report import tell_accepted, tell_foreign, tell_scans
from cairnmq.errors import Corrupt, Lost, Outdated
from cairnmq.metadata.topics import placed
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.start import (
    DirectoryLock,
    Engine,
    EngineConfig,
    Known,
    Loss,
    Progress,
    QueueSpec,
    arm,
    begin,
    find_foreign,
    find_loss,
)
from cairnmq.types import Counters

log = logging.getLogger("cairnmq.broker")

_LOSSES_MAX = 4  # that are accepted in one start: some show only when another is out of the way


async def open_storage(
    directories: DataDirectories,
    locks: Sequence[DirectoryLock],
    metadata: OpenMetadata,
    found: FoundMetadata,
    *,
    accept_loss: bool,
    progress: Progress,
    wall: Callable[[], int],
    clock: Callable[[], float],
) -> OpenStorage:
    """On a thread of its own, so that /health is still served. `clock` measures how long it takes, in seconds."""
    if metadata.config.cairn_fault_point:
        arm(metadata.config.cairn_fault_point, lambda: os.kill(os.getpid(), signal.SIGKILL))
    recovery = _Recovery(directories, metadata, found, wall, accept_loss=accept_loss, progress=progress)
    started = clock()
    engine = await asyncio.to_thread(recovery.run)
    seconds = clock() - started
    tell_foreign(find_foreign(directories.journal_disk(), engine.paths), directories.journal)
    log.info(
        "cairn %s (%s): recovered %d queues in %.3f s, epoch %d",
        __version__,
        kernels.summary(),
        len(engine.queues),
        seconds,
        engine.epoch,
    )
    return OpenStorage(
        engine, directories.journal, directories.data, [lock.fileno() for lock in locks], recovery_seconds=seconds
    )


def engine_config(config: BrokerConfig) -> EngineConfig:
    return EngineConfig(
        segment_bytes=config.cairn_journal_segment_bytes,
        retain_bytes=config.cairn_journal_retention_bytes,
        unsplit_bytes_max=config.cairn_unsplit_bytes_max,
        unsplit_entries_max=config.cairn_unsplit_entries_max,
    )


class _Recovery:
    """Runs on a thread; what it asks of the metadata is done on theirs, and waited for."""

    def __init__(
        self,
        directories: DataDirectories,
        metadata: OpenMetadata,
        found: FoundMetadata,
        wall: Callable[[], int],
        *,
        accept_loss: bool,
        progress: Progress,
    ) -> None:
        self._directories = directories
        self._metadata = metadata
        self._found = found
        self._wall = wall
        self._accept_loss = accept_loss
        self._progress = progress
        image = placed(metadata.catalog.image, metadata.catalog.journals)
        self._specs: list[QueueSpec] = all_queue_specs(image, metadata.config)

    def run(self) -> Engine:
        for _ in range(_LOSSES_MAX):
            try:
                return self._open()
            except Corrupt as error:
                loss = find_loss(
                    self._directories.journal_disk(), self._directories.data_disk(), self._specs, self._counters()
                )
                if loss is None:
                    raise
                if not self._accept_loss:
                    if isinstance(error, Outdated):
                        raise
                    raise Lost(loss.text()) from None
            self._accept(loss)
        return self._open()

    def _open(self) -> Engine:
        return Engine.open(
            self._directories.journal_disk(),
            self._directories.data_disk(),
            self._specs,
            journals=self._metadata.catalog.journals,
            begin=self._begin,
            seed=secrets.randbits(32),
            config=engine_config(self._metadata.config),
            now_ms=self._wall(),
            refuse_damage=self._accept_loss,
            progress=self._progress,
            tell=tell_scans,
        )

    def _counters(self) -> Counters:
        return self._metadata.thread.submit(self._metadata.catalog.counters).result()

    def _begin(self, known: Known) -> int:
        """Compares the metadata with the witness, commits them, writes the witness; entries are appended after that,
        where the metadata say."""
        metadata = self._metadata
        epoch = metadata.thread.submit(begin, metadata.catalog, known, metadata.witness.keep).result()
        metadata.thread.submit(metadata.catalog.place_queues).result()
        assert epoch > known.floor.epoch, f"epoch {epoch} was in use: {known.floor.epoch} is known"
        self._found.forget()
        return epoch

    def _accept(self, loss: Loss) -> None:
        """The ids last: until the loss is remembered on disk, a start without --accept-loss is refused."""
        catalog, thread = self._metadata.catalog, self._metadata.thread
        if loss.is_outdated:
            loss.what.append(f"these may be outdated: {catalog.image.summary()}")
        floor = loss.known.floor
        epoch = thread.submit(catalog.next_epoch, floor.epoch).result()
        if loss.is_outdated:
            self._found.put_aside(epoch)
        self._found.forget()  # from here on files bear this epoch, so the metadata must not forget it
        tell_accepted(loss)
        self._directories.accept(loss, epoch=epoch, now_ms=self._wall())
        thread.submit(catalog.raise_to, floor).result()
