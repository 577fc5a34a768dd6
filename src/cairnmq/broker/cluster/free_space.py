"""How much room is left on the disk of the journals, as leaders are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cairnmq.os_errors import text_of
from cairnmq.replication.messages import ENDLESS

log = logging.getLogger("cairnmq.broker")

PAUSE_SECONDS = 1.0


class FreeSpace:
    """`bytes` is as of the last answer of the disk, which may hang."""

    def __init__(self, measure: Callable[[], Awaitable[int]]) -> None:
        self._measure = measure
        self.bytes = ENDLESS

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(PAUSE_SECONDS)

    async def look(self) -> None:
        """Asks the disk."""
        try:
            self.bytes = await self._measure()
        except OSError as error:
            log.warning("free space on the disk of the journals is not known: %s", text_of(error))
