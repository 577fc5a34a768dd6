"""One broker's replica of journal 4, in the roles that a test gives it. Its storage is real, on simulated disks; what
the broker around it would do is written down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType

from msgspec.structs import replace

from cairnmq.broker.cluster.journal_copying import JournalCopying
from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.cluster.replica_state import ReplicaState
from cairnmq.broker.machine import MACHINE
from cairnmq.broker.storage_loop.journal_threads import SHARED_SYNCS
from cairnmq.broker.storage_loop.replica_loop import ReplicaLoop
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import Fault
from cairnmq.replication.leader import JournalLeader, LeaderSettings
from cairnmq.replication.messages import Accepted, FetchPosition, FetchReply
from cairnmq.replication.records import (
    BrokerRecord,
    ClusterView,
    JournalRecord,
    Kept,
    Member,
    Proposal,
    PublishedEnd,
)
from cairnmq.settings.broker import BrokerConfig, broker_config
from cairnmq.storage.live.write_path import Placed
from cairnmq.testing.sim_disk import SimDisk
from unit.broker.rig import until
from unit.storage.cluster_harness import Machine, content, spec
from unit.storage.replica_harness import NOW, batch

JOURNAL = 4
SESSION_MS = 6000
A, B, C = Member(1, 11), Member(2, 12), Member(3, 13)
RECORD = JournalRecord(JOURNAL, (1, 2, 3), A, 20, (A, B, C))
SPECS = [spec(1), spec(2), spec(3, 9)]


def store_of(machine: Machine) -> Store:
    """Its loops run; nothing is split."""
    config = broker_config({}, in_cluster=True)
    assert isinstance(config, BrokerConfig), config
    return Store(
        machine.engine,
        lock_fds=[],
        journal_dir="",
        data_dir="",
        config=config,
        slots=None,
        runtime=replace(MACHINE, wall_ms=lambda: NOW),
    )


class Cluster:
    """The metadata, as tests change them. `say` of each proposal whether it is made; it may wait, or raise a Fault."""

    def __init__(self, *members: Member) -> None:
        self.revision = 50
        self.brokers = {one.broker: BrokerRecord(one.broker, one.broker_epoch) for one in members}
        self.live = {one.broker: one.broker_epoch for one in members}
        self.kept: Kept | None = None

    def put(self, record: JournalRecord) -> Kept:
        self.revision += 1
        self.kept = Kept(record, self.revision)
        return self.kept

    def view(self) -> ClusterView:
        journals = {} if self.kept is None else {self.kept.record.journal: self.kept}
        return ClusterView(self.revision, 30, journals, self.brokers, self.live)


class Installs:
    """What is wanted of them, written down."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def want(self, copying: JournalCopying, me: Member, record: JournalRecord, beyond: int = -1) -> None:
        behind = f", behind {beyond}" if beyond >= 0 else ""
        self._told.append(f"is installed from {record.leader.broker if record.leader else None}{behind}")

    async def end(self, journal: int) -> None:
        await asyncio.sleep(0)
        self._told.append("is not installed")


