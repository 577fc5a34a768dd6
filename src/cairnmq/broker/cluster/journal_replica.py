"""One journal that this broker hosts: takes the role that its record in the metadata says, and moves its ends.

What may be acknowledged, appended and cut is decided in cairnmq.replication; files are storage's. This shell carries
what happened to the first, and what follows from it to the second. It runs on the loop thread. A change of role waits
for a write that is under way, so it is made by one task of the journal; everything else is done where it happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Protocol

from msgspec.structs import replace

from cairnmq.broker.cluster.disk_watch import DiskWatch
from cairnmq.broker.cluster.journal_copying import CopyingPorts, JournalCopying
from cairnmq.broker.cluster.replica_state import ReplicaState
from cairnmq.errors import Fault
from cairnmq.os_errors import text_of
from cairnmq.replication.leader import JournalLeader, LeaderSettings
from cairnmq.replication.lease import Lease
from cairnmq.replication.lives import others_have
from cairnmq.replication.messages import Accepted, FetchPosition, FetchReply
from cairnmq.replication.records import ClusterView, JournalRecord, Kept, Member, Proposal, PublishedEnd
from cairnmq.storage.api.serving import WritePath

log = logging.getLogger("cairnmq.broker")

RETRY_SECONDS = 0.2
HEAD_SECONDS = 2.0  # a disk that does not take a segment's head in this time is not one to lead with
REFUSED_SECONDS = 0.05


class Ports(CopyingPorts, Protocol):
    """What a replica needs of the broker around it."""

    settings: LeaderSettings
    session_ms: int

    def me(self) -> Member | None: ...

    def confirmed_ms(self) -> int: ...

    def now_ms(self) -> int: ...

    def propose(self, proposal: Proposal) -> Awaitable[bool]: ...

    def publish(self, journal: int, end: PublishedEnd) -> Awaitable[bool]: ...

    def seen_view(self) -> ClusterView | None: ...

    def whole_again(self, journal: int) -> Awaitable[None]: ...

    def has_news(self, replica: JournalReplica) -> None: ...

    def leads(self, replica: JournalReplica) -> None: ...

    def ready(self, replica: JournalReplica) -> None: ...

    def settled(self, replica: JournalReplica) -> None: ...

    def lost(self, replica: JournalReplica) -> None: ...

    def must_restart(self) -> None: ...


class JournalReplica:
    """`leader` is there while this broker leads, `copying.follower` while it follows."""

    def __init__(self, state: ReplicaState, ports: Ports) -> None:
        self.state = state
        self.copying = JournalCopying(state, ports)
        self.leader: JournalLeader | None = None
        self.lease: Lease | None = None
        self.is_ready = False  # all of earlier epochs is replicated
        self.is_settled = False  # and durable: nothing of it can be taken back any more
        self.disk = DiskWatch(ports.settings.lag_max_ms / 2000)
        self.epoch = 0  # the latest that was seen
        self._ports = ports
        self._kept: Kept | None = None
        self._began: asyncio.Event | None = None  # the head of the epoch that begins is written
        self._published: tuple[int, Member] | None = None  # the epoch without a leader, and the life that told
        self._latest: Proposal | None = None
        self._due = asyncio.Event()
        self._rereads = 0  # of the record, after changes that were proposed
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._take_roles())

    @property
    def number(self) -> int:
        return self.state.number

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """No role any more; storage stays as it is."""
        self._lose()
        self.copying.stop()
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
                self.state.hold_producers(self.leader.room.short(self.leader.members()))
        self._due.set()

    def _lose(self) -> None:
        """Nothing more is acknowledged from here on; storage follows when it can (`_take_role`)."""
        if self.leader is None:
            return
        log.info("journal %d: no longer the leader (epoch %d)", self.number, self.leader.epoch)
        self.leader, self.lease, self.is_ready, self.is_settled = None, None, False, False
        self._ports.lost(self)
        self.state.hold_producers([])  # they go on at once, and must see that it does not lead

    async def _take_roles(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._take_role()
            except (Fault, OSError) as error:
                if self.state.trouble != text_of(error):
                    self.state.trouble = text_of(error)
                    log.error("journal %d: %s", self.number, self.state.trouble)
                await asyncio.sleep(RETRY_SECONDS)
                self._due.set()
            except Exception:
                log.exception("journal %d: its role could not be taken; trying again", self.number)
                await asyncio.sleep(RETRY_SECONDS)
                self._due.set()

    async def _take_role(self) -> None:
        if self.leader is not None:
            return
        state = self.state
        if isinstance(state.path, WritePath):
            await self._step_down(state.path)
        kept, me = self._kept, self._ports.me()
        if kept is None or me is None:
            self.copying.stop()
            return
        record = kept.record
        if record.epoch < self.epoch:
            return
        if record.epoch > self.epoch:
            await self.copying.end_install()
        self.epoch = state.store.engine.epochs[self.number] = record.epoch
        if record.leader == me:
            if state.history.last_epoch < record.epoch:
                await self._lead(kept, me)
            else:  # the disk took the head after all, too late
                await self._give_up(kept, me)
        elif record.leader is None:
            self.copying.stop()
            await self._publish(record, me)
        elif record.leader.broker == me.broker:
            self.copying.stop()  # an earlier life of this broker: the controller elects another
        elif _can_be_cut(self.state, record, me, self._ports.seen_view()):
            log.error("journal %d: this broker starts again, to copy the bytes it lost from others", self.number)
            self._ports.must_restart()
        else:
            self.copying.follow(record, record.leader, me)
        if record.member(me.broker) == me:
            await self._ports.whole_again(self.number)

    async def _step_down(self, path: WritePath) -> None:
        """Storage follows. The head of the epoch may be there although nobody waited for it any longer."""
        await self.state.store.follow(self.number, self._why_not())
        history, journal = self.state.history, path.journal
        if history.end <= path.epoch_start < journal.end:
            history.begin(journal.epoch, path.epoch_start)
        history.extend(journal.end)

    def _why_not(self) -> str:
        leader = self._kept.record.leader if self._kept is not None else None
        return f"journal {self.number}: " + (f"broker {leader.broker} leads it" if leader else "it has no leader now")

    async def _publish(self, record: JournalRecord, me: Member) -> None:
        """The journal has no leader: tell how far this replica reaches (R21). Out of sync too while nobody in sync is
        there: a person may have to choose. Not one that is damaged and was not cut there: it cannot lead."""
        state = self.state
        if self._published == (record.epoch, me) or state.store.engine.scans[self.number].damage is not None:
            return
        view = self._ports.seen_view()
        if record.member(me.broker) is None and (view is None or any(map(view.is_live, record.isr))):
            return
        await self.copying.idle()
        await state.loop.quiesce()
        end = PublishedEnd(record.epoch, state.history.last_epoch, state.history.end)
        if await self._ports.publish(self.number, end):
            self._published = record.epoch, me

    # ----------------------------------------------------------------------------------------------------- leading

    async def _lead(self, elected: Kept, me: Member) -> None:
        """The head of the epoch's first segment is written at once; until then this broker does not lead."""
        self.copying.stop()
        state, epoch = self.state, elected.record.epoch
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                path = await self._begun(epoch)
        except TimeoutError:
            await self._give_up(elected, me)
            if state.store.engine.scans[self.number].damage is not None:
                log.error("journal %d: this broker starts again, to continue without the bytes it lost", self.number)
                self._ports.must_restart()
            raise Fault(f"journal {self.number}: elected, and the disk takes no writes") from None
        except (Fault, OSError):  # the journal cannot be folded
            await self._give_up(elected, me)
            raise
        if path is None:  # the journal has queues that the metadata here do not know yet
            await self.copying.wait_for_leader()
            self._due.set()
            return
        start = path.epoch_start
        state.history.begin(epoch, start)
        state.history.extend(path.journal.end)
        kept = self._kept
        if kept is None or kept.record.epoch != epoch or kept.record.leader != me or self._ports.me() != me:
            self._due.set()  # it is over already: back to following
            return
        self.lease = Lease(self._ports.session_ms, self._ports.confirmed_ms())
        self.leader = JournalLeader(
            me,
            kept,
            state.history,
            start=start,
            synced=path.journal.synced,
            replicated_end=path.journal.replicated_end,
            durable_end=path.journal.durable_end,
            now_ms=self._ports.now_ms(),
            first=path.journal.start,
            settings=self._ports.settings,
        )
        self.leader.durable_wanted = path.journal.end  # coordinators wait for it
        state.trouble = ""
        log.info("journal %d: leader from position %d (epoch %d)", self.number, start, epoch)
        self._ports.leads(self)
        state.loop.sync()
        self._advance()

    async def _begun(self, epoch: int) -> WritePath | None:
        """The head of the epoch is written. It may take as long as the disk hangs or refuses."""
        state = self.state
        await self.copying.idle()
        while (path := await state.store.lead(self.number, epoch)) is None:
            if state.path.stopped is None:
                return None
            await asyncio.sleep(REFUSED_SECONDS)
        self._began = asyncio.Event()
        state.loop.staged()
        try:
            await self._began.wait()
        finally:
            self._began = None
        return path

    async def _give_up(self, elected: Kept, me: Member) -> None:
        """Elected, and somebody else should be. Tried again until the record is another one."""
        record = replace(elected.record, leader=None, resigned=me.broker)
        if not await self._ports.propose(Proposal(record, elected.revision, (me,))):
            await self.copying.wait_for_leader()
            self._due.set()

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
            self.state.history.extend(self.state.path.journal.end)
            self.leader.written()
            self._advance()
            self._ports.has_news(self)

    def synced(self) -> None:
        """The own disk has more."""
        end = self.state.path.journal.synced
        if self.leader is not None:
            if end > self.leader.synced:
                self.leader.synced_to(min(end, self.state.history.end))
            self._advance()
        else:
            self.copying.synced_to(end)

    def asked(self, asked: FetchPosition, view: ClusterView) -> FetchReply | None:
        """A follower's request; None if this broker does not lead."""
        leader, path = self.leader, self.state.path
        if leader is None or not isinstance(path, WritePath):
            return None
        self._tell_room(leader)
        leader.durable_wanted = max(leader.durable_wanted, path.lines.durable_wanted)
        reply = leader.fetched(asked, view, self._ports.now_ms())
        if isinstance(reply, Accepted):
            if self.lease is not None and asked.echo_ms and asked.follower in leader.record.isr:
                self.lease.confirm(asked.echo_ms)
            self._advance()
            self.state.hold_producers(leader.room.short(leader.members()))
        return reply

    def _tell_room(self, leader: JournalLeader) -> None:
        """What the core must know of the own storage, and of those who wait for others'."""
        store = self.state.store
        leader.first = self.state.path.journal.start
        leader.room.checkpointed = store.engine.checkpointed[self.number]
        leader.room.producers_wait = store.backlog.waits_for_followers(self.number)

    def _advance(self) -> None:
        """What the ends mean to storage: who waits is told, readers see more."""
        leader, path, state = self.leader, self.state.path, self.state
        if leader is None or not isinstance(path, WritePath):
            return
        journal = path.journal
        if leader.followers.have_readers and leader.replicated_end + leader.durable_end > (
            journal.replicated_end + journal.durable_end
        ):
            self._ports.has_news(self)
        more = path.replicated_to(leader.replicated_end) if leader.replicated_end > journal.replicated_end else []
        if leader.durable_end > journal.durable_end:
            more += path.durable_to(leader.durable_end)
        state.known = state.known.learned(leader.replicated_end, leader.durable_end, leader.epoch)
        state.store.advanced(more)
        if leader.ready and not self.is_ready:
            self.is_ready = True
            self._ports.ready(self)
        if leader.durable_end > leader.start and not self.is_settled:
            self.is_settled = True
            self._ports.settled(self)

    def look_after(self, view: ClusterView) -> None:
        """Now and then: a leader's proposal, and syncs that somebody waits for."""
        leader = self.leader
        if leader is None:
            return
        now_ms = self._ports.now_ms()
        if self.lease is not None:
            self.lease.confirm(self._ports.confirmed_ms())
        self._tell_room(leader)
        me, store = leader.me.broker, self.state.store
        store.keep(self.number, leader.room.needed_from(leader.record.replicas, me, leader.first))
        if not self._rereads:
            self._send(leader, leader.propose(view, now_ms))
        wanted = leader.sync_wanted(view, now_ms)
        if self.state.path.journal.synced < wanted:
            self.state.loop.sync()
        if leader.durable_end < wanted:
            self._ports.has_news(self)  # a member has to sync, and may not know yet

    def admit_weak(self) -> None:
        """To be done before the first acks=all that does not wait for a sync."""
        if self.leader is not None:
            self._send(self.leader, self.leader.admit_weak())

    def resign(self) -> None:
        """The disk hangs or refuses, and another member is in sync."""
        if self.leader is not None:
            self._send(self.leader, self.leader.resign())

    def _send(self, leader: JournalLeader, proposal: Proposal | None) -> None:
        if proposal is not None:
            self._latest = proposal
            self._spawn(self._proposed(leader, proposal))

    async def _proposed(self, leader: JournalLeader, proposal: Proposal) -> None:
        """Both sets of members count until it is known what became of it. What was certainly not made stops counting at
        once, also while the store is away; but nothing else is proposed before the record is read again."""
        is_refused = is_read = False
        try:
            is_refused = not await self._ports.propose(proposal)
        except Fault as fault:
            log.warning("journal %d: a change of its record: %s", self.number, fault)
        self._rereads += 1
        try:
            while self.leader is leader:
                if (is_refused or is_read) and self._latest is proposal and leader.in_flight:
                    leader.refused()
                    self._advance()
                    self._ports.has_news(self)
                if is_read:
                    break
                try:
                    await self._ports.reread()
                    is_read = True
                except Fault:
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._rereads -= 1


def _can_be_cut(state: ReplicaState, record: JournalRecord, me: Member, view: ClusterView | None) -> bool:
    """The start left it as it was, because no other replica had what it lacks. By now one leads that has."""
    is_damaged = state.store.engine.scans[state.number].damage is not None
    return is_damaged and view is not None and others_have(record, me.broker, view)
