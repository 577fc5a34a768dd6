"""What a store does in a cluster: hosts journals, and changes sides in them. One node calls nothing of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from cairnmq.broker.runtime import Executor
from cairnmq.broker.storage_loop.backlog import Backlog
from cairnmq.broker.storage_loop.journal_loops import JournalLoops
from cairnmq.broker.storage_loop.replica_loop import JournalObserver
from cairnmq.broker.storage_loop.splitter_control import SplitterControl
from cairnmq.os_errors import text_of
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.serving import Engine, FollowPath, Queue, ReplicaNote, WritePath

log = logging.getLogger(__name__)


class JournalSides:
    """A part of `Store`, whose attributes these are."""

    engine: Engine
    loops: JournalLoops
    splitter: SplitterControl
    backlog: Backlog
    clock: Callable[[], int]
    _config: BrokerConfig
    _cold: Executor

    def observe(self, observer: JournalObserver) -> None:
        """It drives the journals, those of now and those that are hosted later."""
        self.loops.observe(observer)

    def host(self, journal: int) -> FollowPath:
        """A new journal, which this broker follows for now."""
        path = self.engine.host(journal)
        self.loops.make(journal).start(self._config.cairn_reserve_bytes)
        self.splitter.host(journal)
        return path

    async def lead(self, journal: int, epoch: int) -> WritePath | None:
        """This broker is elected: from here on it stages, and the head of the epoch is written at the end of this turn
        of the loop. None: the journal has queues that the metadata here do not know yet, or takes nothing."""
        loop = self.loops[journal]
        await loop.quiesce()
        path = self.engine.lead(journal, epoch, self.clock())
        if path is not None:
            self.engine.epochs[journal] = epoch
            loop.swap(path)
        return path

    async def follow(self, journal: int, reason: str) -> FollowPath:
        """Another broker leads, or nobody: who waits for this journal hears that, readers too."""
        loop = self.loops[journal]
        await loop.quiesce()
        path = self.engine.follow(journal, reason)
        if loop.path is not path:
            loop.swap(path)
            self.backlog.give_room()
            self._wake([queue for queue in self.engine.queues.values() if queue.waiters and queue.journal == journal])
        return path

    async def note(self, journal: int, note: ReplicaNote) -> None:
        """Stores what this replica knows of the journal, as far as its own disk has it; durable on return."""
        await self.loops[journal].note(partial(self.engine.note, journal, note))

    def keep(self, journal: int, position: int) -> None:
        """Other replicas may need the journal from here on, as its leader says."""
        engine = self.engine
        assert engine.hosting is not None
        try:
            engine.hosting.keep(journal, position, engine.checkpointed[journal], engine.config.retain_bytes)
        except OSError as error:
            log.error("journal %d: segments could not be removed: %s; trying again later", journal, text_of(error))

    async def free_bytes(self) -> int:
        """On the disk of the journals."""
        assert self.engine.hosting is not None
        disk = self.engine.hosting.disk
        return await asyncio.get_running_loop().run_in_executor(self._cold, disk.free_bytes)

    def advanced(self, queues: Iterable[Queue]) -> None:
        """Other replicas have more: these queues have more to show, and more may be split."""
        self._wake(queues)
        self.splitter.on_synced()

    def knows_queues(self, next_queue: int) -> None:
        """The metadata have given out all queue ids below; those that exist were created before this call."""
        if self.engine.hosting is not None:
            self.advanced(self.engine.hosting.knows_queues(next_queue, self.clock()))

    def _wake(self, queues: Iterable[Queue]) -> None:
        for queue in queues:
            if queue.waiters:
                for waiter in tuple(queue.waiters):
                    waiter()