class Desk:
    """A broker, in its part for one replica (`Ports`)."""

    def __init__(self, me: Member = A) -> None:
        self.settings = LeaderSettings(10_000)
        self.session_ms = SESSION_MS
        self.cluster = Cluster(A, B, C)
        self.machine = Machine(me.broker, SPECS)
        self.store = store_of(self.machine)
        self.store.observe(self)
        self.time_ms = self.confirmed = 1_000_000
        self.member: Member | None = me
        self.told: list[str] = []
        self.installer = Installs(self.told)
        self.proposals: list[Proposal] = []
        self.published: list[PublishedEnd] = []
        self.rereads = 0
        self.is_away = False  # the metadata store
        self.held: asyncio.Event | None = None  # proposals wait for it
        self.accepts = True  # else proposals are certainly not made
        self.restarts = 0
        self.leads_from: list[int] = []
        self.tick_ms = 0  # that pass whenever somebody looks at the clock
        self.on_news: Callable[[int], None] = lambda journal: None
        self.on_synced: Callable[[int], None] = lambda journal: None
        path_end, record = self.machine.end(), replace(RECORD, leader=None)
        assert path_end == 0
        self.replica = JournalReplica(ReplicaState.found(JOURNAL, self.store, record), self)

    async def __aenter__(self) -> Desk:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.replica.close()
        self.store.loops.close()

    # ---------------------------------------------------------------------------------------------------- its ports

    def me(self) -> Member | None:
        return self.member

    def confirmed_ms(self) -> int:
        return self.confirmed

    def now_ms(self) -> int:
        self.time_ms += self.tick_ms
        return self.time_ms

    def wall_ms(self) -> int:
        return NOW

    def must_restart(self) -> None:
        self.restarts += 1

    async def reread(self) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise Fault("the store is away")
        self.rereads += 1
        if self.cluster.kept is not None:
            self.replica.see(self.cluster.kept)

    async def propose(self, proposal: Proposal) -> bool:
        self.proposals.append(proposal)
        if self.held is not None:
            await self.held.wait()
        if self.is_away and self.accepts:
            raise Fault("the store is away")
        kept = self.cluster.kept
        if not self.accepts or kept is None or kept.revision != proposal.expect:
            return False
        self.replica.see(self.cluster.put(proposal.record))
        return True

    async def publish(self, journal: int, end: PublishedEnd) -> bool:
        await asyncio.sleep(0)
        self.published.append(end)
        return True

    def seen_view(self) -> ClusterView:
        return self.cluster.view()

    async def whole_again(self, journal: int) -> None:
        self.told.append("whole")

    def follow(self, copying: JournalCopying, leader: int) -> None:
        self.told.append(f"follows {leader}")

    def unfollow(self, copying: JournalCopying) -> None:
        self.told.append("follows nobody")

    def has_news(self, replica: JournalReplica) -> None:
        self.told.append("news")
        self.on_news(replica.number)

    def leads(self, replica: JournalReplica) -> None:
        self.leads_from.append(self.end)
        self.told.append("leads")

    def ready(self, replica: JournalReplica) -> None:
        self.told.append("ready")

    def settled(self, replica: JournalReplica) -> None:
        self.told.append("settled")

    def lost(self, replica: JournalReplica) -> None:
        self.told.append("lost")
        self.on_news(replica.number)

    # -------------------------------------------------------------------------------------------- what storage tells

    def written(self, journal: int) -> None:
        self.replica.written()

    def synced(self, journal: int, end: int) -> None:
        self.replica.synced()
        self.on_synced(journal)

    # ------------------------------------------------------------------------------------------------ what tests use

    def see(self, record: JournalRecord) -> Kept:
        """The metadata have it now, and this broker has heard of it."""
        kept = self.cluster.put(record)
        self.replica.see(kept)
        return kept

    async def lead(self, record: JournalRecord = RECORD) -> JournalLeader:
        self.see(record)
        await until(lambda: self.replica.leader is not None)
        return self.leader

    @property
    def leader(self) -> JournalLeader:
        assert self.replica.leader is not None
        return self.replica.leader

    @property
    def copying(self) -> JournalCopying:
        return self.replica.copying

    @property
    def state(self) -> ReplicaState:
        return self.replica.state

    @property
    def loop(self) -> ReplicaLoop:
        return self.store.loops[JOURNAL]

    @property
    def disk(self) -> SimDisk:
        return self.machine.disks[0]

    @property
    def end(self) -> int:
        return self.machine.end()

    @property
    def histories(self) -> tuple[list[tuple[int, int]], int]:
        """As the files have it; the shell's own must be equal."""
        return self.machine.engine.histories(JOURNAL)

    def is_true(self) -> bool:
        """What the shell believes of the journal is so."""
        return (self.state.history.starts(), self.state.history.end) == self.histories

    def put(self) -> Placed:
        """A batch of a producer, on its way."""
        placed = self.store.append(self.machine.engine.queues[1], batch(), -1, NOW)
        assert isinstance(placed, Placed), placed
        return placed

    async def produced(self) -> None:
        self.put()
        await until(lambda: self.state.path.journal.end == self.state.path.journal.staged_end)

    def position(self, follower: Member, end: int | None = None, synced: int | None = None) -> FetchPosition:
        """Of a follower that has the same bytes, up to here."""
        end = self.end if end is None else end
        epoch = max((epoch for epoch, start in self.state.history.starts() if start < end), default=0)
        of_epoch = self.state.history.last_epoch
        return FetchPosition(follower, of_epoch, end, epoch, end if synced is None else synced, self.time_ms)

    def asked(self, follower: Member, end: int | None = None, synced: int | None = None) -> FetchReply | None:
        return self.replica.asked(self.position(follower, end, synced), self.cluster.view())

    def hold_writes(self) -> threading.Event:
        """The disk hangs from now on, in writes. It goes on when the event is set."""
        gate = threading.Event()
        self.loop._threaded_until = float("inf")
        self.loop.threads.write.submit(gate.wait, 20)
        return gate

    def hold_syncs(self) -> threading.Event:
        gate = threading.Event()
        for _ in range(SHARED_SYNCS):
            self.loop.threads.sync.submit(gate.wait, 20)
        return gate


class Source:
    """Another broker's journal, from which a desk's replica is fed by hand."""

    def __init__(self, me: Member = B, epoch: int = 20) -> None:
        self.me = me
        self.epoch = epoch
        self.machine = Machine(me.broker, SPECS)
        self.machine.lead(epoch)

    def put(self, count: int = 1) -> int:
        for _ in range(count):
            self.machine.put(1)
        return self.machine.end()

    def elected(self, epoch: int) -> None:
        self.machine.engine.follow(JOURNAL, "another")
        self.machine.lead(epoch)
        self.epoch = epoch

    def data(self, position: int, size: int = 1 << 20) -> memoryview:
        return memoryview(content(self.machine.engine, JOURNAL, position, size))

    def reply(self, *, replicated: int = 0, durable: int = 0, sync: bool = False, sent_ms: int = 1) -> Accepted:
        return Accepted(replicated, durable, sync, sent_ms)


async def fed(desk: Desk, source: Source, *, replicated: int = 0, durable: int = 0, sync: bool = False) -> None:
    """All that the source has more."""
    assert desk.copying.follower is not None
    asked = desk.copying.follower.position()
    reply = source.reply(replicated=replicated, durable=durable, sync=sync)
    await desk.copying.replied(asked, reply, source.data(asked.end))


async def follows(desk: Desk, source: Source, record: JournalRecord) -> None:
    """The desk's replica follows the source in this record."""
    desk.see(record)
    await until(lambda: desk.copying.follower is not None and desk.copying.follower.record.epoch == record.epoch)


def is_equal(desk: Desk, source: Source) -> bool:
    return content(desk.machine.engine, JOURNAL, 0) == content(source.machine.engine, JOURNAL, 0)
