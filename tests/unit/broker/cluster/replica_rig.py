"""One journal's replica on real storage, with the metadata and the other brokers played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from cairnmq.broker.clocks import wall_ms
from cairnmq.broker.cluster.fetchers import Fetchers
from cairnmq.broker.cluster.journal_copying import JournalCopying
from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.cluster.replica_state import ReplicaState
from cairnmq.replication.leader import LeaderSettings
from cairnmq.replication.messages import FetchPosition
from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member, Proposal, PublishedEnd
from unit.broker.rig import until
from unit.broker.storage_loop.stored_broker import Broker

ME, OTHER, THIRD = Member(1, 11), Member(2, 12), Member(3, 13)
JOURNAL = 4


def record(leader: Member | None, epoch: int, *isr: Member) -> JournalRecord:
    return JournalRecord(JOURNAL, (1, 2, 3), leader, epoch, isr)


def view(kept: Kept, *live: Member) -> ClusterView:
    brokers = {one.broker: BrokerRecord(one.broker, one.broker_epoch) for one in live}
    return ClusterView(
        kept.revision,
        kept.record.epoch,
        {JOURNAL: kept},
        brokers,
        {one.broker: one.broker_epoch for one in live},
    )


class Ports:
    """The broker around a replica. A proposal waits until the test gives it an outcome, a look at the store too if
    `holds_looks`."""

    def __init__(self, fetchers: Fetchers) -> None:
        self.settings = LeaderSettings()
        self.session_ms = 6000
        self.member: Member | None = ME
        self.clock_ms = 1000
        self.proposed: list[tuple[Proposal, asyncio.Future[bool]]] = []
        self.published: list[PublishedEnd] = []
        self.looks: list[asyncio.Future[None]] = []
        self.holds_looks = False
        self.on_look: Callable[[], None] = lambda: None
        self.fetchers = fetchers
        self.losses = 0

    def me(self) -> Member | None:
        return self.member

    def confirmed_ms(self) -> int:
        return self.clock_ms

    def now_ms(self) -> int:
        return self.clock_ms

    def wall_ms(self) -> int:
        return wall_ms()

    def propose(self, proposal: Proposal) -> Awaitable[bool]:
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.proposed.append((proposal, outcome))
        return outcome

    async def publish(self, journal: int, end: PublishedEnd) -> bool:
        self.published.append(end)
        return True

    async def whole_again(self, journal: int) -> None:
        """Nothing was damaged."""

    async def reread(self) -> None:
        self.on_look()
        if self.holds_looks:
            look: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.looks.append(look)
            await look

    def has_news(self, replica: JournalReplica) -> None:
        """Nobody is parked."""

    def leads(self, replica: JournalReplica) -> None:
        """Handlers are not here."""

    def ready(self, replica: JournalReplica) -> None:
        """Coordinators are not here."""

    def lost(self, replica: JournalReplica) -> None:
        self.losses += 1

    def follow(self, copying: JournalCopying, leader: int) -> None:
        self.fetchers.follow(copying, leader)

    def unfollow(self, copying: JournalCopying) -> None:
        self.fetchers.unfollow(copying)

    def must_restart(self) -> None:
        raise AssertionError


class OneReplica:
    """Broker 1 has journal 4, which brokers 2 and 3 have too."""

    def __init__(self, tmp_path: Path, journal: int = JOURNAL, fetchers: Fetchers | None = None) -> None:
        self.broker = Broker(1, tmp_path / str(journal), life=ME.broker_epoch, journals=[journal])
        self.ports = Ports(fetchers or Fetchers(lambda journal: 0))
        self.kept = Kept(record(None, 1), 1)
        state = ReplicaState.found(journal, self.broker.store, self.kept.record)
        self.replica = JournalReplica(state, self.ports)
        self.broker.store.observe(self)

    def written(self, journal: int) -> None:
        self.replica.written()

    def synced(self, journal: int, end: int) -> None:
        self.replica.synced()

    def see(self, new: JournalRecord) -> Kept:
        """The metadata say so now."""
        self.kept = Kept(new, self.kept.revision + 1)
        self.replica.see(self.kept)
        return self.kept

    async def lead(self, epoch: int, *isr: Member) -> None:
        self.see(record(ME, epoch, ME, *isr))
        await until(lambda: self.replica.leader is not None)

    def hear(self, follower: Member, *live: Member, end: int | None = None) -> None:
        """A follower's request; it has all, or everything up to `end`."""
        leader = self.replica.leader
        assert leader is not None
        at = leader.history.end if end is None else end
        asked = FetchPosition(follower, leader.epoch, at, leader.history.last_epoch, at)
        self.replica.asked(asked, view(self.kept, ME, *live))

    async def close(self) -> None:
        await self.replica.close()
        await self.broker.store.stop()
