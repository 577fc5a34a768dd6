"""A journal's loop in a cluster: this broker leads the journal or follows, and changes sides between two writes.

A leader's path gets its bytes from handlers, a follower's from its leader (`append`). All else is `JournalLoop`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Protocol

from cairnmq.broker.storage_loop.journal_loop import JournalLoop
from cairnmq.storage.api.serving import Copy, FollowPath, JournalRole, Write

SYNC_PAUSE_SECONDS = 0.005  # between looks whether enough files are closed
REWRITE_PAUSE_SECONDS = 0.05  # before a follower asks again for what could not be written


class JournalObserver(Protocol):
    """Who drives the journals of a cluster: hears what has reached the own disk."""

    def written(self, journal: int) -> None:
        """A group is in the page cache."""

    def synced(self, journal: int, end: int) -> None:
        """Everything before `end` is on the disk."""


class ReplicaLoop(JournalLoop):
    """One node has it too: there nobody observes, and the path stays the one that it is."""

    observer: JournalObserver | None = None
    _copied: asyncio.Future[bool] | None = None  # hears what became of a follower's write

    @cached_property
    def _noting(self) -> asyncio.Lock:
        return asyncio.Lock()

    @cached_property
    def _over(self) -> asyncio.Event:
        """A write or a sync is over."""
        return asyncio.Event()

    # ---------------------------------------------------------------------------------------------------- both sides

    async def quiesce(self) -> None:
        """Until no write is under way; none begins before the caller gives up his turn of the loop."""
        while self._writing:
            self._over.clear()
            await self._over.wait()

    def swap(self, path: JournalRole) -> None:
        """This broker has the other side in the journal now, in the turn in which nothing is written."""
        assert not self._writing and path.journal is self.path.journal
        self.path = path
        self.staged()  # a new leader's head is written at once

    def _flush(self) -> None:
        if self.path.leads:
            super()._flush()
        else:
            self._flush_due = False

    def _threaded(self, write: Write | Copy, done: asyncio.Future[None]) -> None:
        super()._threaded(write, done)
        self._over.set()

    def _written(self, write: Write | Copy) -> None:
        super()._written(write)
        if self.observer is not None:
            self.observer.written(self._number)
        if self._copied is not None:
            self._tell_copied(True)

    def _failed(self, write: Write | Copy, error: Exception) -> None:
        super()._failed(write, error)
        if self._copied is not None:
            self._tell_copied(False)

    def _resume(self) -> None:
        super()._resume()
        self.staged()  # of a leader that begins, the head is staged again

    def _tell_synced(self) -> None:
        super()._tell_synced()
        self._over.set()
        if self.observer is not None:
            self.observer.synced(self._number, self.path.journal.synced)

    async def note(self, work: Callable[[], None]) -> None:
        """Stores something beside the journal, never beside a cut."""
        await self._in_turn(self._note(work))

    async def _note(self, work: Callable[[], None]) -> None:
        async with self._noting:
            await self._loop.run_in_executor(self.threads.sync, work)

    async def _in_turn(self, turn: Coroutine[None, None, None]) -> None:
        """The turn is over when its work is, also if nobody waits for it any more: a thread goes on with it."""
        task = asyncio.ensure_future(turn)
        task.add_done_callback(_hear)
        await asyncio.shield(task)

    # ----------------------------------------------------------------------------------------------------- following

    def sync_soon(self) -> None:
        """Somebody waits for a sync of all that is written. What a sync that is under way lacks follows at once."""
        path = self.path
        if path.sync_by_ms is not None:
            path.sync_by_ms = min(path.sync_by_ms, self.runtime.wall_ms())
        if path.journal.synced < path.journal.end:
            self.sync()

    async def append(self, copy: Copy) -> bool:
        """Writes what a follower has taken. False: `copy.done` says how much of it is there; the rest is to be asked
        for again, when the journal takes something (`path.stopped`)."""
        path = self.path
        assert isinstance(path, FollowPath) and not self._writing
        while path.journal.segments.are_many and not self._rewriting and path.stopped is None:
            self.sync()  # of a leader after very many elections: each epoch is a file
            await asyncio.sleep(SYNC_PAUSE_SECONDS)
        if self._rewriting or path.stopped is not None:
            path.failed(copy, "the journal takes nothing")
            await asyncio.sleep(REWRITE_PAUSE_SECONDS)
            return False
        copied: asyncio.Future[bool] = self._loop.create_future()
        self._copied = copied
        self._write(copy)
        return await copied

    def _tell_copied(self, is_there: bool) -> None:
        copied, self._copied = self._copied, None
        if copied is not None and not copied.done():
            copied.set_result(is_there)

    async def cut(self, position: int, epoch: int, in_epoch: int) -> None:
        """See `FollowPath.cut`. Waits for what is under way, and keeps all else waiting."""
        await self._in_turn(self._cut(position, epoch, in_epoch))

    async def _cut(self, position: int, epoch: int, in_epoch: int) -> None:
        async with self._noting:
            while self._writing or self._syncing:
                self._over.clear()
                await self._over.wait()
            path = self.path
            assert isinstance(path, FollowPath)
            self._writing = self._syncing = True
            work = self._loop.run_in_executor(self.threads.write, path.cut, position, epoch, in_epoch)
            work.add_done_callback(self._cut_over)
            await work

    def _cut_over(self, done: asyncio.Future[None]) -> None:
        self._writing = self._syncing = False
        self._over.set()
        self.room.unprepare_if_full()
        if done.exception() is None:
            self.plan_sync()


def _hear(task: asyncio.Task[None]) -> None:
    """Else asyncio logs a failure that nobody waits for as an error of its own."""
    if not task.cancelled():
        task.exception()
