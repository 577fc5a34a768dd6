"""All journals that this broker hosts, and what they share: the view of the metadata, links, requests of followers.

The metadata say what is to be: this module hands each record to its journal's replica, and the news of replicas to
whoever needs them. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from cairnmq.broker.cluster.fetch_service import FetchService
from cairnmq.broker.cluster.fetcher import Fetcher
from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.leadership import NOBODY, JournalView, KnownBroker, Leadership
from cairnmq.errors import Fault
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.os_errors import text_of
from cairnmq.replication.follower import KnownEnds
from cairnmq.replication.leader import LeaderSettings
from cairnmq.replication.records import ClusterView, JournalRecord, Member, Proposal, PublishedEnd
from cairnmq.storage.api.serving import ReplicaNote, WritePath

if TYPE_CHECKING:
    from cairnmq.broker.coordination.coordinators import Coordinators
    from cairnmq.broker.internal.link import Link
    from cairnmq.broker.live_catalog import LiveCatalog
    from cairnmq.broker.storage_loop.store import Store

log = logging.getLogger("cairnmq.broker")

LOOK_SECONDS = 0.1
NOTE_SECONDS = 5.0
HANG_SECONDS = 1.0  # a disk that refuses for so long costs the leadership


class Metadata(Protocol):
    """The cluster's metadata as replicas use them. Changes return when it is known whether they were made."""

    @property
    def cluster(self) -> ClusterImage: ...

    @property
    def confirmed_ms(self) -> int: ...

    def propose(self, proposal: Proposal) -> Awaitable[bool]: ...

    def publish_end(self, journal: int, end: PublishedEnd) -> Awaitable[bool]: ...

    def repaired(self, journal: int) -> Awaitable[bool]: ...

    def reread(self) -> Awaitable[None]: ...


