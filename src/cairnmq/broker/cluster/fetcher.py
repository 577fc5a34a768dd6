"""A follower's requests to one leader: all journals that it leads in one request, two requests under way.

The second one tells progress at once (written, synced) while the first one waits at the leader for more to come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from cairnmq.broker.cluster.journal_copying import JournalCopying
from cairnmq.broker.internal.journal_messages import ask_of, reply_of
from cairnmq.broker.internal.link import Link, LinkClosed, RequestFailed
from cairnmq.broker.internal.received import Fetched
from cairnmq.errors import Fault
from cairnmq.os_errors import text_of
from cairnmq.replication.follower_room import is_behind
from cairnmq.replication.messages import FetchPosition, Room
from cairnmq.wire.internal import NotLeader, ReplicaFetch

log = logging.getLogger("cairnmq.broker")

WAIT_MS = 500
UNDER_WAY_MAX = 2
RETRY_SECONDS = 0.2


class Fetcher:
    """Works while there is a link to the leader (`use`). `room`: what the own replica of a journal has left. `wait_ms`:
    for how long the leader may wait for news."""

    def __init__(
        self,
        leader: int,
        room: Callable[[int], Room],
        now_ms: Callable[[], int],
        wait_ms: Callable[[], int] = lambda: WAIT_MS,
    ) -> None:
        self.leader = leader
        self._room = room
        self._now_ms = now_ms
        self._wait_ms = wait_ms
        self._copyings: dict[int, JournalCopying] = {}
        self._told: dict[int, FetchPosition] = {}  # journal -> what was asked last
        self._exchanges: set[asyncio.Task[None]] = set()
        self._due = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._pauses: set[asyncio.Task[None]] = set()

    def follow(self, copying: JournalCopying) -> None:
        self._copyings[copying.number] = copying
        self._told.pop(copying.number, None)
        copying.wake = self._due.set
        self._due.set()

    def unfollow(self, copying: JournalCopying) -> None:
        self._copyings.pop(copying.number, None)

    def progressed(self, journal: int) -> None:
        """It has synced more."""
        if journal in self._copyings:
            self._due.set()

    def look(self) -> None:
        """Now and then: producers may wait until the leader hears that there is room again."""
        if any(is_behind(asked.room) for asked in self._told.values()):
            self._due.set()

    def use(self, link: Link) -> None:
        """A new link to the leader; one before it has ended."""
        if self._asking is not None:
            self._asking.cancel()
        self._asking = asyncio.get_running_loop().create_task(self._run(link))

    async def close(self) -> None:
        for task in (*self._pauses, *([self._asking] if self._asking is not None else ())):
            task.cancel()
        await self._all_taken()

    async def _all_taken(self) -> None:
        """What has arrived is taken to its end, whoever is cancelled: half of an append would be a gap in what is known
        of the journal."""
        while self._exchanges:
            await asyncio.wait(self._exchanges)

    async def _run(self, link: Link) -> None:
        """Until the link ends."""
        loop = asyncio.get_running_loop()
        await self._all_taken()
        self._told.clear()
        self._due.set()
        link.closed.add_done_callback(lambda _: self._due.set())
        while not link.closed.done():
            await self._due.wait()
            self._due.clear()
            asks = self._asks()
            under_way = len(self._exchanges)
            if not asks or under_way >= UNDER_WAY_MAX or (under_way and not self._has_news(asks)):
                continue
            self._told.update(asks)
            exchange = loop.create_task(self._exchange(link, asks, self._request(asks)))
            self._exchanges.add(exchange)
            exchange.add_done_callback(self._over)

    def _over(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.discard(exchange)
        self._due.set()

    def _asks(self) -> dict[int, FetchPosition]:
        now_ms = self._now_ms()
        return {
            number: copying.follower.position(self._room(number), now_ms)
            for number, copying in self._copyings.items()
            if copying.follower is not None and not copying.is_busy
        }

    def _has_news(self, asks: dict[int, FetchPosition]) -> bool:
        def differs(number: int, asked: FetchPosition) -> bool:
            told = self._told.get(number)
            if told is None or is_behind(told.room) != is_behind(asked.room):
                return True
            if asked.has_readers and not told.has_readers:  # from now on they wait for what the leader shows
                return True
            return (told.epoch, told.end, told.synced) != (asked.epoch, asked.end, asked.synced)

        return any(differs(number, asked) for number, asked in asks.items())

    def _request(self, asks: dict[int, FetchPosition]) -> ReplicaFetch:
        max_bytes = max(self._copyings[number].piece_bytes for number in asks)
        return ReplicaFetch(self._wait_ms(), max_bytes, [ask_of(number, asked) for number, asked in asks.items()])

    async def _exchange(self, link: Link, asks: dict[int, FetchPosition], request: ReplicaFetch) -> None:
        try:
            with await link.fetch(request) as fetched:
                await self._take(asks, fetched)
        except LinkClosed:
            return
        except RequestFailed as error:
            log.warning("broker %d could not serve a follower's request: %s", self.leader, error)
            await asyncio.sleep(RETRY_SECONDS)
        except Exception:  # it must not be repeated without a pause
            log.exception("following broker %d: a reply could not be taken", self.leader)
            await asyncio.sleep(RETRY_SECONDS)

    async def _take(self, asks: dict[int, FetchPosition], fetched: Fetched) -> None:
        """What keeps one journal waiting does not keep the others: they are asked for meanwhile."""
        for told in fetched.journals:
            copying, reply = self._copyings.get(told.journal), reply_of(told)
            if copying is None or told.journal not in asks:
                continue
            copying.hold()
            try:
                if isinstance(reply, NotLeader):  # or not yet
                    self._pause(copying, copying.wait_for_leader())
                elif not await copying.replied(asks[told.journal], reply, fetched.data(told.journal)):
                    self._pause(copying, copying.wait_for_leader())
                elif copying.follower is not None:
                    copying.state.trouble = ""
            except Exception as error:  # noqa: BLE001 - other journals go on
                self._failed(copying, error)
                self._pause(copying, asyncio.sleep(RETRY_SECONDS))
            finally:
                copying.release()

    def _pause(self, copying: JournalCopying, wait: Coroutine[None, None, None]) -> None:
        """It is asked for again when the wait is over."""

        async def pause() -> None:
            try:
                await wait
            except Exception as error:  # noqa: BLE001 - it is tried again
                self._failed(copying, error)
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                self._told.pop(copying.number, None)  # to be asked again, whatever was asked before
                copying.release()

        copying.hold()
        task = asyncio.get_running_loop().create_task(pause())
        self._pauses.add(task)
        task.add_done_callback(self._pauses.discard)

    def _failed(self, copying: JournalCopying, error: Exception) -> None:
        if not isinstance(error, Fault | OSError):
            log.error("journal %d: following broker %d failed", copying.number, self.leader, exc_info=error)
        self._note(copying, text_of(error))

    def _note(self, copying: JournalCopying, trouble: str) -> None:
        """Said once: it is tried again without end."""
        if copying.state.trouble != trouble:
            copying.state.trouble = trouble
            log.error("journal %d: following broker %d: %s", copying.number, self.leader, trouble)
