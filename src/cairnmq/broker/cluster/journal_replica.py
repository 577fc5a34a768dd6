"""One journal that this broker hosts: takes the role that its record in the metadata says, and moves its ends.

What may be acknowledged, appended and cut is decided in cairnmq.replication; files are storage's. This shell carries
what happened to the first, and what follows from it to the second. It runs on the loop thread. A change of role waits
for a write that is under way, so it is made by one task of the journal; everything else is done where it happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from cairnmq.errors import Fault
from cairnmq.os_errors import text_of
from cairnmq.replication.follower import Append, Cut, JournalFollower, KnownEnds, Reread, Stop
from cairnmq.replication.history import EpochHistory
from cairnmq.replication.leader import JournalLeader, LeaderSettings
from cairnmq.replication.lease import Lease
from cairnmq.replication.messages import Accepted, FetchPosition, FetchReply
from cairnmq.replication.records import ClusterView, JournalRecord, Kept, Member, Proposal, PublishedEnd
from cairnmq.storage.api.serving import FollowPath, WritePath

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.store import Store

log = logging.getLogger("cairnmq.broker")

RETRY_SECONDS = 0.2
HEAD_SECONDS = 2.0  # a disk that does not take a segment's head in this time is not one to lead with


class Ports(Protocol):
    """What a replica needs of the broker around it (`Replicas`)."""

    settings: LeaderSettings
    session_ms: int

    def me(self) -> Member | None: ...

    def confirmed_ms(self) -> int: ...

    def now_ms(self) -> int: ...

    def wall_ms(self) -> int: ...

    def propose(self, proposal: Proposal) -> Awaitable[bool]: ...

    def publish(self, journal: int, end: PublishedEnd) -> Awaitable[bool]: ...

    def whole_again(self, journal: int) -> Awaitable[None]: ...

    def reread(self) -> Awaitable[None]: ...

    def follow(self, replica: JournalReplica, leader: int) -> None: ...

    def unfollow(self, replica: JournalReplica) -> None: ...

    def progressed(self, replica: JournalReplica) -> None: ...

    def has_news(self, replica: JournalReplica) -> None: ...

    def leads(self, replica: JournalReplica) -> None: ...

    def ready(self, replica: JournalReplica) -> None: ...

    def lost(self, replica: JournalReplica) -> None: ...


class JournalReplica:
    """`known`: the ends that this replica knows, and the epoch in which it learned them."""

    def __init__(self, number: int, store: Store, ports: Ports, known: KnownEnds) -> None:
        self.number = number
        self.leader: JournalLeader | None = None
        self.follower: JournalFollower | None = None
        self.lease: Lease | None = None
        self.known = known
        self.epoch = 0  # the latest that was seen
        self.trouble = ""  # why this replica stays out; for a person
        self.stopped_at: float | None = None  # since when the disk refuses what this leader writes
        self.coordinates = False  # coordinators of its slots are loaded
        self.noted: KnownEnds | None = None  # what was noted down last
        self.is_busy = False  # something is on its way to the disk: what is asked for would be asked twice
        self._store = store
        self._ports = ports
        starts, end = store.engine.histories(number)
        self.history = EpochHistory(starts, end)
        self._kept: Kept | None = None
        self._began: asyncio.Event | None = None  # the head of the epoch that begins is written
        self.is_ready = False
        self._published = -1
        self._out_in = -1  # the epoch in which this replica cannot go on by itself
        self._taking = asyncio.Lock()
        self._due = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._proposing = False
        self._role = self._spawn(self._take_roles())

    @property
    def path(self) -> WritePath | FollowPath:
        """Of storage, in the role of now."""
        return self._store.engine.paths[self.number]

    @property
    def told_trouble(self) -> str | None:
        """For a person; None: all is well."""
        return self.trouble or self.path.stopped or None

    @property
    def is_damaged(self) -> bool:
        """The own disk lacks bytes that it has had."""
        return self._store.engine.scans[self.number].damage is not None

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """No role any more; storage stays as it is."""
        self._lose()
        self.follower = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------ what the store says

    def see(self, kept: Kept | None) -> None:
        """The journal's record as it is now, perhaps in a new life of this broker."""
        self._kept = kept
        if self.leader is not None:
            if kept is None or self._ports.me() != self.leader.me or not self.leader.seen(kept):
                self._lose()
            else:
                self._advance()
        self._due.set()

    def _lose(self) -> None:
        """Nothing more is acknowledged from here on; storage follows when it can (`_take_role`)."""
        if self.leader is None:
            return
        log.info("journal %d: this broker leads it no more (epoch %d)", self.number, self.leader.epoch)
        self.leader, self.lease, self.is_ready = None, None, False
        self._ports.lost(self)

    async def _take_roles(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._take_role()
                self.trouble = ""
            except (Fault, OSError) as error:
                if self.trouble != text_of(error):
                    self.trouble = text_of(error)
                    log.error("journal %d: %s", self.number, self.trouble)
                await asyncio.sleep(RETRY_SECONDS)
                self._due.set()

    async def _take_role(self) -> None:
        if self.leader is not None:
            return
        if isinstance(self.path, WritePath):
            await self._store.follow(self.number, self._why_not())
            self.history.extend(self.path.journal.end)
        kept, me = self._kept, self._ports.me()
        if kept is None or me is None:
            self._stand_still()
            return
        record = kept.record
        if record.epoch < self.epoch:
            return
        self.epoch = record.epoch
        self._store.engine.epochs[self.number] = record.epoch
        if record.leader == me:
            if self.history.last_epoch < record.epoch:
                await self._lead(kept, me)
        elif record.leader is None:
            self._stand_still()
            await self._publish(record, me)
        elif record.leader.broker == me.broker:
            self._stand_still()  # an earlier life of this broker: the controller elects another
        elif record.epoch != self._out_in:
            self._follow(record, record.leader, me)
        if record.member(me.broker) == me:
            await self._ports.whole_again(self.number)

    def _why_not(self) -> str:
        leader = self._kept.record.leader if self._kept is not None else None
        return f"journal {self.number}: " + (f"broker {leader.broker} leads it" if leader else "nobody leads it now")

    def _stand_still(self) -> None:
        if self.follower is not None:
            self.follower = None
            self._ports.unfollow(self)

    # ----------------------------------------------------------------------------------------------------- leading

    async def _lead(self, elected: Kept, me: Member) -> None:
        """The head of the epoch's first segment is written at once; until then this broker does not lead."""
        self._stand_still()
        epoch = elected.record.epoch
        path = await self._store.lead(self.number, epoch)
        if path is None:  # the journal has queues that the metadata here do not know yet
            await self._ports.reread()
            self._due.set()
            await asyncio.sleep(RETRY_SECONDS)
            return
        start = path.journal.end
        try:
            await self._head_written()
        except TimeoutError:
            record = replace(elected.record, leader=None, resigned=me.broker)
            await self._ports.propose(Proposal(record, elected.revision, (me,)))
            raise Fault(f"journal {self.number}: elected, and the disk takes no writes") from None
        self.history.begin(epoch, start)
        self.history.extend(path.journal.end)
        kept = self._kept
        if kept is None or kept.record.epoch != epoch or kept.record.leader != me or self._ports.me() != me:
            self._due.set()  # it is over already: back to following
            return
        now_ms = self._ports.now_ms()
        self.lease = Lease(self._ports.session_ms, self._ports.confirmed_ms())
        self.leader = JournalLeader(
            me,
            kept,
            self.history,
            start=start,
            synced=path.journal.synced,
            replicated_end=path.journal.replicated_end,
            durable_end=path.journal.durable_end,
            now_ms=now_ms,
            first=path.journal.start,
            settings=self._ports.settings,
        )
        log.info("journal %d: this broker leads it from position %d on (epoch %d)", self.number, start, epoch)
        self._ports.leads(self)
        self._store.loops[self.number].sync()
        self._advance()

    async def _head_written(self) -> None:
        self._began = asyncio.Event()
        self._store.loops[self.number].staged()
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                await self._began.wait()
        finally:
            self._began = None

    def may_answer_alone(self) -> bool:
        """acks=1 and acks=0: nobody else can be leading now, or the harm is bounded by the lease (R18)."""
        leader, lease = self.leader, self.lease
        if leader is None or lease is None:
            return False
        return leader.members() == {leader.me} or lease.holds(self._ports.now_ms())

    def written(self) -> None:
        """A group of the own journal is in the page cache."""
        if self._began is not None:
            self._began.set()
        elif self.leader is not None:
            self.history.extend(self.path.journal.end)
            self.leader.written()
            self._advance()
            self._ports.has_news(self)

    def synced(self) -> None:
        """The own disk has more."""
        end = self.path.journal.synced
        if self.leader is not None:
            if end > self.leader.synced:
                self.leader.synced_to(min(end, self.history.end))
            self._advance()
        elif self.follower is not None:
            self.follower.synced_to(end)
            self._ports.progressed(self)

    def asked(self, asked: FetchPosition, view: ClusterView) -> FetchReply | None:
        """A follower's request; None if this broker does not lead."""
        leader = self.leader
        if leader is None:
            return None
        leader.first = self.path.journal.start
        leader.durable_wanted = max(leader.durable_wanted, self.path.lines.durable_wanted)  # type: ignore[union-attr]
        reply = leader.fetched(asked, view, self._ports.now_ms())
        if isinstance(reply, Accepted):
            if self.lease is not None and asked.echo_ms and asked.follower in leader.record.isr:
                self.lease.confirm(asked.echo_ms)
            self._advance()
        return reply

    def _advance(self) -> None:
        """What the ends mean to storage: who waits is told, readers see more."""
        leader, path = self.leader, self.path
        if leader is None or not isinstance(path, WritePath):
            return
        journal = path.journal
        more = path.replicated_to(leader.replicated_end) if leader.replicated_end > journal.replicated_end else []
        if leader.durable_end > journal.durable_end:
            more += path.durable_to(leader.durable_end)
        self.known = self.known.learned(leader.replicated_end, leader.durable_end, leader.epoch)
        self._store.advanced(more)
        if leader.ready and not self.is_ready:
            self.is_ready = True
            self._ports.ready(self)

    def look_after(self, view: ClusterView) -> None:
        """Now and then: a leader's proposal, and syncs that somebody waits for."""
        leader = self.leader
        if leader is None:
            return
        now_ms = self._ports.now_ms()
        if self.lease is not None:
            self.lease.confirm(self._ports.confirmed_ms())
        if not self._proposing:
            proposal = leader.propose(view, now_ms)
            if proposal is not None:
                self._send(leader, proposal)
        if self.path.journal.synced < leader.sync_wanted(view, now_ms):
            self._store.loops[self.number].sync()
            self._ports.has_news(self)

    def admit_weak(self) -> None:
        """To be done before the first acks=all that does not wait for a sync."""
        if self.leader is not None and not self._proposing:
            proposal = self.leader.admit_weak()
            if proposal is not None:
                self._send(self.leader, proposal)

    def resign(self) -> None:
        """The disk hangs or refuses, and another member is in sync."""
        if self.leader is not None and not self._proposing:
            proposal = self.leader.resign()
            if proposal is not None:
                self._send(self.leader, proposal)

    def _send(self, leader: JournalLeader, proposal: Proposal) -> None:
        self._proposing = True
        self._spawn(self._proposed(leader, proposal))

    async def _proposed(self, leader: JournalLeader, proposal: Proposal) -> None:
        """Both sets of members count until it is known what became of it."""
        try:
            made = await self._ports.propose(proposal)
        finally:
            self._proposing = False
        if self.leader is leader and not made:
            leader.refused()
        await self._ports.reread()

    # --------------------------------------------------------------------------------------------------- following

    def _follow(self, record: JournalRecord, leader: Member, me: Member) -> None:
        known = self.follower
        if known is not None and known.record.epoch == record.epoch and known.me == me:
            return
        journal = self.path.journal
        self.follower = JournalFollower(me, record, self.history, synced=journal.synced, known=self.known)
        self._ports.follow(self, leader.broker)

    async def replied(self, asked: FetchPosition, reply: FetchReply, data: memoryview) -> None:
        """What the leader told, and its bytes from the own end on, which are free again when this returns. One at a
        time: what a reply is about is known only when the one before has been taken."""
        async with self._taking:
            await self._take(asked, reply, data)

    async def _take(self, asked: FetchPosition, reply: FetchReply, data: memoryview) -> None:
        follower = self.follower
        if follower is None or asked.follower != follower.me:
            return
        step = follower.replied(asked, reply)
        if isinstance(step, Append) and isinstance(reply, Accepted):
            await self._append(follower, reply, data, step.sync)
        elif isinstance(step, Cut):
            await self._cut(follower, step.to)
        elif isinstance(step, Stop):
            self._stay_out(follower, step.reason)
        elif isinstance(step, Reread):
            await self._ports.reread()
            await asyncio.sleep(RETRY_SECONDS)

    async def wait_for_leader(self) -> None:
        """The broker that should lead says that it does not: the metadata there or here are older."""
        await self._ports.reread()
        await asyncio.sleep(RETRY_SECONDS)

    async def _append(self, follower: JournalFollower, reply: Accepted, data: memoryview, sync: bool) -> None:
        path, loop = self.path, self._store.loops[self.number]
        assert isinstance(path, FollowPath) and path.journal.end == self.history.end
        if path.stopped is not None:
            raise Fault(path.stopped)
        now_ms = self._ports.wall_ms()
        copy = path.take(data, follower.record.epoch, now_ms) if len(data) else None
        if copy is not None:
            try:
                await loop.append(copy)
            finally:
                for group, epoch in copy.groups[: copy.done]:
                    self.history.begin(epoch, group.start)
                    self.history.extend(group.end)
        if self.follower is not follower:
            return
        follower.appended(reply)
        self.known = follower.known
        self._store.advanced(path.replicated_to(self.known.replicated, self.known.durable, now_ms))
        if sync:
            loop.sync()

    async def _cut(self, follower: JournalFollower, to: int) -> None:
        if to < self._store.engine.split[self.number]:
            self._stay_out(follower, f"its queue logs have records from position {to} on that the leader lacks")
            return
        before = max((epoch for epoch, start in self.history.starts() if start < to), default=0)
        log.warning(
            "journal %d: cut from %d to %d, where it parts from that of its leader (epoch %d)",
            self.number,
            self.history.end,
            to,
            follower.record.epoch,
        )
        await self._store.loops[self.number].cut(to, before, follower.record.epoch)
        follower.was_cut(to)
        self.known = follower.known

    def _stay_out(self, follower: JournalFollower, reason: str) -> None:
        self.trouble = f"journal {self.number}: this replica cannot go on by itself: {reason}"
        log.error("%s", self.trouble)
        self._out_in = follower.record.epoch
        self._stand_still()

    async def _publish(self, record: JournalRecord, me: Member) -> None:
        """The journal has no leader: tell how far this replica reaches (R21)."""
        if self._published == record.epoch or record.member(me.broker) is None:
            return
        await self._store.loops[self.number].quiesce()
        end = PublishedEnd(record.epoch, self.history.last_epoch, self.history.end)
        if await self._ports.publish(self.number, end):
            self._published = record.epoch
