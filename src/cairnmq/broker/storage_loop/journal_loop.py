"""Drives one journal's path on the event loop: group by loop turn, write, sync, wake.

All requests that are ready in one turn of the loop share one gathered write. The write goes to the page cache, which
is cheaper inline than a hop to a thread; when the disk keeps a write waiting, writes move to a thread for a while. On a
busy machine a thread that seldom runs may wait longer for the CPU than any write takes.
Syncs always run on the journal's own thread, one at a time: whoever arrives during one shares the next.

A disk that refuses stops the journal, with a reason that everyone sees, until the disk works again; nobody restarts
anything. After a failed write that is when the same amount can be written beside the reserve. After a failed sync,
writes wait until all that is unsynced was written again; when that fails too, it retries every second.

What a broker of a cluster does besides is in replica_loop.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Iterable

from cairnmq.broker.metrics import Histogram
from cairnmq.broker.runtime import Runtime
from cairnmq.broker.storage_loop.journal_room import JournalRoom
from cairnmq.broker.storage_loop.journal_threads import JournalThreads
from cairnmq.os_errors import text_of
from cairnmq.storage.api.serving import FULL, Copy, JournalRole, Queue, Write

log = logging.getLogger(__name__)

SLOW_WRITE_SECONDS = 0.004
THREADED_SECONDS = 2.0  # twice as long each time that the disk is still slow then
THREADED_SECONDS_MAX = 32.0
INLINE_BYTES_MAX = 8 << 20
FIRST_PROBE_SECONDS = 0.1  # what fails once need not cost a second
PROBE_SECONDS = 1.0
PROBE_BYTES_MIN = 1 << 20  # room for more than the next group, so that a full disk does not open and close
_RUSAGE_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class JournalLoop:
    """Everything but the calls on the threads runs on the loop. `threads`: those that journals share."""

    def __init__(
        self,
        path: JournalRole,
        runtime: Runtime,
        on_advance: Callable[[Iterable[Queue]], None],
        on_synced: Callable[[], None],
        on_stopped: Callable[[], None],
        threads: JournalThreads | None = None,
    ) -> None:
        self.path = path
        self.runtime = runtime
        self._seen_ms = 0
        self.sync_seconds = Histogram()
        self.slow_writes = 0
        self._on_advance = on_advance
        self._on_synced = on_synced
        self._on_stopped = on_stopped
        self._loop = asyncio.get_running_loop()
        self._number = path.journal.number
        self.threads = threads or JournalThreads.own(self._number, runtime.executor)
        self.room = JournalRoom(path.journal, self.threads, lambda: self._writing)
        self._flush_due = False
        self._writing = False
        self._syncing = False
        self._rewriting = False
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._threaded_until = 0.0
        self._threaded_seconds = THREADED_SECONDS
        self._closed = False

    def start(self, reserve_bytes: int) -> None:
        """Before the first write."""
        self.path.journal.reserve.size = reserve_bytes
        self.room.hold_reserve()

    # --------------------------------------------------------------------------------------------------- writing

    def staged(self) -> None:
        """Something was staged: it is written at the end of this turn of the loop."""
        if not self._flush_due and not self._writing:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        path = self.path
        if self._writing or self._rewriting or path.stopped is not None:
            return
        write = path.take()  # type: ignore[call-arg]
        if write is not None:
            self._write(write)

    def _write(self, write: Write | Copy) -> None:
        if self.runtime.seconds() < self._threaded_until or write.size > INLINE_BYTES_MAX:
            self._writing = True
            future = self._loop.run_in_executor(self.threads.write, self.path.write, write)  # type: ignore[arg-type]
            future.add_done_callback(lambda done: self._threaded(write, done))
            return
        started, abandoned = self.runtime.seconds(), _times_abandoned()
        try:
            self.path.write(write)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - no memory, say: whoever waits hears of it
            self._failed(write, error)
            return
        finally:
            self._note_slowness(started, abandoned)
        self._written(write)

    def _note_slowness(self, started: float, abandoned: int) -> None:
        """Of inline writes alone: on a thread, waiting for the interpreter looks the same as waiting for the disk."""
        ended = self.runtime.seconds()
        if ended - started > SLOW_WRITE_SECONDS and _times_abandoned() > abandoned:
            self.slow_writes += 1
            self._threaded_until = ended + self._threaded_seconds
            self._threaded_seconds = min(2 * self._threaded_seconds, THREADED_SECONDS_MAX)
        else:
            self._threaded_seconds = THREADED_SECONDS

    def _threaded(self, write: Write | Copy, done: asyncio.Future[None]) -> None:
        self._writing = False
        self.room.unprepare_if_full()
        error = done.exception()
        if isinstance(error, Exception):
            self._failed(write, error)
        elif error is not None:
            raise error
        else:
            self._written(write)
        if self._rewriting:
            self._rewrite()
        else:
            self._flush()

    def _written(self, write: Write | Copy) -> None:
        self._on_advance(self.path.written(write))  # type: ignore[arg-type]
        self.plan_sync()
        self.room.prepare_next()

    def _failed(self, write: Write | Copy, error: Exception) -> None:
        log.error("journal %d: write failed: %s", self._number, text_of(error))
        self.path.failed(write, text_of(error))  # type: ignore[arg-type]
        if self.path.stopped is not None:
            return  # after a failed sync, which has the longer way back
        self.path.refuse(f"journal {self._number}: write failed ({text_of(error)}); retrying every second")
        self._on_stopped()
        size = max(write.size, PROBE_BYTES_MIN)
        self.room.release_if_full(error)
        self._retry = self._loop.call_later(FIRST_PROBE_SECONDS, self._probe, size)

    def _probe(self, size: int) -> None:
        if self._closed:
            return
        future = self._loop.run_in_executor(self.threads.write, self.path.probe, size)
        future.add_done_callback(lambda done: self._probed(size, done))

    def _probed(self, size: int, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if self._rewriting:
            return  # a sync failed meanwhile, which has the longer way back
        if isinstance(error, OSError):
            self.path.refuse(self._why_not(error, size))
            self._retry = self._loop.call_later(PROBE_SECONDS, self._probe, size)
        elif error is not None:
            raise error
        else:
            self._resume()

    def _why_not(self, error: OSError, size: int) -> str:
        journal = self.path.journal
        reason = f"journal {self._number}: write failed ({text_of(error)})"
        if error.errno not in FULL:
            return f"{reason}; retrying every second"
        return (
            f"{reason}; the write disk has {journal.disk.free_bytes()} bytes free, and writing resumes "
            f"when {journal.reserve.size + size} are"
        )

    def _resume(self) -> None:
        log.warning("journal %d: disk is writable again, writing continues", self._number)
        self.room.has_room()
        self.path.resume()

    # --------------------------------------------------------------------------------------------------- syncing

    def plan_sync(self) -> None:
        by = self.path.sync_by_ms
        if by is None or self._syncing:
            return
        now = self.runtime.wall_ms()
        set_back, self._seen_ms = now < self._seen_ms, now
        wait = by - now
        if wait <= 0 or set_back:  # of a clock that was set back nobody knows how long the wait would be
            self.sync()
        elif self._timer is None or self._timer.when() > self._loop.time() + wait / 1000:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(wait / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.plan_sync()

    def sync(self) -> None:
        if self._syncing:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._syncing = True
        self.path.sync_begins()
        started = self.runtime.seconds()
        future = self._loop.run_in_executor(self.threads.sync, self.path.sync)
        future.add_done_callback(lambda done: self._synced(started, done))

    def _synced(self, started: float, done: asyncio.Future[int]) -> None:
        error = done.exception()
        if error is not None:
            # Pages may be gone although they read well: never sync again and believe it.
            log.error(
                "journal %d: sync failed (%s); rewriting unsynced data to new files", self._number, text_of(error)
            )
            self._rewriting = True
            if self._retry is not None:
                self._retry.cancel()  # of a failed write: a rewrite that succeeds shows more
            if not self._writing:
                self._rewrite()
            return
        self._syncing = False
        self.sync_seconds.observe(self.runtime.seconds() - started)
        self._on_advance(self.path.synced_to(done.result()))
        self._tell_synced()
        self.plan_sync()

    def _tell_synced(self) -> None:
        self._on_synced()

    def _rewrite(self) -> None:
        if self._closed:
            return
        self._loop.run_in_executor(self.threads.sync, self.path.rewrite_unsynced).add_done_callback(self._rewritten)

    def _rewritten(self, done: asyncio.Future[int]) -> None:
        error = done.exception()
        if error is not None:
            self._stay_stopped(error)
            return
        self._rewriting = self._syncing = False
        log.warning(
            "journal %d: recovered from the failed sync: unsynced data is in new files and synced", self._number
        )
        if self.path.stopped is not None:
            self._resume()
            self.room.hold_reserve()
        self._on_advance(self.path.rewritten(done.result()))
        self._tell_synced()
        self._flush()
        self.plan_sync()

    def _stay_stopped(self, error: BaseException) -> None:
        """No write and no sync until a rewrite succeeds. Bytes that do not even read back are left to recovery."""
        is_disk = isinstance(error, OSError)
        hope = "retrying every second" if is_disk else "restart the broker once the disk works"
        reason = f"journal {self._number}: sync failed ({text_of(error)}); {hope}"
        if reason != self.path.stopped:
            log.critical("%s", reason)
        self.path.stop(reason)
        self._on_stopped()
        if isinstance(error, OSError):
            self.room.release_if_full(error)
            self._retry = self._loop.call_later(PROBE_SECONDS, self._rewrite)

    async def drain(self) -> None:
        """Everything staged is written and synced."""
        while self.path.stopped is None:
            self._flush()
            if not self._writing and self.path.journal.synced == self.path.journal.staged_end:
                return
            if not self._writing:
                self.sync()
            await asyncio.sleep(0.005)

    def halt(self) -> None:
        """Nothing is tried again from here on."""
        self._closed = True
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        self.halt()
        self.threads.close()
        self.room.close()


def _times_abandoned() -> int:
    """How often this thread gave up the CPU to wait for something; when others take it away, that does not count."""
    return resource.getrusage(_RUSAGE_THREAD).ru_nvcsw
