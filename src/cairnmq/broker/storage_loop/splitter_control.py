"""The broker's side of the splitter: its life, how far it may split, and what else it is told.

What its reports change is in splitter_reports; the process, its socket and its successors are splitter_link's.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from cairnmq.broker.runtime import Executor, Runtime
from cairnmq.broker.storage_loop.journal_loop import JournalLoop
from cairnmq.broker.storage_loop.splitter_link import SplitterLink
from cairnmq.broker.storage_loop.splitter_messages import (
    Advance,
    Begin,
    Configure,
    Drop,
    Expiration,
    Finish,
    Host,
    Order,
    Pace,
    Ping,
    Repair,
)
from cairnmq.broker.storage_loop.splitter_reports import SplitterHealth, SplitterReports
from cairnmq.errors import Fault
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.serving import UNSYNCED, Engine, Queue, QueueSpec

log = logging.getLogger(__name__)

ADVANCE_SECONDS = 0.1
ADVANCE_BYTES = 8 << 20
SYNC_FAILED_SECONDS = 1.0  # time for a disk to recover, and no busy loop if it does not
URGENT_SHARE = 0.5  # of the backlog's cap, from where the splitter runs at normal priority
FINISH_SECONDS = 120.0
PING_SECONDS = 45.0


class SplitterControl:
    """Lives on the loop thread. `give_room` is called when the backlog became smaller."""

    def __init__(
        self,
        engine: Engine,
        loops: Mapping[int, JournalLoop],
        cold: Executor,
        *,
        lock_fds: Sequence[int],
        journal_dir: str,
        data_dir: str,
        config: BrokerConfig,
        runtime: Runtime,
        give_room: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._loops = loops
        self._cold = cold
        self._journal_dir = journal_dir
        self._data_dir = data_dir
        self._config = config
        self._give_room = give_room
        self._loop = asyncio.get_running_loop()
        self.split_enabled = config.cairn_split_enable
        self._urgent = False
        self._advanced = 0
        self._advance_timer: asyncio.TimerHandle | None = None
        self._seconds = runtime.seconds
        self.health = SplitterHealth(checkpoint_at=runtime.seconds())
        reports = SplitterReports(engine, loops, runtime, self.health, self._send, self._backlog_fell)
        self.link = SplitterLink(lock_fds, self.begin, reports.take, self._return_to_checkpoint, runtime.start_splitter)
        self.reports = reports
        self._pings = itertools.count(1)

    @property
    def troubles(self) -> list[str]:
        """Why nothing is split at the moment; empty: it is."""
        return [trouble for trouble in (self.link.trouble, self.health.failed_sync, self.health.trouble) if trouble]

    @property
    def checkpoint_age_seconds(self) -> float:
        """Since the last one was heard of, or the start."""
        return self._seconds() - self.health.checkpoint_at

    # ------------------------------------------------------------------------------------------------ life

    def start(self) -> None:
        self.link.start()

    def begin(self, resume: bool) -> Begin:
        """The first message to a splitter; `resume`: it is the successor of one that ended alone."""
        self.reports.set_trouble(None)  # it was its predecessor's; this one says what is wrong
        config = self._config
        return Begin(
            self._journal_dir,
            self._data_dir,
            self._engine.resume() if resume else None,
            list(self._engine.paths),
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
        if self.health.must_roll_back:
            await asyncio.sleep(SYNC_FAILED_SECONDS)
        engine = self._engine
        scan = partial(engine.scan_split, is_suspect=self.health.must_roll_back)
        stored = await self._loop.run_in_executor(self._cold, scan)
        if stored is not None:
            engine.unsplit(stored)
            log.warning("splitter: its successor begins at checkpoint %d, as the read disk has it", engine.serial)
        if self.health.must_roll_back:
            await self._loop.run_in_executor(self._cold, engine.read_disk.remove, UNSYNCED)
            self.health.must_roll_back = False

    async def finish(self) -> None:
        """Everything is split and checkpointed, and the process is gone; or it took too long and was killed."""
        log.info("journals synced; waiting for the splitter")
        self.link.closing()
        self.link.send(Finish(self._limits()))
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self.link.gone()
        except TimeoutError:
            log.warning("splitter did not finish in %d s; the next start replays the rest", FINISH_SECONDS)
        self.link.kill()
        self._cancel_advance()

    # ---------------------------------------------------------------------------------------------- orders

    def drop(self, queues: Iterable[Queue]) -> None:
        self.link.send(Drop([(queue.queue_id, queue.spec.directory) for queue in queues]))

    def host(self, journal: int) -> None:
        """Before anything of it may be split."""
        self.link.send(Host(journal))

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
        total = sum(map(engine.splittable, engine.paths))
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
        return {number: self._engine.splittable(number) for number in self._engine.paths}

    async def settled(self) -> None:
        """All that the splitter has done so far is known here."""
        number, pings = next(self._pings), self.reports.pings
        told = pings[number] = self._loop.create_future()
        self.link.send(Ping(number))
        try:
            async with asyncio.timeout(PING_SECONDS):
                await told
        except TimeoutError:
            raise Fault("the splitter does not say what it has done") from None
        finally:
            del pings[number]

    def _set_urgency(self) -> None:
        engine, config = self._engine, self._engine.config
        urgent = any(
            path.journal.end - engine.split[path.journal.number] > URGENT_SHARE * config.unsplit_bytes_max
            or path.unsplit_entries > URGENT_SHARE * config.unsplit_entries_max
            for path in engine.paths.values()
        )
        if urgent != self._urgent:
            self._urgent = urgent
            self._send_pace()

    def _send_pace(self) -> None:
        self.link.send(Pace(not self.split_enabled, self._urgent))

    def _send(self, order: Order) -> None:
        self.link.send(order)

    def _backlog_fell(self) -> None:
        self._give_room()
        self._set_urgency()
