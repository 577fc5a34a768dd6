"""Sizes of all queues, for people: measured when somebody asks, and so rarely that it costs little."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cairnmq.broker.http.chunked import slices
from cairnmq.os_errors import text_of

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.queue_sizes import LogSizes
    from cairnmq.broker.storage_loop.store import Store

log = logging.getLogger("cairnmq.broker")

_FRESH_SECONDS = 1.0
_SHARE = 0.02


class Sizes:
    """Looks again so rarely that looking takes at most a small share of the time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[int, int] = {}
        self._stale_at = clock()
        self._looking: asyncio.Task[None] | None = None

    async def current(self, store: Store, log_sizes: LogSizes) -> Mapping[int, int]:
        """Bytes by queue id."""
        if self._clock() >= self._stale_at:
            if self._looking is None:
                self._looking = asyncio.get_running_loop().create_task(self._look(store, log_sizes))
            await asyncio.shield(self._looking)
        return self._known

    async def _look(self, store: Store, log_sizes: LogSizes) -> None:
        started, found = self._clock(), dict[int, int]()
        try:
            for part in slices(list(store.queues.values())):
                ids = [queue.queue_id for queue in part]
                try:
                    found.update(zip(ids, await log_sizes.measure(store, part), strict=True))
                except OSError as error:
                    log.warning("partition sizes cannot be measured (%s); showing the last known sizes", text_of(error))
                    found.update((queue_id, self._known.get(queue_id, 0)) for queue_id in ids)
            self._known = found
        finally:
            self._looking = None
            self._stale_at = self._clock() + max(_FRESH_SECONDS, (self._clock() - started) / _SHARE)
