"""All journals that this broker hosts, and what they share: the view of the metadata, links, requests of followers.

The metadata say what is to be: this module hands each record to its journal's replica, and the news of replicas to
whoever needs them. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from cairnmq.broker.cluster.departures import Departures
from cairnmq.broker.cluster.fetch_service import FetchService
from cairnmq.broker.cluster.fetcher import WAIT_MS
from cairnmq.broker.cluster.fetchers import Fetchers
from cairnmq.broker.cluster.free_space import FreeSpace
from cairnmq.broker.cluster.install_service import InstallService
from cairnmq.broker.cluster.installer import Installer
from cairnmq.broker.cluster.journal_copying import JournalCopying
from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.cluster.led_coordinators import LedCoordinators
from cairnmq.broker.cluster.nearest_reads import ask_again_ms
from cairnmq.broker.cluster.replica_notes import ReplicaNotes
from cairnmq.broker.cluster.replica_state import ReplicaState
from cairnmq.broker.internal.link import Link
from cairnmq.broker.leadership import NOBODY, JournalView, KnownBroker, Leadership
from cairnmq.errors import Fault
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.replication.leader import LeaderSettings
from cairnmq.replication.messages import Room
from cairnmq.replication.records import ClusterView, JournalRecord, Member, Proposal, PublishedEnd
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.cluster import FOLLOWER, LEADER, throttled_rate
from cairnmq.storage.api.serving import WritePath

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.store import Store

log = logging.getLogger("cairnmq.broker")

LOOK_SECONDS = 0.1


class Metadata(Protocol):
    """The cluster's metadata as replicas use them. Changes return when it is known whether they were made."""

    @property
    def confirmed_ms(self) -> int: ...

    def propose(self, proposal: Proposal) -> Awaitable[bool]: ...

    def publish_end(self, journal: int, end: PublishedEnd) -> Awaitable[bool]: ...

    def repaired(self, journal: int) -> Awaitable[bool]: ...

    def reread(self) -> Awaitable[None]: ...