class Replicas:
    """It is also what the catalog knows of hosted journals (`live_catalog.Hosting`). While this broker has no session
    (`me` is None) it leads nothing and follows nobody."""

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        leadership: Leadership,
        coordinators: Coordinators,
        catalog: LiveCatalog,
        *,
        settings: LeaderSettings,
        session_ms: int,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.session_ms = session_ms
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.by_journal: dict[int, JournalReplica] = {}
        self._member: Member | None = None
        self._store = store
        self._metadata = metadata
        self._leadership = leadership
        self._coordinators = coordinators
        self._catalog = catalog
        self._links: dict[int, Link] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._cluster: ClusterImage | None = None
        self.service = FetchService(self.by_journal, store.engine, self._seen_view, now_ms)
        self._ticks: list[asyncio.Task[None]] = []

    # ---------------------------------------------------------------------------------------------------- its life

    def start(self, member: Member) -> None:
        """This broker is registered, and the journals are open."""
        self._member = member
        self._store.observe(self)
        loop = asyncio.get_running_loop()
        self._ticks = [loop.create_task(self._look_after()), loop.create_task(self._take_notes())]

    def became(self, member: Member | None) -> None:
        """The session has ended (None), or this broker has registered again."""
        self._member = member
        self._see_all()

    async def close(self) -> None:
        """Stops leading and following; what is known of the journals is noted down."""
        for task in self._ticks:
            task.cancel()
        await asyncio.gather(*self._ticks, return_exceptions=True)
        for fetcher in self._fetchers.values():
            await fetcher.close()
        for replica in self.by_journal.values():
            await replica.close()
        await self._note_all()

    def see(self, cluster: ClusterImage) -> None:
        """The metadata changed."""
        self._cluster = cluster
        view, here = cluster.view, self._leadership.node
        controller = cluster.controller.broker if cluster.controller is not None else NOBODY
        self._leadership.know_brokers(_known_brokers(cluster), controller)
        for journal, kept in view.journals.items():
            self._leadership.know(journal, _view_of(kept.record, view))
            if here in kept.record.replicas and journal not in self.by_journal:
                self._begin(journal, kept.record)
        self._see_all()
        for replica in self.by_journal.values():
            self._coordinate(replica)

    def _see_all(self) -> None:
        if self._cluster is None:
            return
        journals = self._cluster.view.journals
        for journal, replica in self.by_journal.items():
            replica.see(journals.get(journal))

    def _begin(self, journal: int, record: JournalRecord) -> None:
        engine = self._store.engine
        if journal not in engine.paths:
            return  # it is made with the topics of the same change (`host`)
        assert engine.hosting is not None
        ends, note = engine.paths[journal].journal, engine.hosting.notes[journal].kept
        known = KnownEnds(note.replicated, note.durable, note.epoch)
        known = KnownEnds(min(known.floor(record), ends.end), min(known.durable, ends.end), known.epoch)
        known = known.learned(ends.replicated_end, ends.durable_end, known.epoch)
        self.by_journal[journal] = JournalReplica(journal, self._store, self, known)

    def _seen_view(self) -> ClusterView | None:
        return self._cluster.view if self._cluster is not None else None

    # ------------------------------------------------------------------------------------- what the catalog asks

    def hosts(self, journal: int) -> bool:
        return journal in self._store.engine.paths

    async def host(self, cluster: ClusterImage) -> None:
        """Makes the journals that are new and that this broker is a replica of."""
        for journal, kept in cluster.view.journals.items():
            if self._leadership.node in kept.record.replicas and not self.hosts(journal):
                log.info("journal %d: this broker is one of its replicas", journal)
                self._store.host(journal)

    def knows_queues(self, next_queue: int) -> None:
        self._store.knows_queues(next_queue)

    # ------------------------------------------------------------------------------------------ what replicas need

    def me(self) -> Member | None:
        return self._member

    def confirmed_ms(self) -> int:
        return self._metadata.confirmed_ms

    def propose(self, proposal: Proposal) -> Awaitable[bool]:
        return self._metadata.propose(proposal)

    def publish(self, journal: int, end: PublishedEnd) -> Awaitable[bool]:
        return self._metadata.publish_end(journal, end)

    async def whole_again(self, journal: int) -> None:
        """The journal is in sync, so it lacks nothing that this disk once had."""
        member, cluster = self._member, self._cluster
        if member is None or cluster is None:
            return
        known = cluster.view.brokers.get(member.broker)
        if known is not None and journal in known.damaged:
            await self._metadata.repaired(journal)

    async def reread(self) -> None:
        await self._metadata.reread()

    def follow(self, replica: JournalReplica, leader: int) -> None:
        for broker, fetcher in self._fetchers.items():
            if broker != leader:
                fetcher.unfollow(replica)
        self._fetcher(leader).follow(replica)

    def _fetcher(self, leader: int) -> Fetcher:
        if leader not in self._fetchers:
            fetcher = self._fetchers[leader] = Fetcher(leader, self._room)
            link = self._links.get(leader)
            if link is not None:
                fetcher.use(link)
        return self._fetchers[leader]

    def linked(self, broker: int, link: Link) -> None:
        """There is a new link to a broker."""
        self._links[broker] = link
        if broker in self._fetchers:
            self._fetchers[broker].use(link)

    def split_end(self, journal: int) -> int:
        """Up to here the journal's records are in queue logs."""
        return self._store.engine.split[journal]

    def _room(self, journal: int) -> tuple[int, int]:
        """Bytes of the journal that are not split yet, and how many more this disk takes."""
        end = self._store.engine.paths[journal].journal.end
        return end - self._store.engine.split[journal], 0

    def unfollow(self, replica: JournalReplica) -> None:
        for fetcher in self._fetchers.values():
            fetcher.unfollow(replica)

    def progressed(self, replica: JournalReplica) -> None:
        for fetcher in self._fetchers.values():
            fetcher.progressed(replica)

    def has_news(self, replica: JournalReplica) -> None:
        self.service.wake(replica.number)

    def leads(self, replica: JournalReplica) -> None:
        assert replica.leader is not None
        self._leadership.lead(replica.number, replica.leader.epoch, replica.may_answer_alone)

    def ready(self, replica: JournalReplica) -> None:
        assert replica.leader is not None
        self._leadership.ready(replica.number)
        self._coordinate(replica)

    def _coordinate(self, replica: JournalReplica) -> None:
        """Coordinators of the slots in a journal are loaded when nothing that they act on can be taken back (R24)."""
        slots, leader = self._catalog.image.slots, replica.leader
        self._store.slots = slots
        if slots is None or leader is None or not replica.is_ready or replica.coordinates:
            return
        if replica.number in slots.cycle:
            replica.coordinates = True
            self._coordinators.lead(replica.number, leader.epoch, self._store.engine.keyed)

    def lost(self, replica: JournalReplica) -> None:
        self._leadership.lost(replica.number)
        replica.coordinates = False
        self._coordinators.drop(replica.number)
        self.service.wake(replica.number)

    # ------------------------------------------------------------------------------------------- what storage tells

    def written(self, journal: int) -> None:
        """Of a journal that this broker leads."""
        self.by_journal[journal].written()

    def synced(self, journal: int, end: int) -> None:
        """By the own disk."""
        if journal in self.by_journal:
            self.by_journal[journal].synced()

    # ---------------------------------------------------------------------------------------------------- over time

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            view = self._seen_view()
            if view is None:
                continue
            for replica in list(self.by_journal.values()):
                replica.look_after(view)
                self._judge_disk(replica)

    def _judge_disk(self, replica: JournalReplica) -> None:
        """A leader whose disk refuses writes gives up, if another member can lead (R13)."""
        path, leader = replica.path, replica.leader
        if leader is None or not isinstance(path, WritePath) or path.stopped is None:
            replica.stopped_at = None
            return
        now = asyncio.get_running_loop().time()
        if replica.stopped_at is None:
            replica.stopped_at = now
        view = self._seen_view()
        others = [one for one in leader.record.isr if one != leader.me]
        if view is not None and now - replica.stopped_at >= HANG_SECONDS and any(map(view.is_live, others)):
            replica.resign()

    async def _take_notes(self) -> None:
        while True:
            await asyncio.sleep(NOTE_SECONDS)
            await self._note_all()

    async def _note_all(self) -> None:
        """The ends that are known, as far as the own journal is synced: a start folds up to them at once."""
        for journal, replica in list(self.by_journal.items()):
            known = replica.known
            if known == replica.noted or known.replicated > replica.path.journal.synced:
                continue
            try:
                await self._store.note(journal, ReplicaNote(known.replicated, known.durable, known.epoch))
                replica.noted = known
            except (Fault, OSError) as error:
                log.warning("journal %d: its known ends cannot be noted down: %s", journal, text_of(error))


def _known_brokers(cluster: ClusterImage) -> list[KnownBroker]:
    return [
        KnownBroker(member.broker, entry.host, entry.port, entry.rack)
        for member in cluster.live_members()
        for entry in [cluster.brokers[member.broker]]
    ]


def _view_of(record: JournalRecord, view: ClusterView) -> JournalView:
    leader = record.leader.broker if record.leader is not None and view.is_live(record.leader) else NOBODY
    return JournalView(
        leader,
        record.epoch,
        record.replicas,
        tuple(member.broker for member in record.isr),
        tuple(broker for broker in record.replicas if broker not in view.live),
    )
