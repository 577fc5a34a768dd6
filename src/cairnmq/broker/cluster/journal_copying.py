"""A follower's side of one journal: what its leader told is appended, cut or left, as the core says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from cairnmq.broker.cluster.replica_state import ReplicaState
from cairnmq.errors import Corrupt, Fault
from cairnmq.replication.follower import Append, Cut, FollowerStep, Install, JournalFollower, Reread, Stop
from cairnmq.replication.messages import Accepted, FetchPosition, FetchReply
from cairnmq.replication.records import JournalRecord, Member
from cairnmq.storage.api.serving import Copy, FollowPath, MustReopen
from cairnmq.wire.internal import RAW_BYTES_MAX

log = logging.getLogger("cairnmq.broker")

RETRY_SECONDS = 0.05
PIECE_BYTES = 4 << 20  # asked for at once, unless an entry is larger
PIECE_BYTES_MAX = RAW_BYTES_MAX
FRUITLESS_MAX = (
    20  # replies with bytes at one position of which none is a whole entry: more than it takes to ask for all
)
OUT = "this replica parts from its leader below what was replicated, and a person must decide: the log says where"


def _nobody_asks() -> None:
    """There is no link."""


class Installs(Protocol):
    """Who takes journals over from their leaders."""

    def want(self, copying: JournalCopying, me: Member, record: JournalRecord, beyond: int = -1) -> None: ...

    def end(self, journal: int) -> Awaitable[None]: ...


class CopyingPorts(Protocol):
    """What a follower needs of the broker around it."""

    def wall_ms(self) -> int: ...

    def must_restart(self) -> None: ...

    def reread(self) -> Awaitable[None]: ...

    def follow(self, copying: JournalCopying, leader: int) -> None: ...

    def unfollow(self, copying: JournalCopying) -> None: ...

    @property
    def installer(self) -> Installs: ...


class JournalCopying:
    """`follower` is None while this replica follows nobody. `wake` is called when it may be asked for again; whoever
    asks sets it. `piece_bytes`: room for at least one entry."""

    def __init__(self, state: ReplicaState, ports: CopyingPorts) -> None:
        self.state = state
        self.follower: JournalFollower | None = None
        self.wake: Callable[[], None] = _nobody_asks
        self.piece_bytes = PIECE_BYTES
        self._ports = ports
        self._taking = asyncio.Lock()
        self._held = 0
        self._out_in = -1  # the epoch in which this replica cannot go on by itself
        self._is_installing = False
        self._fruitless = 0

    @property
    def number(self) -> int:
        return self.state.number

    @property
    def is_busy(self) -> bool:
        """What it would ask for now may be wrong in a moment, or was refused a moment ago."""
        return self._held > 0

    def hold(self) -> None:
        """Not to be asked for, until as many calls of `release`."""
        self._held += 1

    def release(self) -> None:
        """By now it may follow another leader than the one whose reply was taken: that one's link must hear of it."""
        self._held -= 1
        if not self._held:
            self.wake()

    def follow(self, record: JournalRecord, leader: Member, me: Member) -> None:
        """From here on."""
        known = self.follower
        if record.epoch == self._out_in:
            return
        if known is not None and known.record.epoch == record.epoch and known.me == me:
            return
        state = self.state
        synced = state.path.journal.synced
        self.follower = JournalFollower(me, record, state.history, synced=synced, known=state.known)
        self._fruitless = 0
        self._ports.follow(self, leader.broker)

    async def end_install(self) -> None:
        """The journal has another epoch: what this replica took over from its leader is not wanted any more. Before it
        follows or leads again."""
        if self._is_installing:
            await self._ports.installer.end(self.number)
            self._is_installing = False

    def stop(self) -> None:
        """Follow nobody. What has arrived is still taken to its end."""
        if self.follower is not None:
            self.follower = None
            self._ports.unfollow(self)

    async def idle(self) -> None:
        """After `stop`: until nothing more is appended or cut."""
        async with self._taking:
            pass

    def synced_to(self, end: int) -> None:
        """The own disk has everything up to here."""
        if self.follower is not None:
            self.follower.synced_to(end)

    async def wait_for_leader(self) -> None:
        """The broker that should lead says that it does not: the metadata there or here are older."""
        await self._ports.reread()
        await asyncio.sleep(RETRY_SECONDS)

    async def replied(self, asked: FetchPosition, reply: FetchReply, data: memoryview) -> bool:
        """What the leader told, and its bytes from the own end on, which are free again when this returns. One at a
        time: what a reply is about is known only when the one before has been taken. False: `wait_for_leader`."""
        async with self._taking:
            return not isinstance(await self._take(asked, reply, data), Reread)

    async def _take(self, asked: FetchPosition, reply: FetchReply, data: memoryview) -> FollowerStep | None:
        follower = self.follower
        if follower is None or asked.follower != follower.me:
            return None
        step = follower.replied(asked, reply)
        if isinstance(step, Append) and isinstance(reply, Accepted):
            await self._append(follower, asked, reply, data, step.sync)
        elif isinstance(step, Cut):
            await self._cut(follower, step.to)
        elif isinstance(step, Install):
            self._install(follower, f"its leader's journal begins at {step.first}, after its own end {asked.end}")
        elif isinstance(step, Stop):
            self._stay_out(follower, step.reason)
        return step

    def _install(self, follower: JournalFollower, reason: str, beyond: int = -1) -> None:
        """This replica follows again in another epoch, or when the broker has started with what it took over. `beyond`:
        only a checkpoint behind this position helps."""
        log.warning("journal %d: this replica cannot be copied on: %s", self.number, reason)
        self._out_in = follower.record.epoch
        self._is_installing = True
        self.stop()
        self._ports.installer.want(self, follower.me, follower.record, beyond)

    async def _append(
        self, follower: JournalFollower, asked: FetchPosition, reply: Accepted, data: memoryview, sync: bool
    ) -> None:
        state = self.state
        path, loop, history = state.path, state.loop, state.history
        assert isinstance(path, FollowPath) and path.journal.end == history.end
        if path.stopped is not None:
            raise Fault(path.stopped)
        now_ms = self._ports.wall_ms()
        copy = self._whole_entries(path, data, follower.record.epoch, now_ms) if len(data) else None
        if self._fruitless >= FRUITLESS_MAX:
            self._install(follower, f"what its leader has from position {history.end} on is damaged", history.end)
            return
        if copy is not None:
            try:
                await loop.append(copy)
            finally:
                for group, epoch in copy.groups[: copy.done]:
                    history.begin(epoch, group.start)
                    history.extend(group.end)
        if self.follower is not follower:
            return
        follower.appended(reply)
        state.known = follower.known
        state.store.keep(self.number, reply.keep_from)
        state.store.advanced(path.replicated_to(state.known.replicated, state.known.durable, now_ms))
        follower.shows(asked, reply, path.folded_end)
        if sync:
            loop.sync_soon()

    def _whole_entries(self, path: FollowPath, data: memoryview, epoch: int, now_ms: int) -> Copy | None:
        """None: not one, perhaps because it is larger than what was asked for."""
        self._fruitless += 1
        try:
            copy = path.take(data, epoch, now_ms)
        except Corrupt:
            if self._fruitless < FRUITLESS_MAX:
                raise
            return None
        if copy is not None:
            self.piece_bytes, self._fruitless = PIECE_BYTES, 0
        else:
            self.piece_bytes = min(2 * self.piece_bytes, PIECE_BYTES_MAX)
        return copy

    async def _cut(self, follower: JournalFollower, to: int) -> None:
        state = self.state
        if to < state.split_end:
            why = f"its queue logs have records from position {to} on that the leader lacks"
            if follower.record.unclean > follower.known.epoch:  # a person has given them up
                self._install(follower, why)
            else:
                self._stay_out(follower, why)
            return
        before = max((epoch for epoch, start in state.history.starts() if start < to), default=0)
        log.warning(
            "journal %d: cut from %d to %d, where it parts from that of its leader (epoch %d)",
            self.number,
            state.history.end,
            to,
            follower.record.epoch,
        )
        try:
            await state.loop.cut(to, before, follower.record.epoch)
        except MustReopen as reason:
            # Its members lost power together, and another one leads: live state is that of more than is left.
            log.error("%s", reason)
            self._stay_out(follower, str(reason))
            self._ports.must_restart()
            return
        follower.was_cut(to)
        state.known = follower.known
        if self.follower is not None:  # of another epoch by now, perhaps
            self.follower.was_cut(to)

    def _stay_out(self, follower: JournalFollower, reason: str) -> None:
        self.state.trouble = OUT
        log.error("journal %d: %s: %s", self.number, OUT, reason)
        self._out_in = follower.record.epoch
        self.stop()