class Replicas:
    """While this broker has no session (`me` is None) it leads nothing and follows nobody."""

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        leadership: Leadership,
        coordinators: LedCoordinators,
        *,
        settings: LeaderSettings,
        session_ms: int,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        must_restart: Callable[[], None],
        install_link: Callable[[int], Link | None],
        config: Callable[[], BrokerConfig],
    ) -> None:
        self.settings = settings
        self.session_ms = session_ms
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.must_restart = must_restart
        self.by_journal: dict[int, JournalReplica] = {}
        self.service = FetchService(self.by_journal, store.engine, self.seen_view)
        self.fetchers = Fetchers(self._room, now_ms, lambda: ask_again_ms(config(), leadership.own_rack, WAIT_MS))
        self.installer = Installer(
            store,
            link_to=install_link,
            must_restart=must_restart,
            rate=lambda: throttled_rate(config(), FOLLOWER),
            now_ms=now_ms,
        )
        self.installs = InstallService(
            self.by_journal,
            store,
            rate=lambda: throttled_rate(config(), LEADER),
            settled=store.splitter.settled,
            now_ms=now_ms,
        )
        self._member: Member | None = None
        self._store = store
        self._metadata = metadata
        self._leadership = leadership
        self._coordinators = coordinators
        self._cluster: ClusterImage | None = None
        self._notes = ReplicaNotes(self.by_journal)
        self._free = FreeSpace(store.free_bytes)
        self._departures = Departures()
        self._ticks: list[asyncio.Task[None]] = []

    # ---------------------------------------------------------------------------------------------------- its life

    def start(self, member: Member) -> None:
        """This broker is registered, and the journals are open."""
        self._member = member
        self._store.observe(self)
        loop = asyncio.get_running_loop()
        self._ticks = [loop.create_task(run()) for run in (self._look_after, self._notes.run, self._free.run)]

    def became(self, member: Member | None) -> None:
        """The session has ended (None), or this broker has registered again."""
        self._member = member
        self._see_all()

    async def close(self) -> None:
        """Stops leading and following; what is known of the journals is noted down."""
        for task in self._ticks:
            task.cancel()
        await asyncio.gather(*self._ticks, return_exceptions=True)
        await self.installer.close()
        await self.fetchers.close()
        for replica in self.by_journal.values():
            await replica.close()
        await self._notes.write()

    def see(self, cluster: ClusterImage) -> None:
        """The metadata changed."""
        self._cluster = cluster
        view, here = cluster.view, self._leadership.node
        controller = cluster.controller.broker if cluster.controller is not None else NOBODY
        live = _known_brokers(cluster)
        self._departures.see(live, self.now_ms())
        self._leadership.know_brokers(live, controller)
        self._leadership.know_departed(self._departures.told(self.now_ms()))
        for journal, kept in view.journals.items():
            self._leadership.know(journal, _view_of(kept.record, view))
            is_here = here in kept.record.replicas and journal in self._store.engine.paths
            if is_here and journal not in self.by_journal:
                state = ReplicaState.found(journal, self._store, kept.record)
                self.by_journal[journal] = JournalReplica(state, self)
        self._see_all()
        for replica in self.by_journal.values():
            self._coordinators.look(replica)

    def _see_all(self) -> None:
        if self._cluster is None:
            return
        journals = self._cluster.view.journals
        for journal, replica in self.by_journal.items():
            replica.see(journals.get(journal))

    def seen_view(self) -> ClusterView | None:
        """The cluster as this broker knows it."""
        return self._cluster.view if self._cluster is not None else None

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

    def reread(self) -> Awaitable[None]:
        return self._metadata.reread()

    def follow(self, copying: JournalCopying, leader: int) -> None:
        self.fetchers.follow(copying, leader)

    def unfollow(self, copying: JournalCopying) -> None:
        self.fetchers.unfollow(copying)

    def has_news(self, replica: JournalReplica) -> None:
        self.service.wake(replica.number)

    def leads(self, replica: JournalReplica) -> None:
        assert replica.leader is not None
        self._leadership.lead(replica.number, replica.leader.epoch, replica.may_answer_alone)

    def ready(self, replica: JournalReplica) -> None:
        self._leadership.ready(replica.number)

    def settled(self, replica: JournalReplica) -> None:
        self._coordinators.look(replica)

    def lost(self, replica: JournalReplica) -> None:
        self._leadership.lost(replica.number)
        self._coordinators.lost(replica.number)
        self.service.wake(replica.number)

    def _room(self, journal: int) -> Room:
        return self.by_journal[journal].state.room(self._free.bytes)

    # ------------------------------------------------------------------------------------------- what storage tells

    def written(self, journal: int) -> None:
        self.by_journal[journal].written()

    def synced(self, journal: int, end: int) -> None:
        if journal in self.by_journal:
            self.by_journal[journal].synced()
            self.fetchers.progressed(journal)

    # ---------------------------------------------------------------------------------------------------- over time

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            view = self.seen_view()
            if view is None:
                continue
            self._leadership.know_departed(self._departures.told(self.now_ms()))
            self.installs.expire()
            self._leadership.installs = self.installer.shares()
            self.fetchers.look()
            for replica in list(self.by_journal.values()):
                try:
                    replica.look_after(view)
                    if replica.number in self._leadership.weak_wanted:
                        self._leadership.weak_wanted.discard(replica.number)
                        replica.admit_weak()
                    self._judge_disk(replica, view)
                    self._coordinators.look(replica)  # slots may be new, in journals that were there
                except Fault as fault:
                    log.warning("journal %d: %s", replica.number, fault)
                except Exception:
                    log.exception("journal %d: a look at it failed; trying again", replica.number)

    def _judge_disk(self, replica: JournalReplica, view: ClusterView) -> None:
        """A leader whose disk refuses, or hangs, gives up if another member can lead (R13)."""
        path, leader = replica.state.path, replica.leader
        if leader is None or not isinstance(path, WritePath):
            replica.disk.rests()
            return
        others = [one for one in leader.record.isr if one != leader.me]
        if replica.disk.fails(path, asyncio.get_running_loop().time()) and any(map(view.is_live, others)):
            replica.resign()


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
        record.weak,
    )
