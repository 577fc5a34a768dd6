"""Batches that are unpacked off the loop, and the queues whose later batches wait for that, so that they keep their
order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from cairnmq.broker.runtime import Executor

T = TypeVar("T")


class Unpacking:
    """One store's; runs on the loop thread."""

    def __init__(self, pool: Executor) -> None:
        """`pool` has one thread: a small batch may expand to all that is allowed."""
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self.requests = 0  # whose batches are unpacked, or wait for it
        self.queues: Counter[int] = Counter()  # that these name, compacted or not

    def run(self, queues: Counter[int], job: Callable[[], T], then: Callable[[T], None]) -> None:
        """`then` is called on the loop, in the order of the calls."""
        self.requests += 1
        self.queues += queues

        def done(future: asyncio.Future[T]) -> None:
            self.requests -= 1
            self.queues -= queues
            then(future.result())

        self._loop.run_in_executor(self._pool, job).add_done_callback(done)
