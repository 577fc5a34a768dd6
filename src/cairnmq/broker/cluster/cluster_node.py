"""What makes a broker one of a cluster: its session, its links, its replicas, and perhaps the controller's turn.

It carries values between these parts. What is to be is in the metadata; what it means is decided in
cairnmq.replication.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.broker.cluster.cluster_store import ClusterStore, Done, Outcome
from cairnmq.broker.cluster.controller_loop import ControllerLoop
from cairnmq.broker.cluster.metadata_loop import MetadataLoop
from cairnmq.broker.cluster.replicas import Replicas
from cairnmq.broker.cluster.report import report_of
from cairnmq.broker.coordination.coordinators import Coordinators
from cairnmq.broker.internal.dialer import Dialer
from cairnmq.broker.internal.listener import InternalListener
from cairnmq.broker.leadership import Leadership
from cairnmq.broker.live_catalog import LiveCatalog
from cairnmq.broker.options import Address
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.cluster_records import BrokerEntry
from cairnmq.metadata.machine_clock import boot_ms
from cairnmq.metadata.store import InDoubt
from cairnmq.replication.controller import elect_preferred, elect_unclean
from cairnmq.replication.leader import LeaderSettings
from cairnmq.replication.records import ClusterView, Member, Proposal, PublishedEnd
from cairnmq.settings.cluster import ClusterConfig
from cairnmq.storage.api.start import Leader
from cairnmq.wire.internal_handshake import Identity
from cairnmq.wire.messages import DescribeJournalsResponse

log = logging.getLogger("cairnmq.broker")

DOUBT_SECONDS = 0.1
HAND_OVER_SECONDS = 10.0
LOOK_SECONDS = 0.02
SLOTS_SECONDS = 0.5

TRANSACTIONS_REFUSED = (
    "transactions over several brokers are not supported yet; use a producer without transactional.id, or a broker "
    "that is alone"
)


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
        *,
        store: Store,
        catalog: LiveCatalog,
        leadership: Leadership,
        coordinators: Coordinators,
        slots_wanted: asyncio.Event,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int] = boot_ms,
    ) -> None:
        settings = joined.settings
        secret = settings.secret.encode() if settings.secret else None
        self.metadata = MetadataLoop(joined.store, catalog, self._register_again)
        self.replicas = Replicas(
            store,
            self,
            leadership,
            coordinators,
            catalog,
            settings=LeaderSettings(settings.lag_max_ms),
            session_ms=settings.session_ms,
            now_ms=now_ms,
            wall_ms=wall_ms,
        )
        self.dialer = Dialer(self.identity, secret, self.replicas.linked, self._refused)
        self.listener = InternalListener(self.identity, secret, self.replicas.service.serve)
        self._joined = joined
        self._cluster_id = cluster_id
        self._member: Member | None = joined.member
        self._store = store
        self._catalog = catalog
        self._leadership = leadership
        self._slots_wanted = slots_wanted
        self._now_ms = now_ms
        self._controller: ControllerLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # ---------------------------------------------------------------------------------------------------- its life

    async def start(self) -> None:
        """From here on it takes the roles that the metadata say."""
        self._catalog.queues.hosting = self.replicas
        await self.metadata.call(self._joined.store.poll)
        await self._catalog.refresh()
        self.replicas.start(self._joined.member)
        await self.listener.open(self._joined.internal)
        self.metadata.on_change(self._changed)
        self.metadata.start()
        self._controller = ControllerLoop(self, lambda: True)
        self._spawn(self._make_slots())
        self._changed(self.metadata.cluster)

    async def hand_over(self) -> None:
        """Before a stop: others lead what this broker leads, if there is anybody (R12)."""
        if not self._to_hand_over():
            return
        log.info("handing over leadership of %d journals", len(self._to_hand_over()))
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await self._told(await self.metadata.call(self._joined.store.stopping))
                while self._to_hand_over():  # noqa: ASYNC110 - the metadata or an own step may end it
                    await asyncio.sleep(LOOK_SECONDS)
        except (TimeoutError, Fault):
            log.warning("leadership of %d journals could not be handed over", len(self._to_hand_over()))

    def _to_hand_over(self) -> list[int]:
        """Journals that this broker leads and another one can lead, which is not on its way down itself."""
        view, own = self.view(), self._leadership.node

        def can_lead(member: Member) -> bool:
            return member.broker != own and view.is_live(member) and not view.brokers[member.broker].stopping

        led = (journal for journal in self._leadership.led if journal in view.journals)
        return [journal for journal in led if any(map(can_lead, view.journals[journal].record.isr))]

    async def close(self) -> None:
        """No roles, no links, no session. The journals stay as they are."""
        for task in list(self._tasks):
            task.cancel()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._end_session)
            stack.push_async_callback(self.metadata.close)
            stack.push_async_callback(self.listener.close)
            stack.push_async_callback(self.dialer.close)
            stack.push_async_callback(self.replicas.close)
            if self._controller is not None:
                stack.push_async_callback(self._controller.close)

    async def _end_session(self) -> None:
        await self._catalog.call(self._joined.store.close)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def identity(self) -> Identity:
        """As links say it."""
        member = self._member or self._joined.member
        return Identity(self._cluster_id, member.broker, member.broker_epoch)

    # ------------------------------------------------------------------------------------------- the metadata say

    def _changed(self, cluster: ClusterImage) -> None:
        self.replicas.see(cluster)
        own = self._leadership.node
        self.dialer.want(
            {
                broker: Address(cluster.brokers[broker].internal_host, cluster.brokers[broker].internal_port)
                for broker in cluster.view.live
                if broker != own and broker in cluster.brokers
            }
        )
        if self._controller is not None:
            self._controller.look()

    async def _register_again(self) -> None:
        """The session has ended, and this process lives. Another life begins, which has all that this one had."""
        former = self._joined.member if self._member is None else self._member
        self._member = None
        self.replicas.became(None)
        damaged = {number for number, replica in self.replicas.by_journal.items() if replica.is_damaged}
        store, entry = self._joined.store, self._joined.entry
        member = await self._catalog.call(lambda: store.register(entry, former.broker_epoch, damaged))
        hosting = self._store.engine.hosting
        assert hosting is not None
        hosting.registered(Leader(member.broker, member.broker_epoch))
        self._joined = replace(self._joined, member=member)
        self._member = member
        log.info("registered again, under epoch %d", member.broker_epoch)
        self.replicas.became(member)

    def _refused(self, broker: int) -> None:
        """Nobody listens at its address: it is dead, and its session need not end by itself (R35)."""
        cluster = self.metadata.cluster
        if broker in cluster.view.live:
            log.warning("broker %d refuses connections: it is taken for dead", broker)
            self._spawn(self._remove(broker, cluster))

    async def _remove(self, broker: int, cluster: ClusterImage) -> None:
        try:
            await self.metadata.call(lambda: self._joined.store.remove_dead(broker, cluster))
        except Fault as fault:
            log.warning("broker %d could not be removed: %s", broker, fault)

    async def _make_slots(self) -> None:
        while True:
            await self._slots_wanted.wait()
            self._slots_wanted.clear()
            if self._catalog.image.slots is not None:
                continue
            try:
                await self._catalog.make_slots()
            except Fault as fault:
                log.warning("slots of coordinators could not be made: %s", fault)
            await asyncio.sleep(SLOTS_SECONDS)

    # ----------------------------------------------------------------------------------------- what the parts need

    @property
    def cluster(self) -> ClusterImage:
        return self.metadata.cluster

    @property
    def confirmed_ms(self) -> int:
        return self.metadata.confirmed_ms

    def me(self) -> Member | None:
        return self._member

    def view(self) -> ClusterView:
        return self.metadata.cluster.view

    def controller(self) -> Member | None:
        return self.metadata.cluster.controller

    def now_ms(self) -> int:
        return self._now_ms()

    async def reread(self) -> None:
        """What the store has now is known here when this returns."""
        await self._catalog.refresh()
        self._changed(self.metadata.cluster)

    async def elect_controller(self) -> bool:
        return await self.metadata.call(self._joined.store.elect_controller)

    async def propose(self, proposal: Proposal) -> bool:
        """Returns when it is known what became of it."""
        store = self._joined.store
        return await self._told(await self.metadata.call(lambda: store.propose([proposal], as_controller=False)))

    async def decide(self, proposals: Sequence[Proposal]) -> bool:
        store = self._joined.store
        return await self._told(await self.metadata.call(lambda: store.propose(proposals, as_controller=True)))

    async def publish_end(self, journal: int, end: PublishedEnd) -> bool:
        return await self._told(await self.metadata.call(lambda: self._joined.store.publish_end(journal, end)))

    async def repaired(self, journal: int) -> bool:
        return await self._told(await self.metadata.call(lambda: self._joined.store.repaired(journal)))

    async def _told(self, outcome: Outcome) -> bool:
        while isinstance(outcome, InDoubt):
            await asyncio.sleep(DOUBT_SECONDS)
            doubt = outcome
            try:
                outcome = await self.metadata.call(lambda: self._joined.store.resolve(doubt))  # noqa: B023 - awaited
            except Fault:
                continue
        return isinstance(outcome, Done)

    def report(self) -> DescribeJournalsResponse:
        """What this broker knows of the cluster."""
        now_ms, away_ms = self._now_ms(), self.metadata.away_since_ms
        return report_of(
            self.metadata.cluster,
            self.replicas,
            cluster_id=self._cluster_id,
            node_id=self._leadership.node,
            session_age_ms=now_ms - self.confirmed_ms,
            away_ms=now_ms - away_ms if away_ms else -1,
        )

    # ------------------------------------------------------------------------------------------------- elections

    async def preferred(self, journal: int) -> Refusal | None:
        """A person asks for the first replica."""
        view = self.view()
        if journal not in view.journals:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no journal {journal}")
        record = view.journals[journal].record
        first = record.replicas[0]
        if record.leader is not None and record.leader.broker == first and view.is_live(record.leader):
            return Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"broker {first} leads journal {journal} already")
        proposal = elect_preferred(view, journal)
        if proposal is None:
            why = f"broker {first}, the preferred leader of journal {journal}, is not live and in sync"
            return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
        return await self._elected(proposal)

    async def unclean(self, journal: int) -> Refusal | None:
        """A person accepts a loss."""
        view = self.view()
        if journal not in view.journals:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no journal {journal}")
        proposal = elect_unclean(view, journal)
        if proposal is None:
            why = f"a replica of journal {journal} that has everything can lead, or no replica is live"
            return Refusal(ErrorCode.ELECTION_NOT_NEEDED, why)
        log.warning("journal %d: unclean election, as a person asked: records may be lost", journal)
        return await self._elected(proposal)

    async def _elected(self, proposal: Proposal) -> Refusal | None:
        if await self.propose(proposal):
            return None
        why = f"journal {proposal.record.journal} changed meanwhile; look again"
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, why)
