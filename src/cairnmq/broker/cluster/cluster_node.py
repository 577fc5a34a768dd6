"""What makes a broker one of a cluster: its session, its links, its replicas, and perhaps the controller's turn.

It carries values between these parts. What is to be is in the metadata; what it means is decided in
cairnmq.replication.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial

from msgspec import Struct

from cairnmq.broker.cluster.asked_elections import AskedElections
from cairnmq.broker.cluster.cluster_store import ClusterStore
from cairnmq.broker.cluster.controller_loop import ControllerLoop
from cairnmq.broker.cluster.hosted_journals import HostedJournals
from cairnmq.broker.cluster.led_coordinators import LedCoordinators
from cairnmq.broker.cluster.metadata_changes import MetadataChanges
from cairnmq.broker.cluster.metadata_loop import MetadataLoop
from cairnmq.broker.cluster.nearest_reads import NearestReads
from cairnmq.broker.cluster.peer_links import PeerLinks
from cairnmq.broker.cluster.removals import Removals
from cairnmq.broker.cluster.replicas import Replicas
from cairnmq.broker.cluster.report import report_of
from cairnmq.broker.cluster.transaction_routes import TransactionRoutes
from cairnmq.broker.coordination.coordinators import Coordinators
from cairnmq.broker.internal.link import Link
from cairnmq.broker.internal.listener import InternalListener
from cairnmq.broker.leadership import Leadership
from cairnmq.broker.live_catalog import LiveCatalog
from cairnmq.broker.options import Address
from cairnmq.broker.runtime import Runtime
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import ErrorCode, Fault, Refusal, Unreachable
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.cluster_records import BrokerEntry
from cairnmq.replication.leader import LeaderSettings
from cairnmq.replication.lives import why_remembered
from cairnmq.replication.records import Member
from cairnmq.settings.cluster import ClusterConfig
from cairnmq.storage.api.serving import SEGMENTS_LEFT
from cairnmq.storage.api.start import Leader
from cairnmq.wire.internal_handshake import Identity
from cairnmq.wire.messages import DescribeJournalsResponse

log = logging.getLogger("cairnmq.broker")

HAND_OVER_SECONDS = 10.0
COPY_SECONDS = 2.0  # for followers that are slow: then what acks=1 promised is what the table says
LOOK_SECONDS = 0.02
SLOTS_SECONDS = 0.5


def _nobody_can() -> None:
    raise Fault("this broker cannot start again by itself")


def _nobody_stops(reason: str) -> None:
    raise Fault(reason)


class Joined(Struct, frozen=True, eq=False):
    """What a start in a cluster has made: the store in which this broker is registered as `member`, with `entry`."""

    store: ClusterStore
    settings: ClusterConfig
    entry: BrokerEntry
    member: Member
    internal: socket.socket


class ClusterNode:
    """`slots_wanted` is set whenever somebody asks for a coordinator before there are slots."""

    def __init__(
        self,
        joined: Joined,
        cluster_id: str,
        store: Store,
        catalog: LiveCatalog,
        leadership: Leadership,
        coordinators: Coordinators,
        slots_wanted: asyncio.Event,
        runtime: Runtime,
    ) -> None:
        settings, now_ms, wall_ms = joined.settings, runtime.boot_ms, runtime.wall_ms
        secret = settings.secret.encode() if settings.secret else None
        self._loop = MetadataLoop(joined.store, catalog, self._register_again, clock=now_ms)
        self._metadata = MetadataChanges(self._loop, joined.store, self._refresh)
        self.elections = AskedElections(self._metadata, wall_ms)
        led = LedCoordinators(coordinators, catalog, store)
        self._replicas = self._made_replicas(store, catalog, leadership, led, settings, wall_ms, now_ms)
        removals = Removals(settings.session_ms)
        self._links = PeerLinks(
            self.identity,
            secret,
            runtime,
            on_data=self._replicas.fetchers.linked,
            on_control=lambda broker, link: self.transactions.linked(broker, link),
            on_refused=partial(self._refused, removals),
        )
        self.transactions: TransactionRoutes = TransactionRoutes.made(
            store,
            coordinators,
            leadership,
            lambda: catalog.image,
            links=self._links.control.links,
            want_links=lambda: self._changed(self._loop.cluster),
        )
        self._listener = InternalListener(
            self.identity,
            secret,
            self._replicas.service.serve,
            runtime,
            install=self._replicas.installs.serve,
            control=self.transactions.service.serve,
        )
        self._joined = joined
        self._cluster_id = cluster_id
        self._member = joined.member  # the latest life
        self._store = store
        self._catalog = catalog
        self._leadership = leadership
        self._coordinators = coordinators
        self._slots_wanted = slots_wanted
        self._now_ms = now_ms
        self.must_restart: Callable[[], None] = _nobody_can
        self.must_stop: Callable[[str], None] = _nobody_stops
        self._controller: ControllerLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def _made_replicas(
        self,
        store: Store,
        catalog: LiveCatalog,
        leadership: Leadership,
        coordinators: LedCoordinators,
        settings: ClusterConfig,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> Replicas:
        return Replicas(
            store,
            self._metadata,
            leadership,
            coordinators,
            settings=LeaderSettings(
                settings.lag_max_ms, free_bytes_min=SEGMENTS_LEFT * store.engine.config.segment_bytes
            ),
            session_ms=settings.session_ms,
            now_ms=now_ms,
            wall_ms=wall_ms,
            must_restart=lambda: self.must_restart(),
            install_link=self._install_link,
            config=lambda: catalog.config,
        )

    # ---------------------------------------------------------------------------------------------------- its life

    async def start(self) -> None:
        """From here on it takes the roles that the metadata say."""
        self._catalog.queues.hosting = HostedJournals(self._leadership.node, self._store)
        await self._catalog.refresh()
        self._replicas.start(self._member)
        await self._listener.open(self._joined.internal)
        self._loop.on_change(self._changed)
        self._loop.start()
        self._controller = ControllerLoop(self._metadata, self._replicas.me, self._now_ms)
        self._spawn(self._make_slots())
        self._changed(self._loop.cluster)

    async def hand_over(self) -> None:
        """Before a stop: others lead what this broker leads, if there is anybody (R12). What was acknowledged with
        acks=1 is copied first, and no more is acknowledged. Also if nobody can lead now: another broker of the ISR that
        was stopped shortly before may be started, and elected, while clients are still served here."""
        self._leadership.is_leaving = True
        if not self._to_hand_over():
            return
        log.info("handing over leadership of %d journals", len(self._to_hand_over()))
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await self._copied()
                await self._metadata.stopping()
                while self._to_hand_over():  # noqa: ASYNC110 - the metadata or an own step may end it
                    await asyncio.sleep(LOOK_SECONDS)
        except (TimeoutError, Fault):
            log.warning("leadership of %d journals could not be handed over", len(self._to_hand_over()))

    async def _copied(self) -> None:
        """Until every in-sync replica has what is written now."""
        led = {number: each for number, each in self._replicas.by_journal.items() if each.leader is not None}
        ends = {number: each.state.path.journal.end for number, each in led.items()}

        def lacking() -> set[int]:
            leaders = ((number, each.leader) for number, each in led.items())
            return {number for number, leader in leaders if leader is not None and leader.replicated_end < ends[number]}

        with suppress(TimeoutError):
            async with asyncio.timeout(COPY_SECONDS):
                while lacking() & {*self._to_hand_over()}:  # noqa: ASYNC110 - as below
                    await asyncio.sleep(LOOK_SECONDS)

    def _to_hand_over(self) -> list[int]:
        """Journals that this broker leads and another one can lead, which is not on its way down itself."""
        view, own = self._metadata.view(), self._leadership.node

        def can_lead(member: Member) -> bool:
            return member.broker != own and view.is_live(member) and not view.brokers[member.broker].stopping

        led = (journal for journal in self._leadership.led if journal in view.journals)
        return [journal for journal in led if any(map(can_lead, view.journals[journal].record.isr))]

    async def close(self) -> None:
        """No roles, no links, no session. The journals stay as they are."""
        for task in list(self._tasks):
            task.cancel()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._catalog.call, self._joined.store.close)
            stack.push_async_callback(self._loop.close)
            stack.push_async_callback(self._listener.close)
            stack.push_async_callback(self._replicas.close)
            stack.push_async_callback(self._links.close)  # first: nothing is copied any more
            if self._controller is not None:
                stack.push_async_callback(self._controller.close)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def nearest_reads(self) -> NearestReads:
        """Those of clients that say in which rack they are. One for a broker."""
        replicas, catalog = self._replicas, self._catalog
        return NearestReads(
            replicas.by_journal, self._leadership, replicas.seen_view, lambda: catalog.config, self._now_ms
        )

    def identity(self) -> Identity:
        """As links say it."""
        return Identity(self._cluster_id, self._member.broker, self._member.broker_epoch)

    def report(self) -> DescribeJournalsResponse:
        """What this broker knows of the cluster."""
        now_ms, away_ms = self._now_ms(), self._loop.away_since_ms
        return report_of(
            self._loop.cluster,
            self._replicas,
            cluster_id=self._cluster_id,
            node_id=self._leadership.node,
            session_age_ms=now_ms - self._loop.confirmed_ms,
            away_ms=now_ms - away_ms if away_ms else -1,
            wall_ms=self._replicas.wall_ms(),
            links=self._links.data.lasting_trouble(),
            slots_trouble=self._coordinators.slots_refused if self._catalog.image.slots is None else "",
        )

    # ------------------------------------------------------------------------------------------- the metadata say

    async def forget(self, broker: int) -> Refusal | None:
        """A person says that a broker will not come back."""
        await self._metadata.reread()
        view = self._metadata.view()
        if broker not in view.brokers:
            return Refusal(ErrorCode.RESOURCE_NOT_FOUND, f"broker {broker} is not registered")
        if why := why_remembered(broker, view):
            return Refusal(ErrorCode.INVALID_REQUEST, why)
        if not await self._metadata.forget(broker):
            return Refusal(ErrorCode.INVALID_REQUEST, f"broker {broker} has changed meanwhile; look again")
        log.info("broker %d is forgotten, as a person asked", broker)
        return None

    async def catch_up(self) -> None:
        """Until this broker knows what the metadata say now."""
        await self._loop.catch_up()

    async def _refresh(self) -> None:
        await self._catalog.refresh()
        self._changed(self._loop.cluster)

    def _changed(self, cluster: ClusterImage) -> None:
        self._replicas.see(cluster)
        self._links.want(
            self._addresses(cluster),
            control=self.transactions.needs_links,
            installers=self._replicas.installer.leaders,
        )
        if self._coordinators.slots_refused and self._catalog.image.slots is None:
            self._slots_wanted.set()  # there may be enough brokers now
        if self._controller is not None:
            self._controller.look()

    def _addresses(self, cluster: ClusterImage) -> dict[int, Address]:
        return {
            broker: Address(cluster.brokers[broker].internal_host, cluster.brokers[broker].internal_port)
            for broker in cluster.view.live
            if broker != self._leadership.node and broker in cluster.brokers
        }

    def _install_link(self, broker: int) -> Link | None:
        self._links.want_installs(self._addresses(self._loop.cluster), self._replicas.installer.leaders)
        return self._links.install(broker)

    async def _register_again(self) -> None:
        """The session has ended, and this process lives. Another life begins, which has all that this one had."""
        self._replicas.became(None)
        store, entry, former = self._joined.store, self._joined.entry, self._member.broker_epoch
        # What it lacked at the start stays noted there until it is repaired, and it has been running since.
        try:
            self._member = await self._catalog.call(lambda: store.register(entry, former))
        except Unreachable:
            raise
        except Fault as fault:  # as at a start: another process is this broker, or others have another secret
            log.error("%s", fault)
            self.must_stop(str(fault))
            await asyncio.Event().wait()  # until `close`: there is nothing to look at any more
        hosting = self._store.engine.hosting
        assert hosting is not None
        hosting.registered(Leader(self._member.broker, self._member.broker_epoch))
        log.info("registered again, under epoch %d", self._member.broker_epoch)
        self._replicas.became(self._member)

    def _refused(self, removals: Removals, broker: int) -> None:
        """Nobody listens at its address: it is dead, and its session need not end by itself (R35)."""
        cluster = self._loop.cluster
        life = cluster.view.live.get(broker)
        if life is not None and removals.may_remove(broker, life, self._now_ms()):
            log.warning("broker %d refuses connections: it is taken for dead", broker)
            self._spawn(self._remove(broker, cluster))

    async def _remove(self, broker: int, cluster: ClusterImage) -> None:
        try:
            await self._metadata.remove_dead(broker, cluster)
        except Fault as fault:
            log.warning("broker %d could not be removed: %s", broker, fault)

    async def _make_slots(self) -> None:
        while True:
            await self._slots_wanted.wait()
            self._slots_wanted.clear()
            if self._catalog.image.slots is not None:
                continue
            try:
                made = await self._catalog.make_slots()
            except Fault as fault:
                log.warning("slots of coordinators could not be made: %s", fault)
            else:
                self._coordinators.tell_slots(made.message if isinstance(made, Refusal) else "")
            await asyncio.sleep(SLOTS_SECONDS)
