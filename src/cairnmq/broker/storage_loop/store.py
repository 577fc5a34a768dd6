"""Storage on the event loop: what handlers call. A thin shell around storage.Engine and the splitter process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from cairnmq.broker.clocks import ExpiryClock, steady_ms
from cairnmq.broker.coordination.fact_log import Fact, Stored
from cairnmq.broker.storage_loop.journal_loop import JournalLoop
from cairnmq.broker.storage_loop.newest_records import NewestRecords
from cairnmq.broker.storage_loop.splitter_link import SplitterLink
from cairnmq.broker.storage_loop.splitter_messages import (
    Advance,
    Ask,
    Begin,
    Checkpointed,
    Compacted,
    Configure,
    Damaged,
    Drop,
    Expiration,
    Finish,
    Finished,
    Mend,
    Mended,
    Pace,
    Proposals,
    Report,
    Seen,
    Specs,
    Split,
    Spoiled,
    Trouble,
)
from cairnmq.broker.storage_loop.store_stats import JournalStats, StoreStats
from cairnmq.broker.storage_loop.time_lookup import TimeLookup
from cairnmq.codec.batch import only_empty
from cairnmq.errors import Corrupt, ErrorCode, Fault, Refusal
from cairnmq.os_errors import text_of
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.api.serving import (
    DOUBT_FILE,
    LARGE,
    Aborted,
    Chunks,
    Engine,
    Fetched,
    Keyed,
    Marker,
    Queue,
    QueueSpec,
    ReadFailure,
    Tray,
    Warm,
    failure_of,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

ADVANCE_SECONDS = 0.1
SPOILED_SECONDS = 1.0  # after a failed sync: time for a disk to recover, and no busy loop if it does not
ADVANCE_BYTES = 8 << 20
URGENT_SHARE = 0.5  # of the backlog's cap, from where the splitter runs at normal priority
COLD_READERS = 4
CHUNKS_KEPT = 12  # the records of one full answer, and what is left over in each of its chunks
KEPT_PART = 4  # of the memory for answers, at most, in free chunks
FINISH_SECONDS = 120.0
PRODUCER_EXPIRY_SECONDS = 600.0
FACTS_FLUSH_MS = 500  # what groups and transactions store, if `cairn.flush` lets it be answered before it is synced


class StorageStopped(Fault):
    """The journal takes no writes; the text says why."""


class Store:
    """Everything here runs on the loop thread."""

    def __init__(
        self,
        engine: Engine,
        *,
        lock_fds: Sequence[int],
        journal_dir: str,
        data_dir: str,
        config: BrokerConfig,
        clock: Callable[[], int],
        recovery_seconds: float = 0.0,
    ) -> None:
        self.engine = engine
        self.queues = engine.queues
        self.epoch = engine.epoch
        self.clock = clock
        self._config = config
        self.journal_dir = journal_dir
        self.data_dir = data_dir
        self._loop = asyncio.get_running_loop()
        self.loops = [JournalLoop(path, clock, self._wake, self._synced, self._give_room) for path in engine.paths]
        self._link = SplitterLink(lock_fds, self._begin, self._on_report, self._go_by_the_checkpoint)
        self.cold_failures: dict[tuple[int, int], ReadFailure] = {}  # (queue, offset) -> for who asks for it next
        kept = config.cairn_response_bytes_max // KEPT_PART // LARGE
        self.chunks = Chunks(kept_small=0, kept_large=min(kept, CHUNKS_KEPT))
        self._cold = ThreadPoolExecutor(COLD_READERS, "cold-read")
        self._unpacker = ThreadPoolExecutor(1, "unpack")  # one: a small batch may expand to all that is allowed
        self.times = TimeLookup(engine, self._cold, self._unpacker, lambda: self.unpacked_max)
        self.newest = NewestRecords(engine, self._cold, self._unpacker, lambda: self.unpacked_max, self.found_damage)
        self.unpacking = 0  # requests whose batches wait for being unpacked
        self.parked: Counter[int] = Counter()  # the queues that these name, compacted or not
        self._room: deque[Callable[[], None]] = deque()
        self._split_enabled = config.cairn_split_enable
        self._urgent = False
        self._compaction = Compacted(0, 0, 0, 0.0)
        self._trouble = ""  # of the splitter that runs, as it says
        self._failed_sync = ""  # of the read disk, until a checkpoint shows that what was in doubt is on disk
        self._spoiled = False
        self._finished = asyncio.Event()
        self._checkpoint_at = time.monotonic()
        self._checkpoint_seconds = 0.0
        self._recovery_seconds = recovery_seconds
        self._cold_reads = 0
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_clock = ExpiryClock(clock, steady_ms, lambda: self._config.producer_id_expiration_ms)
        self._advance_timer: asyncio.TimerHandle | None = None
        self._advanced = 0

    def start(self) -> None:
        for loop in self.loops:
            loop.start(self._config.cairn_reserve_bytes)
        self._link.start()
        self._expire()

    def _expire(self) -> None:
        self.engine.expire_producers(self._expiry_clock(), self._config.producer_id_expiration_ms)
        self._expiry = self._loop.call_later(PRODUCER_EXPIRY_SECONDS, self._expire)

    @property
    def has_all_facts(self) -> bool:
        """False if journal 0 is damaged: what it holds behind that may be newer than what is known."""
        return self.engine.scans[0].damage is None

    # ------------------------------------------------------------------------------------------------ queues

    def create_queues(self, specs: list[QueueSpec]) -> None:
        self.engine.add_queues(specs)

    async def delete_queues(self, queue_ids: list[int]) -> None:
        dropped = self.engine.drop_queues(queue_ids)
        self._link.send(Drop([(queue.queue_id, queue.spec.directory) for queue in dropped]))
        self._wake(dropped)

    def configure(self, queue_id: int, config: LogConfig) -> None:
        queue = self.queues[queue_id]
        old = queue.spec
        spec = QueueSpec(old.queue_id, old.topic, old.partition, old.topic_id, config)
        self.engine.configure(spec)
        self._link.send(Configure(spec))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Broker settings changed at run time."""
        expiration_ms = config.producer_id_expiration_ms
        if expiration_ms != self._config.producer_id_expiration_ms:
            self._link.send(Expiration(expiration_ms))
        self._config = config
        if config.cairn_split_enable != self._split_enabled:
            self._split_enabled = config.cairn_split_enable
            self._link.send(Pace(not self._split_enabled, self._urgent))
        self.engine.config = replace(
            self.engine.config,
            retain_bytes=config.cairn_journal_retention_bytes,
            unsplit_bytes_max=config.cairn_unsplit_bytes_max,
            unsplit_entries_max=config.cairn_unsplit_entries_max,
        )
        self._give_room()
        self._set_urgency()

    # ----------------------------------------------------------------------------------------------- writing

    def loop_of(self, queue: Queue) -> JournalLoop:
        return self.loops[queue.journal]

    @property
    def full(self) -> bool:
        """The backlog is at its cap, or others wait already: call `when_room` and come back."""
        return bool(self._room) or any(self.engine.full(path) for path in self.engine.paths)

    def when_room(self, resume: Callable[[], None]) -> None:
        self._room.append(resume)

    def _give_room(self) -> None:
        while self._room and not any(self.engine.full(path) for path in self.engine.paths):
            self._room.popleft()()

    async def trim(self, queue: Queue, offset: int) -> int | Refusal:
        """DeleteRecords: the log start moves to `offset` (-1: the visible end), durably; returns where it is then. If
        others move it further meanwhile, that may not be durable yet, and is not told."""
        if queue.cut_short and (offset == -1 or offset > queue.visible):
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the journal is damaged behind offset {queue.end}")
        if offset == -1:
            offset = queue.visible
        if offset > queue.visible or offset < 0:
            return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}; the queue ends at {queue.visible}")
        start = max(offset, queue.log_start)
        staged = self.engine.path_of(queue).stage_start(queue, offset, self.clock())
        if isinstance(staged, Refusal):
            raise StorageStopped(staged.message)
        await self.durable(queue.journal, staged)
        return start

    async def write_markers(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        """Ends transactions, all of them in one gathered write per journal; an error code for each marker, 0 for done.

        Returns when all are as durable as acks=all is on their topics. A queue that is deleted has nothing to end.
        StorageStopped: a journal could not take them; any of them may be there, and writing them all again is right.
        """
        staged = self.engine.stage_markers(markers, self.clock())
        await asyncio.gather(
            *(self.durable(journal, end) for journal, end in staged.synced.items()),
            *(self.durable(journal, end, synced=False) for journal, end in staged.written.items()),
        )
        if staged.stopped:
            raise StorageStopped(staged.stopped)
        return staged.codes

    def put_facts(self, facts: Sequence[Fact], stored: Stored) -> None:
        """Keyed facts, all of them in journal 0 so that replay keeps their order; `stored` hears when they are as
        durable as acks=all is by the broker's `cairn.flush`, and of a failure only if they are not in the journal.

        With several journals they are always synced: a batch in another one must not outlive its transaction's fact.
        """
        path, now_ms = self.engine.paths[0], self.clock()
        synced = self._config.cairn_flush == "commit" or len(self.loops) > 1
        try:
            end = path.stage_keyed([Keyed(*fact) for fact in facts], now_ms, 0 if synced else FACTS_FLUSH_MS)
        except Exception as error:  # noqa: BLE001 - no memory: all later facts wait for these, so it must be told
            end = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"journal 0 could not take it: {error!r}")
        if isinstance(end, Refusal):
            self._loop.call_soon(stored, StorageStopped(end.message))
            return
        wait = path.when_kept if synced else path.when_written
        wait(end, lambda met: stored(None if met else StorageStopped("journal 0 could not store it")))
        self.loops[0].staged()

    def load_facts(self, space: str) -> Iterable[tuple[bytes, bytes]]:
        return [(key, value) for (where, key), value in self.engine.keyed.items() if where == space]

    def durable(self, journal: int, position: int, *, synced: bool = True) -> asyncio.Future[None]:
        """Call it in the turn in which it was staged: a write that fails tells only those who wait already."""
        future: asyncio.Future[None] = self._loop.create_future()

        def released(met: bool) -> None:
            if future.done():
                return
            if met:
                future.set_result(None)
            else:
                future.set_exception(StorageStopped(f"journal {journal} could not store it"))

        path = self.loops[journal].path
        (path.when_synced if synced else path.when_written)(position, released)
        self.loops[journal].staged()
        return future

    # ----------------------------------------------------------------------------------------------- reading

    def read(
        self, queue: Queue, offset: int, max_bytes: int, tray: Tray, *, whole: bool, committed: bool = False
    ) -> Fetched | Refusal | Warm:
        """As the engine does it; a batch that comes whatever the limit is here one with records: some clients do not
        move on over empty ones alone."""
        fetched = self.engine.read(queue, offset, max_bytes, whole=whole, cached=True, committed=committed, tray=tray)
        while whole and isinstance(fetched, Fetched) and fetched.size and all(map(only_empty, fetched.buffers)):
            room, behind = max(max_bytes - fetched.size, 0), fetched.next_offset
            try:
                more = self.engine.read(queue, behind, room, whole=True, cached=True, committed=committed, tray=tray)
            except (Corrupt, OSError):
                break  # the next read begins with what cannot be read
            if not isinstance(more, Fetched):
                return more
            if not more.size:
                break
            fetched = Fetched([*fetched.buffers, *more.buffers], fetched.size + more.size, more.next_offset)
        return fetched

    def tray(self) -> Tray:
        """For the records of one answer."""
        return Tray(self.chunks)

    def aborted(self, queue: Queue, start: int, end: int) -> list[Aborted] | Warm:
        return self.engine.aborted(queue, start, end, cached=True)

    def warm(self, warms: list[Warm], then: Callable[[list[ReadFailure | None]], None]) -> None:
        """Runs blocking reads on the cold pool, then comes back to the loop with what went wrong with each."""
        self._cold_reads += len(warms)
        future = self._loop.run_in_executor(self._cold, _run_all, warms)
        future.add_done_callback(lambda done: then(done.result()))

    def found_damage(self, queue: Queue, failure: ReadFailure) -> bool:
        """A read failed. Damage is listed, and the splitter looks whether the journals still hold the records. False:
        it is listed already."""
        if failure.place is None:
            return True
        place = replace(failure.place, queue=f"{queue.topic}-{queue.partition}")
        if not self.engine.damages.add(place):
            return False
        self._link.send(Mend(queue.queue_id, place.file))
        return True

    @property
    def unpacked_max(self) -> int:
        return self._config.cairn_decompressed_bytes_max

    def unpack(self, job: Callable[[], T], then: Callable[[T], None]) -> None:
        """Off the loop, one after the other; `then` is called on the loop, in the order of the calls."""
        self.unpacking += 1

        def done(future: asyncio.Future[T]) -> None:
            self.unpacking -= 1
            then(future.result())

        self._loop.run_in_executor(self._unpacker, job).add_done_callback(done)

    def epoch_end(self, queue: Queue, epoch: int) -> tuple[int, int] | None:
        return self.engine.epoch_end(queue, epoch)

    def _wake(self, queues: Iterable[Queue]) -> None:
        for queue in queues:
            if queue.waiters:
                for waiter in tuple(queue.waiters):
                    waiter()

    # ---------------------------------------------------------------------------------------------- splitting

    def _set_trouble(self, reason: str) -> None:
        self._trouble = reason
        for loop in self.loops:
            loop.room_is_needed(bool(reason))

    def _begin(self, resume: bool) -> Begin:
        self._set_trouble("")  # it was its predecessor's; this one says what is wrong
        numbers = range(len(self.loops))
        return Begin(
            self.journal_dir,
            self.data_dir,
            self.engine.resume() if resume else None,
            {number: self.engine.splittable(number) for number in numbers},
            self._config.log_retention_check_interval_ms,
            self._config.producer_id_expiration_ms,
            not self._split_enabled,
            None if resume else self._config.cairn_fault_point,
            self._config.cairn_reserve_bytes,
            self._config.cairn_checkpoint_interval_ms,
        )

    async def _go_by_the_checkpoint(self) -> None:
        """Before a successor of the splitter: the last checkpoint may not have been reported; and after a failed sync,
        what was split since is in doubt."""
        if self._spoiled:
            await asyncio.sleep(SPOILED_SECONDS)
        scan = partial(self.engine.scan_split, in_doubt=self._spoiled)
        stored = await self._loop.run_in_executor(self._cold, scan)
        if stored is not None:
            self.engine.unsplit(stored)
            log.warning("the splitter's work goes on behind checkpoint %d, as the read disk has it", self.engine.serial)
        if self._spoiled:
            await self._loop.run_in_executor(self._cold, self.engine.read_disk.remove, DOUBT_FILE)
            self._spoiled = False

    def _synced(self) -> None:
        """The splitter is told at most every ADVANCE_SECONDS, or when a round's worth is there: it must not be woken
        by every sync."""
        total = sum(self.engine.splittable(number) for number in range(len(self.loops)))
        if total - self._advanced >= ADVANCE_BYTES:
            self._advance()
        elif self._advance_timer is None:
            self._advance_timer = self._loop.call_later(ADVANCE_SECONDS, self._advance)

    def _advance(self) -> None:
        if self._advance_timer is not None:
            self._advance_timer.cancel()
            self._advance_timer = None
        limits = {number: self.engine.splittable(number) for number in range(len(self.loops))}
        self._advanced = sum(limits.values())
        self._link.send(Advance(limits))
        self._set_urgency()

    def _set_urgency(self) -> None:
        config = self.engine.config
        urgent = any(
            path.journal.end - self.engine.split[path.journal.number] > URGENT_SHARE * config.unsplit_bytes_max
            or path.unsplit_entries > URGENT_SHARE * config.unsplit_entries_max
            for path in self.engine.paths
        )
        if urgent != self._urgent:
            self._urgent = urgent
            self._link.send(Pace(not self._split_enabled, urgent))

    def _on_report(self, report: Report) -> None:
        if isinstance(report, Split):
            self.engine.on_round(report.round)
            self._give_room()
            self._set_urgency()
        elif isinstance(report, Checkpointed):
            try:
                self.engine.on_checkpoint(report.published)
            except OSError as error:
                log.error("cannot remove journal segments; the next checkpoint tries again: %s", text_of(error))
            self._link.send(Seen(report.published.serial))
            self._checkpoint_at = time.monotonic()
            self._checkpoint_seconds = report.seconds
            self._failed_sync = ""
        elif isinstance(report, Ask):
            known = (self.queues.get(queue_id) for queue_id in report.queue_ids)
            self._link.send(Specs.of(queue.spec for queue in known if queue is not None))
        elif isinstance(report, Proposals):
            for start in report.starts:
                queue = self.queues.get(start.queue_id)
                if queue is not None and queue.log_start < start.offset <= queue.visible:
                    self.engine.path_of(queue).stage_start(queue, start.offset, self.clock())
                    self.loops[queue.journal].staged()
                    log.info("retention moves the start of %s-%d to %d", queue.topic, queue.partition, start.offset)
        elif isinstance(report, Damaged):
            log.error("%s", report.what)
            if report.place is not None:
                self.engine.damages.add(report.place)
        elif isinstance(report, Mended):
            log.warning("%s was repaired from the journals", report.file)
            self.engine.mended(report.queue_id, report.file)
        elif isinstance(report, Spoiled):
            self._spoiled = True
            self._failed_sync = report.reason
            log.error("%s", report.reason)
        elif isinstance(report, Trouble):
            self._set_trouble(report.reason)
            if report.reason:
                log.error("%s", report.reason)
        elif isinstance(report, Compacted):
            self._compaction = report
        elif isinstance(report, Finished):
            self._finished.set()

    # ------------------------------------------------------------------------------------------------- the end

    async def stop(self) -> None:
        """Writes, syncs and splits what is left, checkpoints: the next start scans nothing, unless a journal stopped.

        What a stopped journal wrote and could not sync is left to recovery.
        """
        for loop in self.loops:
            await loop.drain()
        log.info("journals are synced; the splitter finishes")
        self._link.closing()
        limits = {number: self.engine.splittable(number) for number in range(len(self.loops))}
        self._link.send(Finish(limits, all(loop.path.stopped is None for loop in self.loops)))
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self._link.gone()
        except TimeoutError:
            log.warning("the splitter did not finish in %d s; the next start replays what is left", FINISH_SECONDS)
        self._link.kill()
        for timer in (self._expiry, self._advance_timer):
            if timer is not None:
                timer.cancel()
        for loop in self.loops:
            loop.close()
        self._cold.shutdown()
        self._unpacker.shutdown()

    # -------------------------------------------------------------------------------------------------- figures

    def stats(self) -> StoreStats:
        journals = []
        troubles = [trouble for trouble in (self._link.trouble, self._failed_sync, self._trouble) if trouble]
        reasons = list(troubles)
        for loop in self.loops:
            path, journal = loop.path, loop.path.journal
            journals.append(
                JournalStats(
                    journal.number,
                    journal.start,
                    journal.end,
                    journal.synced,
                    self.engine.split[journal.number],
                    self.engine.checkpointed[journal.number],
                    path.unsplit_entries,
                    path.stopped,
                    loop.sync_seconds,
                    loop.slow_writes,
                    self.engine.scans[journal.number].cut_bytes,
                    self.engine.scans[journal.number].damage is not None,
                )
            )
            if path.stopped is not None:
                reasons.append(path.stopped)
        return StoreStats(
            journals=journals,
            checkpoint_age_seconds=time.monotonic() - self._checkpoint_at,
            checkpoint_seconds=self._checkpoint_seconds,
            splitter_pid=self._link.pid,
            splitter_restarts=self._link.restarts,
            compaction=self._compaction,
            splitter_trouble="; ".join(troubles),
            split_enabled=self._split_enabled,
            recovery_seconds=self._recovery_seconds,
            recovery_bytes=sum(scan.end - scan.start for scan in self.engine.scans),
            tail_reads=self.engine.tail_reads,
            cold_reads=self._cold_reads,
            damage_count=self.engine.damages.count,
            damages=list(self.engine.damages.places.values()),
            reasons=reasons,
        )


def _run_all(warms: list[Warm]) -> list[ReadFailure | None]:
    """One that fails is not the others' business."""
    failures: list[ReadFailure | None] = []
    for warm in warms:
        try:
            warm()
            failures.append(None)
        except Exception as error:  # who waits must hear of it, whatever it is
            failures.append(failure := failure_of(error))
            if failure.is_defect:
                log.exception("a read failed, and not by the disk or what is on it")
    return failures
