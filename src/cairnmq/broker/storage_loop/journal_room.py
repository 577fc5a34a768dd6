"""Room on the write disk for one journal: the reserve, and the next segment's file, which is made in advance unless
room is needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cairnmq.broker.storage_loop.journal_threads import JournalThreads
from cairnmq.os_errors import text_of
from cairnmq.storage.api.serving import FULL, Journal

log = logging.getLogger(__name__)


class JournalRoom:
    """Lives on the loop. `is_writing`: whether a thread writes to the journal at the moment."""

    def __init__(self, journal: Journal, threads: JournalThreads, is_writing: Callable[[], bool]) -> None:
        self._journal = journal
        self._threads = threads
        self._is_writing = is_writing
        self._loop = asyncio.get_running_loop()
        self._preparing = False
        self._full = False
        self._splitter_needs_room = False

    def hold_reserve(self) -> None:
        future = self._loop.run_in_executor(self._threads.write, self._journal.reserve.hold)
        future.add_done_callback(self._reserve_held)

    def _reserve_held(self, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if error is not None:
            log.warning("journal %d: reserve could not be allocated: %s", self._journal.number, text_of(error))

    def prepare_next(self) -> None:
        """Something was written: perhaps it is time for the next file."""
        if not self._preparing and not self._is_needed and self._journal.wants_next():
            self._preparing = True
            future = self._loop.run_in_executor(self._threads.prepare, self._journal.prepare)
            future.add_done_callback(self._prepared)

    def _prepared(self, done: asyncio.Future[None]) -> None:
        self._preparing = False
        error = done.exception()
        if error is not None:
            log.info(
                "journal %d: next segment could not be preallocated: %s; it is allocated on write",
                self._journal.number,
                text_of(error),
            )
        self.unprepare_if_full()

    @property
    def _is_needed(self) -> bool:
        return self._full or self._splitter_needs_room

    def is_needed(self, needed: bool) -> None:
        """By the splitter, whose disk may be the same: then nothing is held that could be given back."""
        self._splitter_needs_room = needed
        self.unprepare_if_full()

    def unprepare_if_full(self) -> None:
        if not self._is_needed or self._is_writing() or self._preparing:
            return  # who is at it asks again
        file = self._journal.unprepare()
        if file is not None:
            self._threads.prepare.submit(self._journal.remove_next, file)

    def release_if_full(self, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in FULL:
            self._threads.write.submit(self._journal.reserve.release)
            self._full = True
            self.unprepare_if_full()

    def has_room(self) -> None:
        """The disk takes bytes again."""
        self._full = False

    def close(self) -> None:
        """When the threads have ended."""
        file = self._journal.unprepare()
        if file is not None:
            self._journal.remove_next(file)
