"""What each report of the splitter changes in the broker, dispatched by its type."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from cairnmq.broker.clocks import Clocks
from cairnmq.broker.storage_loop.journal_loop import JournalLoop
from cairnmq.broker.storage_loop.splitter_messages import (
    Ask,
    Begun,
    Checkpointed,
    Compacted,
    Damaged,
    Finished,
    Order,
    Pong,
    Proposals,
    Repaired,
    Report,
    Seen,
    Specs,
    Split,
    SyncFailed,
    Trouble,
)
from cairnmq.errors import Refusal
from cairnmq.os_errors import text_of
from cairnmq.storage.api.serving import Engine

log = logging.getLogger(__name__)


class SplitterHealth(Struct):
    """What the reports have said so far."""

    checkpoint_at: float
    checkpoint_seconds: float = 0.0
    trouble: str | None = None  # of the splitter that runs
    failed_sync: str | None = None  # of the read disk, until a checkpoint shows that all is on disk again
    must_roll_back: bool = False  # what was split since the checkpoint may be lost
    compaction: Compacted = Compacted(0, 0, 0, 0.0)


class SplitterReports:
    """`send` gives the splitter an order; `backlog_fell` is called when less is left to split."""

    def __init__(
        self,
        engine: Engine,
        loops: Mapping[int, JournalLoop],
        clocks: Clocks,
        health: SplitterHealth,
        send: Callable[[Order], None],
        backlog_fell: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._loops = loops
        self._clocks = clocks
        self._health = health
        self._send = send
        self._backlog_fell = backlog_fell
        self.pings: dict[int, asyncio.Future[None]] = {}  # that are waited for
        self.actions: dict[type[Report], Callable[[Any], None]] = {
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
            Pong: self._on_pong,
        }

    def take(self, report: Report) -> None:
        self.actions[type(report)](report)

    def set_trouble(self, reason: str | None) -> None:
        self._health.trouble = reason
        for loop in self._loops.values():
            loop.room.is_needed(reason is not None)

    def _on_ask(self, report: Ask) -> None:
        known = (self._engine.queues.get(queue_id) for queue_id in report.queue_ids)
        self._send(Specs.of(queue.spec for queue in known if queue is not None))

    def _on_begun(self, report: Begun) -> None:
        """The link has noted it."""

    def _on_split(self, report: Split) -> None:
        self._engine.on_round(report.round)
        self._backlog_fell()

    def _on_checkpointed(self, report: Checkpointed) -> None:
        try:
            self._engine.on_checkpoint(report.published)
        except OSError as error:
            log.error("journal segments could not be removed: %s; retrying at the next checkpoint", text_of(error))
        self._send(Seen(report.published.serial))
        self._health.checkpoint_at = self._clocks.seconds()
        self._health.checkpoint_seconds = report.seconds
        self._health.failed_sync = None

    def _on_proposals(self, report: Proposals) -> None:
        for start in report.starts:
            queue = self._engine.queues.get(start.queue_id)
            if queue is not None and queue.log_start < start.offset <= queue.high_watermark:
                staged = self._engine.appends.move_start(queue, start.offset, self._clocks.wall_ms())
                if isinstance(staged, Refusal):
                    continue  # the journal has stopped, and says so; or its leader decides. A later look proposes again
                self._loops[queue.journal].staged()
                log.info("retention: log start of %s-%d moved to %d", queue.topic, queue.partition, start.offset)

    def _on_damaged(self, report: Damaged) -> None:
        log.error("%s", report.what)
        if report.place is not None:
            self._engine.damages.add(report.place)

    def _on_repaired(self, report: Repaired) -> None:
        log.warning("%s was repaired from the journals", report.file)
        self._engine.repaired(report.queue_id, report.file)

    def _on_sync_failed(self, report: SyncFailed) -> None:
        self._health.must_roll_back = True
        self._health.failed_sync = report.reason
        log.error("%s", report.reason)

    def _on_trouble(self, report: Trouble) -> None:
        self.set_trouble(report.reason)
        if report.reason is not None:
            log.error("%s", report.reason)

    def _on_compacted(self, report: Compacted) -> None:
        self._health.compaction = report

    def _on_pong(self, report: Pong) -> None:
        told = self.pings.get(report.number)
        if told is not None and not told.done():
            told.set_result(None)

    def _on_finished(self, report: Finished) -> None:
        """The end of the process follows, and that is what `SplitterControl.finish` waits for."""
