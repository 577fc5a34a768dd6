"""The leader's side of replication: what followers ask for, and the bytes of the journals that go to them.

A request waits for news: bytes, a sync that somebody waits for, another leader, or a later request of the same link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct

from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.internal.server import Answer, Peer, Told
from cairnmq.replication.messages import Accepted, FetchPosition
from cairnmq.replication.records import ClusterView
from cairnmq.storage.api.serving import Engine, FileRange

JOURNAL_BYTES_MAX = 2 << 20
RESEND_MS = 1_000


class _Sent(Struct):
    """What went to a follower last, by one link."""

    at_ms: int = 0
    end: int = 0
    sync_told: int = -1  # it was asked to sync up to here at least


class FetchService:
    """`view` gives the metadata as of now; None before they are read."""

    def __init__(
        self,
        replicas: Mapping[int, JournalReplica],
        engine: Engine,
        view: Callable[[], ClusterView | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._engine = engine
        self._view = view
        self._now_ms = now_ms
        self._parked: dict[int, set[asyncio.Future[None]]] = {}

    def wake(self, journal: int) -> None:
        """There are news about a journal."""
        for parked in self._parked.get(journal, ()):
            if not parked.done():
                parked.set_result(None)

    async def serve(self, peer: Peer, wait_ms: int, max_bytes: int, asks: Mapping[int, FetchPosition]) -> Answer:
        """What `asks` of a follower's link get."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        while True:
            answer, has_news = self._look(peer, max_bytes, asks)
            if has_news or loop.time() >= until:
                return answer
            if peer.superseded.done():
                return Answer([], [])
            await self._park(asks, peer, until)
            if peer.closed:
                return Answer([], [])

    async def _park(self, asks: Mapping[int, FetchPosition], peer: Peer, until: float) -> None:
        loop = asyncio.get_running_loop()
        parked: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not parked.done():
                parked.set_result(None)

        timer = loop.call_at(until, wake)
        peer.superseded.add_done_callback(wake)
        for journal in asks:
            self._parked.setdefault(journal, set()).add(parked)
        try:
            await parked
        finally:
            timer.cancel()
            peer.superseded.remove_done_callback(wake)
            for journal in asks:
                self._parked[journal].discard(parked)

    def _look(self, peer: Peer, max_bytes: int, asks: Mapping[int, FetchPosition]) -> tuple[Answer, bool]:
        view = self._view()
        told: list[Told] = []
        parts: list[list[FileRange]] = []
        has_news, room = False, max_bytes
        for journal, asked in asks.items():
            replica = self._replicas.get(journal)
            in_sync = replica is not None and _counts(replica, asked)
            reply = replica.asked(asked, view, in_sync) if replica is not None and view is not None else None
            ranges: list[FileRange] = []
            if isinstance(reply, Accepted):
                sent = peer.state.setdefault(journal, _Sent())
                ranges = self._ranges(journal, asked, sent, min(room, JOURNAL_BYTES_MAX))
                room -= sum(each.size for each in ranges)
                if reply.sync and asked.end > sent.sync_told:
                    sent.sync_told, has_news = asked.end, True
                has_news = has_news or bool(ranges)
            else:
                has_news = True
            told.append(Told(journal, reply, sum(each.size for each in ranges)))
            parts.append(ranges)
        return Answer(told, parts), has_news

    def _ranges(self, journal: int, asked: FetchPosition, sent: _Sent, room: int) -> list[FileRange]:
        """None while what was sent before is still on its way: this request was made before it arrived."""
        now_ms = self._now_ms()
        if asked.echo_ms < sent.at_ms and asked.end < sent.end and now_ms - sent.at_ms < RESEND_MS:
            return []
        ranges = self._engine.file_ranges(journal, asked.end, room) if room > 0 else []
        if ranges:
            sent.at_ms, sent.end = now_ms, asked.end + sum(each.size for each in ranges)
        return ranges


def _counts(replica: JournalReplica, asked: FetchPosition) -> bool:
    return replica.leader is not None and asked.follower in replica.leader.record.isr
