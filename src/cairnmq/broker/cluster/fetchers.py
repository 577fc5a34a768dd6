"""The followers' side of all links: for each broker that leads something which this one follows, one fetcher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cairnmq.broker.cluster.fetcher import WAIT_MS, Fetcher
from cairnmq.broker.cluster.journal_copying import JournalCopying
from cairnmq.broker.internal.link import Link
from cairnmq.replication.messages import Room


class Fetchers:
    """`room` tells what the own replica of a journal has left, `wait_ms` for how long a leader may wait for news."""

    def __init__(
        self,
        room: Callable[[int], Room],
        now_ms: Callable[[], int],
        wait_ms: Callable[[], int] = lambda: WAIT_MS,
    ) -> None:
        self._room = room
        self._now_ms = now_ms
        self._wait_ms = wait_ms
        self._links: dict[int, Link] = {}
        self._of: dict[int, Fetcher] = {}

    def linked(self, broker: int, link: Link) -> None:
        """There is a new link to a broker."""
        self._links[broker] = link
        if broker in self._of:
            self._of[broker].use(link)

    def follow(self, copying: JournalCopying, leader: int) -> None:
        """A replica follows this broker, and no other."""
        for broker, fetcher in self._of.items():
            if broker != leader:
                fetcher.unfollow(copying)
        if leader not in self._of:
            fetcher = self._of[leader] = Fetcher(leader, self._room, self._now_ms, self._wait_ms)
            link = self._links.get(leader)
            if link is not None:
                fetcher.use(link)
        self._of[leader].follow(copying)

    def unfollow(self, copying: JournalCopying) -> None:
        """It follows nobody."""
        for fetcher in self._of.values():
            fetcher.unfollow(copying)

    def progressed(self, journal: int) -> None:
        """A replica has synced more."""
        for fetcher in self._of.values():
            fetcher.progressed(journal)

    def look(self) -> None:
        """Now and then."""
        for fetcher in self._of.values():
            fetcher.look()

    async def close(self) -> None:
        """What has arrived is taken to its end."""
        await asyncio.gather(*(fetcher.close() for fetcher in self._of.values()))
