"""The broker's side of the splitter: how far it may split, and what each of its reports changes.

The messages are in splitter_messages; the process, its socket and its successors are splitter_link's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from cairnmq.broker.storage_loop.journal_loop import JournalLoop
from cairnmq.broker.storage_loop.splitter_link import SplitterLink
from cairnmq.broker.storage_loop.splitter_messages import (
    Advance,
    Ask,
    Begin,
    Begun,
    Checkpointed,
    Compacted,
    Configure,
    Damaged,
    Drop,
    Expiration,
    Finish,
    Finished,
    Pace,
    Proposals,
    Repair,
    Repaired,
    Report,
    Seen,
    Specs,
    Split,
    SyncFailed,
    Trouble,
)
from cairnmq.os_errors import text_of
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.serving import DOUBT_FILE, Engine, Queue, QueueSpec

log = logging.getLogger(__name__)

ADVANCE_SECONDS = 0.1
ADVANCE_BYTES = 8 << 20
SYNC_FAILED_SECONDS = 1.0  # time for a disk to recover, and no busy loop if it does not
URGENT_SHARE = 0.5  # of the backlog's cap, from where the splitter runs at normal priority
FINISH_SECONDS = 120.0


class SplitterControl:
    """Lives on the loop thread. `give_room` is called when the backlog became smaller."""

    def __init__(
        self,
        engine: Engine,
        loops: Sequence[JournalLoop],
        cold: Executor,
        *,
        lock_fds: Sequence[int],
        journal_dir: str,
        data_dir: str,
        config: BrokerConfig,
        clock: Callable[[], int],
        give_room: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._loops = loops
        self._cold = cold
        self._journal_dir = journal_dir
        self._data_dir = data_dir
        self._config = config
        self._clock = clock
        self._give_room = give_room
        self._loop = asyncio.get_running_loop()
        self.link = SplitterLink(lock_fds, self.begin, self.take, self._return_to_checkpoint)
        self.split_enabled = config.cairn_split_enable
        self._urgent = False
        self._advanced = 0
        self._advance_timer: asyncio.TimerHandle | None = None
        self._trouble: str | None = None  # of the splitter that runs, as it says
        self._failed_sync: str | None = None  # of the read disk, until a checkpoint shows that all is on disk again
        self._must_roll_back = False  # what was split since the checkpoint may be lost
        self.compaction = Compacted(0, 0, 0, 0.0)
        self.checkpoint_at = time.monotonic()
        self.checkpoint_seconds = 0.0
        self._actions: dict[type[Report], Callable[[Any], None]] = {
            Ask: self._on_ask,
            Begun: self._on_begun,
            Split: self._on_split,
            Checkpointed: self._on_checkpointed,
            Proposals: self._on_proposals,
            Damaged: self._on_damaged,
            Repaired: self._on_repaired,
            SyncFailed: self._on_sync_failed,
            Trouble: self._on_trouble,
            Compacted: self._on_compacted,
            Finished: self._on_finished,
        }

    @property
    def troubles(self) -> list[str]:
        """Why nothing is split at the moment; empty: it is."""
        return [trouble for trouble in (self.link.trouble, self._failed_sync, self._trouble) if trouble]

    # ------------------------------------------------------------------------------------------------ life

    def start(self) -> None:
        self.link.start()

    def begin(self, resume: bool) -> Begin:
        """The first message to a splitter; `resume`: it is the successor of one that ended alone."""
        self._set_trouble(None)  # it was its predecessor's; this one says what is wrong
        config = self._config
        return Begin(
            self._journal_dir,
            self._data_dir,
            self._engine.resume() if resume else None,
            self._limits(),
            config.log_retention_check_interval_ms,
            config.producer_id_expiration_ms,
            not self.split_enabled,
            None if resume else config.cairn_fault_point,
            config.cairn_reserve_bytes,
            config.cairn_checkpoint_interval_ms,
        )

    async def _return_to_checkpoint(self) -> None:
        """Before a successor: the last checkpoint may not have been reported; and after a failed sync, what was split
        since may be lost."""
        if self._must_roll_back:
            await asyncio.sleep(SYNC_FAILED_SECONDS)
        engine = self._engine
        scan = partial(engine.scan_split, in_doubt=self._must_roll_back)
        stored = await self._loop.run_in_executor(self._cold, scan)
        if stored is not None:
            engine.unsplit(stored)
            log.warning("splitter: its successor begins at checkpoint %d, as the read disk has it", engine.serial)
        if self._must_roll_back:
            await self._loop.run_in_executor(self._cold, engine.read_disk.remove, DOUBT_FILE)
            self._must_roll_back = False

    async def finish(self) -> None:
        """Everything is split and checkpointed, and the process is gone; or it took too long and was killed."""
        log.info("journals are synced; the splitter finishes")
        self.link.closing()
        self.link.send(Finish(self._limits(), all(loop.path.stopped is None for loop in self._loops)))
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self.link.gone()
        except TimeoutError:
            log.warning("the splitter did not finish in %d s; the next start replays what is left", FINISH_SECONDS)
        self.link.kill()
        self._cancel_advance()

    # ---------------------------------------------------------------------------------------------- orders

    def drop(self, queues: Iterable[Queue]) -> None:
        self.link.send(Drop([(queue.queue_id, queue.spec.directory) for queue in queues]))

    def configure(self, spec: QueueSpec) -> None:
        self.link.send(Configure(spec))

    def repair(self, queue_id: int, file: str) -> None:
        self.link.send(Repair(queue_id, file))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Broker settings changed at run time; the engine knows its own already."""
        expiration_ms = config.producer_id_expiration_ms
        if expiration_ms != self._config.producer_id_expiration_ms:
            self.link.send(Expiration(expiration_ms))
        self._config = config
        if config.cairn_split_enable != self.split_enabled:
            self.split_enabled = config.cairn_split_enable
            self._send_pace()
        self._set_urgency()

    def on_synced(self) -> None:
        """The splitter hears of it at most every ADVANCE_SECONDS, or when a round's worth is there: not every sync may
        wake it."""
        engine = self._engine
        total = sum(engine.splittable(number) for number in range(len(self._loops)))
        if total - self._advanced >= ADVANCE_BYTES:
            self._advance()
        elif self._advance_timer is None:
            self._advance_timer = self._loop.call_later(ADVANCE_SECONDS, self._advance)

    def _advance(self) -> None:
        self._cancel_advance()
        limits = self._limits()
        self._advanced = sum(limits.values())
        self.link.send(Advance(limits))
        self._set_urgency()

    def _cancel_advance(self) -> None:
        if self._advance_timer is not None:
            self._advance_timer.cancel()
            self._advance_timer = None

    def _limits(self) -> dict[int, int]:
        return {number: self._engine.splittable(number) for number in range(len(self._loops))}

    def _set_urgency(self) -> None:
        engine, config = self._engine, self._engine.config
        urgent = any(
            path.journal.end - engine.split[path.journal.number] > URGENT_SHARE * config.unsplit_bytes_max
            or path.unsplit_entries > URGENT_SHARE * config.unsplit_entries_max
            for path in engine.paths
        )
        if urgent != self._urgent:
            self._urgent = urgent
            self._send_pace()

    def _send_pace(self) -> None:
        self.link.send(Pace(not self.split_enabled, self._urgent))

    # --------------------------------------------------------------------------------------------- reports

    def take(self, report: Report) -> None:
        self._actions[type(report)](report)

    def _on_ask(self, report: Ask) -> None:
        known = (self._engine.queues.get(queue_id) for queue_id in report.queue_ids)
        self.link.send(Specs.of(queue.spec for queue in known if queue is not None))

    def _on_begun(self, report: Begun) -> None:
        """The link has noted it."""

    def _on_split(self, report: Split) -> None:
        self._engine.on_round(report.round)
        self._give_room()
        self._set_urgency()

    def _on_checkpointed(self, report: Checkpointed) -> None:
        try:
            self._engine.on_checkpoint(report.published)
        except OSError as error:
            log.error("cannot remove journal segments; the next checkpoint tries again: %s", text_of(error))
        self.link.send(Seen(report.published.serial))
        self.checkpoint_at = time.monotonic()
        self.checkpoint_seconds = report.seconds
        self._failed_sync = None

    def _on_proposals(self, report: Proposals) -> None:
        for start in report.starts:
            queue = self._engine.queues.get(start.queue_id)
            if queue is not None and queue.log_start < start.offset <= queue.visible:
                self._engine.path_of(queue).stage_start(queue, start.offset, self._clock())
                self._loops[queue.journal].staged()
                log.info("retention moves the start of %s-%d to %d", queue.topic, queue.partition, start.offset)

    def _on_damaged(self, report: Damaged) -> None:
        log.error("%s", report.what)
        if report.place is not None:
            self._engine.damages.add(report.place)

    def _on_repaired(self, report: Repaired) -> None:
        log.warning("%s was repaired from the journals", report.file)
        self._engine.mended(report.queue_id, report.file)

    def _on_sync_failed(self, report: SyncFailed) -> None:
        self._must_roll_back = True
        self._failed_sync = report.reason
        log.error("%s", report.reason)

    def _on_trouble(self, report: Trouble) -> None:
        self._set_trouble(report.reason)
        if report.reason is not None:
            log.error("%s", report.reason)

    def _on_compacted(self, report: Compacted) -> None:
        self.compaction = report

    def _on_finished(self, report: Finished) -> None:
        """The end of the process follows, and that is what `finish` waits for."""

    def _set_trouble(self, reason: str | None) -> None:
        self._trouble = reason
        for loop in self._loops:
            loop.room_is_needed(reason is not None)
