"""Reads that wait for a disk, on threads of their own, and what failed of those that no request waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from cairnmq.broker.runtime import Executor
from cairnmq.storage.api.serving import NotCached, Queue, ReadFailure, failure_of, forget_oldest

log = logging.getLogger(__name__)

FAILURES_MAX = 1000  # remembered for the next readers; some never come, and must not fill memory


class ColdReads:
    """One store's; runs on the loop thread."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self.count = 0
        self.failures: dict[tuple[int, int], ReadFailure] = {}  # by queue and offset

    def load(self, reads: list[NotCached], then: Callable[[list[ReadFailure | None]], None]) -> None:
        """Brings them into the page cache; `then` is called on the loop with what went wrong with each."""
        self.count += len(reads)
        future = self._loop.run_in_executor(self._pool, _load_all, reads)
        future.add_done_callback(lambda done: then(done.result()))

    def load_for_next(self, places: Sequence[tuple[Queue, int]], reads: list[NotCached]) -> None:
        """No request waits for these. What fails is remembered for the next one that reads at such a place."""

        def remember(failures: list[ReadFailure | None]) -> None:
            for (queue, offset), failure in zip(places, failures, strict=True):
                if failure is not None:
                    self.failures[queue.queue_id, offset] = failure
            forget_oldest(self.failures, FAILURES_MAX)

        self.load(reads, remember)

    def failure_at(self, queue: Queue, offset: int) -> ReadFailure | None:
        """Told once: the reader after that tries again."""
        return self.failures.pop((queue.queue_id, offset), None) if self.failures else None


def _load_all(reads: list[NotCached]) -> list[ReadFailure | None]:
    """A failure of one does not stop the others."""
    failures: list[ReadFailure | None] = []
    for read in reads:
        try:
            read.load()
            failures.append(None)
        except Exception as error:  # whatever it is, a reader waits for it
            failures.append(failure := failure_of(error))
            if failure.is_defect:
                log.exception("a read failed, and neither the disk nor the stored bytes are the cause")
    return failures
