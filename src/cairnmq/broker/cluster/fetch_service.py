"""The leader's side of replication: what followers ask for, and the bytes of the journals that go to them.

A request waits for news: bytes, a sync that somebody waits for, another leader, or a later request of the same link.
Followers with readers also hear at once how far everything is replicated; others hear that with the next bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from msgspec import Struct

from cairnmq.broker.cluster.journal_copying import PIECE_BYTES
from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.journal_messages import position_of, told_of
from cairnmq.broker.internal.peer import Parked, Peer
from cairnmq.replication.follower_room import FULL_PERCENT
from cairnmq.replication.messages import Accepted, FetchPosition
from cairnmq.replication.records import ClusterView
from cairnmq.storage.api.serving import Engine, FileRange
from cairnmq.wire.internal import JournalAsk, JournalTold, NotLeader, ReplicaFetch

JOURNAL_PART = 2  # of a response, at most, for one journal while others have something too
RESEND_MS = 1_000


class _Sent(Struct):
    """What went to a follower last, by one link, of one journal."""

    epoch: int
    at_ms: int = 0  # by the time that the reply told, which the follower echoes
    end: int = 0
    sync_told: int = -1  # it was asked to sync up to here at least
    ends_told: tuple[int, int] = (-1, -1)  # how far everything is replicated, and durable

    def is_news(self, asked: FetchPosition, reply: Accepted, *, has_bytes: bool) -> bool:
        """Whether the follower is to hear this at once; then it counts as told."""
        ends = reply.replicated_end, reply.durable_end
        must_sync = reply.sync and asked.end > self.sync_told
        if must_sync:
            self.sync_told = asked.end
        is_news = has_bytes or must_sync or (asked.has_readers and ends != self.ends_told)
        if is_news:
            self.ends_told = ends
        return is_news


class FetchService:
    """`view` gives the metadata as of now; None before they are read."""

    def __init__(
        self,
        replicas: Mapping[int, JournalReplica],
        engine: Engine,
        view: Callable[[], ClusterView | None],
    ) -> None:
        self._replicas = replicas
        self._engine = engine
        self._view = view
        self._parked: dict[int, dict[Peer, None]] = {}  # those who came first hear first
        self._sent: WeakKeyDictionary[Peer, dict[int, _Sent]] = WeakKeyDictionary()

    def wake(self, journal: int) -> None:
        """There are news about a journal."""
        for peer in self._parked.get(journal, ()):
            peer.wake()

    async def serve(self, peer: Peer, request: ReplicaFetch) -> Answer:
        """What a follower's request gets."""
        loop = asyncio.get_running_loop()
        until = loop.time() + request.wait_ms / 1000
        while True:
            answer, has_news = self._look(peer, request)
            if has_news:
                return answer
            why = await self._park(peer, request.journals, until - loop.time())
            if why is Parked.SUPERSEDED:
                return Answer()
            if why is Parked.TIMED_OUT:
                return self._look(peer, request)[0]

    async def _park(self, peer: Peer, asks: Sequence[JournalAsk], seconds: float) -> Parked:
        for ask in asks:
            self._parked.setdefault(ask.journal, {})[peer] = None
        try:
            return await peer.park(seconds)
        finally:
            for ask in asks:
                self._parked[ask.journal].pop(peer, None)

    def _look(self, peer: Peer, request: ReplicaFetch) -> tuple[Answer, bool]:
        sent_before = self._sent.setdefault(peer, {})
        told: list[JournalTold] = []
        parts: list[list[FileRange]] = []
        has_news, room, view = False, request.max_bytes, self._view()
        # Who asks for more than usual has an entry that does not fit in less.
        most = room if room > PIECE_BYTES or len(request.journals) == 1 else room // JOURNAL_PART
        for ask in request.journals:
            replica, asked = self._replicas.get(ask.journal), position_of(ask)
            reply = replica.asked(asked, view) if replica is not None and view is not None else None
            ranges: list[FileRange] = []
            if isinstance(reply, Accepted):
                sent = sent_before.get(ask.journal)
                if sent is None or sent.epoch != asked.epoch:
                    sent = sent_before[ask.journal] = _Sent(asked.epoch)
                ranges = self._ranges(ask.journal, asked, sent, reply.sent_ms, min(room, most))
                has_news = sent.is_news(asked, reply, has_bytes=bool(ranges)) or has_news
            else:
                has_news = True
            size = sum(each.size for each in ranges)
            room -= size
            told.append(told_of(ask.journal, reply or NotLeader(replica.epoch if replica is not None else 0), size))
            parts.append(ranges)
        return Answer(told, parts), has_news

    def _ranges(self, journal: int, asked: FetchPosition, sent: _Sent, now_ms: int, room: int) -> list[FileRange]:
        """None while what was sent before is still on its way, as this request was made before it arrived, and none for
        a follower whose splitter is too far behind."""
        if asked.echo_ms < sent.at_ms and asked.end < sent.end and now_ms - sent.at_ms < RESEND_MS:
            return []
        takes = room > 0 and asked.room.backlog_percent < FULL_PERCENT
        ranges = self._engine.file_ranges(journal, asked.end, room) if takes else []
        if ranges:
            sent.at_ms, sent.end = now_ms, asked.end + sum(each.size for each in ranges)
        return ranges
