"""A follower's requests to one leader: all journals that it leads in one request, two requests under way.

The second one tells progress at once (written, synced) while the first one waits at the leader for more to come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.internal.link import Fetched, Link, LinkClosed
from cairnmq.errors import Fault
from cairnmq.os_errors import text_of
from cairnmq.replication.messages import FetchPosition

log = logging.getLogger("cairnmq.broker")

WAIT_MS = 500
MAX_BYTES = 4 << 20
UNDER_WAY_MAX = 2
RETRY_SECONDS = 0.2


class Fetcher:
    """`connect` waits until there is a link to the leader. Lives on the loop thread."""

    def __init__(self, leader: int, connect: Callable[[], Awaitable[Link]]) -> None:
        self.leader = leader
        self._connect = connect
        self._replicas: dict[int, JournalReplica] = {}
        self._told: dict[int, FetchPosition] = {}  # journal -> what was asked last
        self._under_way = 0
        self._due = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def follow(self, replica: JournalReplica) -> None:
        self._replicas[replica.number] = replica
        self._told.pop(replica.number, None)
        self._due.set()

    def unfollow(self, replica: JournalReplica) -> None:
        self._replicas.pop(replica.number, None)

    def progressed(self, replica: JournalReplica) -> None:
        """It has written or synced more."""
        if replica.number in self._replicas:
            self._due.set()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            link = await self._connect()
            self._told.clear()
            self._under_way = 0
            self._due.set()
            exchanges: set[asyncio.Task[None]] = set()
            try:
                await self._ask_on(link, exchanges)
            finally:
                for exchange in exchanges:
                    exchange.cancel()
                await asyncio.gather(*exchanges, return_exceptions=True)
                for replica in self._replicas.values():
                    replica.is_busy = False

    async def _ask_on(self, link: Link, exchanges: set[asyncio.Task[None]]) -> None:
        """Until the link ends."""
        loop = asyncio.get_running_loop()
        link.closed.add_done_callback(lambda _: self._due.set())
        while not link.closed.done():
            await self._due.wait()
            self._due.clear()
            asks = self._asks()
            if not asks or self._under_way >= UNDER_WAY_MAX or (self._under_way and not self._has_news(asks)):
                continue
            self._told.update(asks)
            self._under_way += 1
            exchange = loop.create_task(self._exchange(link, asks))
            exchanges.add(exchange)
            exchange.add_done_callback(exchanges.discard)

    def _asks(self) -> dict[int, FetchPosition]:
        return {
            number: replica.follower.position()
            for number, replica in self._replicas.items()
            if replica.follower is not None and not replica.is_busy
        }

    def _has_news(self, asks: dict[int, FetchPosition]) -> bool:
        def differs(number: int, asked: FetchPosition) -> bool:
            told = self._told.get(number)
            return told is None or (told.epoch, told.end, told.synced) != (asked.epoch, asked.end, asked.synced)

        return any(differs(number, asked) for number, asked in asks.items())

    async def _exchange(self, link: Link, asks: dict[int, FetchPosition]) -> None:
        try:
            fetched = await link.fetch(WAIT_MS, MAX_BYTES, asks)
            try:
                await self._take(asks, fetched)
            finally:
                fetched.release()
        except LinkClosed:
            return
        finally:
            self._under_way -= 1
            self._due.set()

    async def _take(self, asks: dict[int, FetchPosition], fetched: Fetched) -> None:
        for number, reply, data in fetched.replies():
            replica = self._replicas.get(number)
            if replica is None:
                continue
            if reply is None:  # the other broker does not lead it, or not yet
                await replica.wait_for_leader()
                continue
            replica.is_busy = True
            try:
                await replica.replied(asks[number], reply, data)
                replica.trouble = ""
            except (Fault, OSError) as error:
                if replica.trouble != text_of(error):
                    replica.trouble = text_of(error)
                    log.error("journal %d: following broker %d: %s", number, self.leader, replica.trouble)
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                replica.is_busy = False
