"""Recovery at a start: what was found is compared with the metadata, a loss is accepted or refused, journals open."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence

from cairnmq import __version__, kernels
from cairnmq.broker.coordination.slot_keys import place_of
from cairnmq.broker.data_directories import DataDirectories
from cairnmq.broker.found_metadata import FoundMetadata
from cairnmq.broker.live_catalog import all_queue_specs
from cairnmq.broker.opened import OpenMetadata, OpenStorage
from cairnmq.broker.runtime import Runtime
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
    reach,
)
from cairnmq.types import Counters, Slots

log = logging.getLogger("cairnmq.broker")

_LOSSES_MAX = 4  # that are accepted in one start: some show only when another is out of the way


async def open_storage(
    directories: DataDirectories,
    locks: Sequence[DirectoryLock],
    metadata: OpenMetadata,
    found: FoundMetadata,
    *,
    node_id: int,
    accept_loss: bool,
    progress: Progress,
    runtime: Runtime,
) -> OpenStorage:
    """On a thread of its own, so that /health is still served."""
    arm_fault_point(metadata.config)
    recovery = _Recovery(
        directories, metadata, found, runtime, node_id=node_id, accept_loss=accept_loss, progress=progress
    )
    started = runtime.seconds()
    engine = await asyncio.to_thread(recovery.run)
    seconds = runtime.seconds() - started
    tell_foreign(find_foreign(directories.journal_disk(), engine.paths), directories.journal)
    log.info(
        "cairn %s (%s): recovered %d %s in %.3f s%s, epoch %d",
        __version__,
        kernels.summary(),
        len(engine.queues),
        "partition" if len(engine.queues) == 1 else "partitions",
        seconds,
        " after a clean stop" if engine.was_clean else "",
        engine.epoch,
    )
    return OpenStorage(
        engine,
        recovery.slots,
        directories.journal,
        directories.data,
        [lock.fileno() for lock in locks],
        recovery_seconds=seconds,
    )


def arm_fault_point(config: BrokerConfig) -> None:
    """A test says where the process is to die."""
    if config.cairn_fault_point:
        arm(config.cairn_fault_point, lambda: os.kill(os.getpid(), signal.SIGKILL))


def engine_config(config: BrokerConfig, node_id: int) -> EngineConfig:
    return EngineConfig(
        node_id=node_id,
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
        runtime: Runtime,
        *,
        node_id: int,
        accept_loss: bool,
        progress: Progress,
    ) -> None:
        self._directories = directories
        self._metadata = metadata
        self._found = found
        self._runtime = runtime
        self._node_id = node_id
        self._accept_loss = accept_loss
        self._progress = progress
        image = placed(metadata.catalog.image, metadata.catalog.journals)
        self._specs: list[QueueSpec] = all_queue_specs(image, metadata.config)

    def run(self) -> Engine:
        engine, metadata = self._recovered(), self._metadata
        witness = metadata.witness
        if not witness.is_current(self.slots.first) or any(scan.is_old for scan in engine.scans.values()):
            self._upgrade(engine)
            reach("upgrade-owner")
            witness.upgraded(self.slots.first, self._counters())
        # An older version cannot read topics with cycles, so it has to refuse by itself from here on.
        metadata.thread.submit(metadata.catalog.place_queues).result()
        witness.keep(self._counters())
        return engine

    @property
    def slots(self) -> Slots:
        """They are made with the first start that gets so far."""
        slots = self._metadata.catalog.image.slots
        assert slots is not None
        return slots

    def _upgrade(self, engine: Engine) -> None:
        from cairnmq.storage.api import upgrading  # once in the life of a data directory

        if not upgrading.is_needed(engine):
            return
        slots = self.slots
        log.info("upgrading the data directory: all journals are split before anything is written in the new format")

        def slot_of(space: str, key: bytes) -> int:
            place = place_of(slots, space, key)
            return place.queue_id if place is not None else 0

        upgrading.upgrade(engine, self._directories.journal_disk(), slot_of, self._runtime.wall_ms())

    def _recovered(self) -> Engine:
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
        slots = self._metadata.catalog.image.slots
        return Engine.open(
            self._directories.journal_disk(),
            self._directories.data_disk(),
            self._specs,
            journals={*self._metadata.catalog.journals, *(slots.cycle if slots is not None else ())},
            begin=self._begin,
            seed=self._runtime.random_bits(32),
            config=engine_config(self._metadata.config, self._node_id),
            now_ms=self._runtime.wall_ms(),
            last_epoch=self._counters().epoch,
            refuse_damage=self._accept_loss,
            progress=self._progress,
            tell=tell_scans,
        )

    def _counters(self) -> Counters:
        return self._metadata.thread.submit(self._metadata.catalog.counters).result()

    def _begin(self, known: Known) -> int:
        """Compares the metadata with the witness, commits them, writes the witness; entries are appended after that."""
        metadata = self._metadata

        def keep(begun: Counters) -> None:
            metadata.catalog.make_slots(metadata.catalog.journals)
            self._found.forget()  # once the witness knows this epoch, the metadata must not forget it
            metadata.witness.keep(metadata.catalog.counters())

        epoch = metadata.thread.submit(begin, metadata.catalog, known, keep).result()
        assert epoch > known.floor.epoch, f"epoch {epoch} was in use: {known.floor.epoch} is known"
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
        seed, now_ms = self._runtime.random_bits(32), self._runtime.wall_ms()
        self._directories.accept(loss, epoch=epoch, node_id=self._node_id, seed=seed, now_ms=now_ms)
        thread.submit(catalog.raise_to, floor).result()
