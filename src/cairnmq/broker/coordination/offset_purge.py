"""Facts about what is gone: offsets of deleted topics, members of no group.

A crash leaves them, or a journal that took no writes when the topic was deleted. They harm nobody, so nobody waits for
their end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from cairnmq.broker.coordination.fact_log import FactLog, Moved
from cairnmq.errors import Fault
from cairnmq.groups.groups import Groups
from cairnmq.metadata.image import Topic

log = logging.getLogger("cairnmq.broker")

RETRY_SECONDS = 5.0

Known: TypeAlias = Callable[[], frozenset[bytes]]  # ids of the topics that exist now


class OffsetPurge:
    """Drops them, again and again until that is stored."""

    def __init__(self, facts: FactLog, groups: Groups) -> None:
        self._log = facts
        self._groups = groups
        self._dropping: asyncio.Task[None] | None = None
        self._again = False

    def start(self, known: Known) -> None:
        """All that is about topics other than the `known` ones."""
        self._again = True  # one that waits for its sync has not seen what came since
        if self._dropping is None or self._dropping.done():
            self._dropping = asyncio.get_running_loop().create_task(self._drop(known))

    def close(self) -> None:
        if self._dropping is not None:
            self._dropping.cancel()

    async def of_topic(self, topic: Topic, known: Known) -> None:
        """Of one that was just deleted; what cannot be stored now is, once it can."""
        try:
            await self._log.commit(self._groups.commits.of_topic(topic.topic_id))
        except Moved:
            return  # whoever loads them next drops them
        except Fault as fault:
            log.warning("topic %s: deleted; its committed offsets cannot be removed yet: %s", topic.name, fault)
            self.start(known)

    async def _drop(self, known: Known) -> None:
        said = False
        while True:
            self._again = False
            try:
                await self._log.commit(self._groups.orphaned(known()))
                if not self._again:
                    return
                continue
            except Moved:
                return
            except Fault as fault:
                if not said:
                    log.warning(
                        "offsets of deleted topics cannot be purged yet, trying again every %d s: %s",
                        RETRY_SECONDS,
                        fault,
                    )
                    said = True
            await asyncio.sleep(RETRY_SECONDS)


class OffsetPurges:
    """One for each journal whose groups are loaded here."""

    def __init__(self) -> None:
        self._of: dict[int, OffsetPurge] = {}

    def add(self, journal: int, purge: OffsetPurge) -> None:
        self._of[journal] = purge

    def drop(self, journal: int) -> None:
        del self._of[journal]

    def start(self, known: Known) -> None:
        """Topics are gone that others have deleted."""
        for purge in self._of.values():
            purge.start(known)

    async def of_topic(self, topic: Topic, known: Known) -> None:
        await asyncio.gather(*(purge.of_topic(topic, known) for purge in self._of.values()))
