"""Storage on the event loop: what handlers call. A thin shell around storage.Engine and the splitter process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec.structs import replace

from cairnmq.broker.clocks import ExpiryClock
from cairnmq.broker.coordination.fact_log import Stored
from cairnmq.broker.coordination.slot_keys import place_of
from cairnmq.broker.runtime import Runtime
from cairnmq.broker.storage_loop.backlog import Backlog
from cairnmq.broker.storage_loop.cold_reads import ColdReads
from cairnmq.broker.storage_loop.journal_loops import JournalLoops
from cairnmq.broker.storage_loop.journal_sides import JournalSides
from cairnmq.broker.storage_loop.newest_records import NewestRecords
from cairnmq.broker.storage_loop.splitter_control import SplitterControl
from cairnmq.broker.storage_loop.store_stats import StoreStats, stats_of
from cairnmq.broker.storage_loop.time_lookup import TimeLookup
from cairnmq.broker.storage_loop.unpacking import Unpacking
from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.os_errors import text_of
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.api.serving import (
    LARGE,
    AckPoint,
    Batches,
    Chunks,
    Engine,
    Keyed,
    Marker,
    NotCached,
    Placed,
    Queue,
    QueueSpec,
    ReadFailure,
    ResponseArena,
    Span,
    failure_of,
)
from cairnmq.storage.api.start import accepted
from cairnmq.types import Slots

log = logging.getLogger(__name__)

COLD_READERS = 4
CHUNKS_KEPT = 12  # the records of one full answer, and what is left over in each of its chunks
KEPT_PART = 4  # of the memory for answers, at most, in free chunks
PRODUCER_EXPIRY_SECONDS = 600.0


class StorageStopped(Fault):
    """The journal takes no writes; the text says why."""


class Store(JournalSides):
    """Everything here runs on the loop thread."""

    def __init__(
        self,
        engine: Engine,
        *,
        lock_fds: Sequence[int],
        journal_dir: str,
        data_dir: str,
        config: BrokerConfig,
        slots: Slots | None,
        runtime: Runtime,
        recovery_seconds: float = 0.0,
    ) -> None:
        self.engine = engine
        self._appends = engine.appends
        self.queues = engine.queues
        self.epochs = engine.epochs  # under which each journal is led
        self.clock = runtime.wall_ms
        self._config = config
        self.slots = slots  # None until somebody in the cluster has made them
        self.journal_dir = journal_dir
        self.data_dir = data_dir
        self._loop = asyncio.get_running_loop()
        self._cold = runtime.executor("cold-read", COLD_READERS)
        self.cold_reads = ColdReads(self._cold)
        self.backlog = Backlog(engine)
        self.loops = JournalLoops(
            engine, runtime, self._wake, lambda: self.splitter.on_synced(), self.backlog.give_room
        )
        self.splitter = SplitterControl(
            engine,
            self.loops,
            self._cold,
            lock_fds=lock_fds,
            journal_dir=journal_dir,
            data_dir=data_dir,
            config=config,
            runtime=runtime,
            give_room=self.backlog.give_room,
        )
        kept = config.cairn_response_bytes_max // KEPT_PART // LARGE
        self.chunks = Chunks(kept_small=0, kept_large=min(kept, CHUNKS_KEPT))
        self._unpacker = runtime.executor("unpack", 1)
        self.times = TimeLookup(engine.reads, self._cold, self._unpacker, lambda: self.unpacked_max)
        self.newest = NewestRecords(
            engine.reads, self.queues, self._cold, self._unpacker, lambda: self.unpacked_max, self.found_damage
        )
        self.unpacking = Unpacking(self._unpacker)
        self.recovery_seconds = recovery_seconds
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_clock = ExpiryClock(
            runtime.wall_ms, runtime.steady_ms, lambda: self._config.producer_id_expiration_ms
        )

    def start(self) -> None:
        for loop in self.loops.values():
            loop.start(self._config.cairn_reserve_bytes)
        self.splitter.start()
        self._expire()

    def _expire(self) -> None:
        self.engine.expire_producers(self._expiry_clock(), self._config.producer_id_expiration_ms)
        self._expiry = self._loop.call_later(PRODUCER_EXPIRY_SECONDS, self._expire)

    @cached_property
    def losses(self) -> list[dict[str, object]]:
        """What was accepted as lost, oldest first; only a start adds to it."""
        return accepted(self.engine.keyed.items())

    # ------------------------------------------------------------------------------------------------ queues

    def create_queues(self, specs: list[QueueSpec]) -> None:
        """Their journals may be hosted later, or by others."""
        self.engine.add_queues(specs)

    async def delete_queues(self, queue_ids: list[int]) -> None:
        dropped = self.engine.drop_queues(queue_ids)
        self.splitter.drop(dropped)
        self._wake(dropped)

    def configure(self, queue_id: int, config: LogConfig) -> None:
        queue = self.queues.get(queue_id)
        if queue is None:
            return  # other brokers have it
        spec = replace(queue.spec, config=config)
        self.engine.configure(spec)
        self.splitter.configure(spec)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Broker settings changed at run time."""
        self._config = config
        self.engine.config = replace(
            self.engine.config,
            retain_bytes=config.cairn_journal_retention_bytes,
            unsplit_bytes_max=config.cairn_unsplit_bytes_max,
            unsplit_entries_max=config.cairn_unsplit_entries_max,
        )
        self.backlog.give_room()
        self.splitter.reconfigure(config)

    # ----------------------------------------------------------------------------------------------- writing

    def append(
        self, queue: Queue, batch: memoryview, acks: int, now_ms: int, *, in_transaction: bool = False
    ) -> Placed | Refusal:
        """A batch of a producer, which is patched in place; it is written at the end of this turn of the loop.

        `in_transaction`: the coordinator says that the producer's transaction has this queue.
        """
        placed = self._appends.append(queue, batch, acks, now_ms, in_transaction=in_transaction)
        if isinstance(placed, Placed):
            self.loops[placed.journal].staged()
        return placed

    def syncs_first(self, queue: Queue) -> bool:
        """Whether acks=all waits for syncs of this queue's records."""
        return self._appends.syncs_first(queue)

    def when(self, point: AckPoint, released: Callable[[bool], None]) -> None:
        """False: the journal could not do it. Call it in the turn of the loop in which it was appended."""
        self._appends.when(point, released)

    async def append_kept(self, queue: Queue, batches: Sequence[memoryview], span: Span) -> Refusal | None:
        """Batches of an import, which keep their offsets: all of `span` or nothing. Returns when they are stored."""
        point = self._appends.append_kept(queue, batches, span, self.clock())
        if isinstance(point, Refusal):
            return point
        await self.reached(point)
        return None

    async def trim(self, queue: Queue, offset: int) -> int | Refusal:
        """DeleteRecords: the log start moves to `offset` (-1: the visible end), durably; returns where it is then. If
        others move it further meanwhile, that may not be durable yet, and is not told."""
        if queue.cut_short and (offset == -1 or offset > queue.high_watermark):
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the journal is damaged after offset {queue.end}")
        if offset == -1:
            offset = queue.high_watermark
        if offset > queue.high_watermark or offset < 0:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}; the partition ends at {queue.high_watermark}"
            )
        start = max(offset, queue.log_start)
        point = self._appends.move_start(queue, offset, self.clock())
        if isinstance(point, Refusal):
            raise StorageStopped(point.message)
        await self.reached(point)
        return start

    async def write_markers(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        """Ends transactions, all of them in one gathered write per journal; an error code for each marker, 0 for done.

        Returns when all are as durable as acks=all is on their topics. A queue that is deleted has nothing to end.
        StorageStopped: a journal could not take them; any of them may be there, and writing them all again is right.
        """
        staged = self._appends.append_markers(markers, self.clock())
        await asyncio.gather(*map(self.reached, staged.waits))
        if staged.stopped:
            raise StorageStopped(staged.stopped)
        return staged.codes

    def put_facts(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        """Keyed facts of one slot. `stored` is called with a failure only if they are not in the journal, and never
        will be."""
        point: AckPoint | Refusal
        slot = place_of(self.slots, *facts[0][:2]) if self.slots is not None else None
        assert slot is not None, f"facts of {facts[0][0]!r} are not a coordinator's"
        try:
            records = [Keyed(*fact) for fact in facts]
            point = self._appends.put_keyed(slot, records, self._config.cairn_flush, self.clock())
        except Exception as error:  # noqa: BLE001 - out of memory: all later facts wait for these
            why = f"journal {slot.journal} could not take it: {error!r}"
            point = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, why)
        if isinstance(point, Refusal):
            self._loop.call_soon(stored, StorageStopped(point.message))
            return
        self._appends.when_certain(
            point, lambda met: stored(None if met else StorageStopped(f"journal {slot.journal} could not store it"))
        )
        self.loops[point.journal].staged()

    async def put_witness(self, fact: KeyedRecord) -> bool:
        """False: the journal could not take it. In a cluster the file `owner.json` has it alone: journals are led now
        here, now there."""
        if self.engine.hosting is not None:
            return True
        point = self._appends.put_witness(Keyed(*fact), self._config.cairn_flush, self.clock())
        if isinstance(point, Refusal):
            return False
        try:
            await self.reached(point)
        except StorageStopped:
            return False
        return True

    def reached(self, point: AckPoint) -> asyncio.Future[None]:
        """StorageStopped if that does not happen. Call it in the turn of the loop in which it was appended: a write
        that fails tells only those who wait already."""
        future: asyncio.Future[None] = self._loop.create_future()

        def released(met: bool) -> None:
            if future.done():
                return
            if met:
                future.set_result(None)
            else:
                future.set_exception(StorageStopped(f"journal {point.journal} could not store it"))

        self._appends.when(point, released)
        self.loops[point.journal].staged()
        return future

    # ----------------------------------------------------------------------------------------------- reading

    def read(
        self, queue: Queue, offset: int, max_bytes: int, arena: ResponseArena, *, whole: bool, committed: bool = False
    ) -> Batches | NotCached | ReadFailure | Refusal:
        """Visible batches from the one that holds `offset`, in `arena` as far as they fit. At least one batch with
        records if `whole`. `committed`: only those below the last stable offset, and which of them are aborted."""
        failure = self.cold_reads.failure_at(queue, offset)
        if failure is not None:
            return failure
        try:
            return self.engine.reads.read(
                queue, offset, max_bytes, whole=whole, cached=True, committed=committed, arena=arena
            )
        except (Fault, OSError) as error:
            return failure_of(error)

    def arena(self) -> ResponseArena:
        """For the records of one response."""
        return ResponseArena(self.chunks)

    def found_damage(self, queue: Queue, failure: ReadFailure) -> bool:
        """A read failed. Damage is listed, and the splitter looks whether the journals still hold the records. False:
        it is listed already."""
        if failure.place is None:
            return True
        place = replace(failure.place, queue=f"{queue.topic}-{queue.partition}")
        if not self.engine.damages.add(place):
            return False
        self.splitter.repair(queue.queue_id, place.file)
        return True

    @property
    def unpacked_max(self) -> int:
        return self._config.cairn_decompressed_bytes_max

    def epoch_end(self, queue: Queue, epoch: int) -> tuple[int, int] | None:
        return self.engine.epoch_end(queue, epoch)

    # ------------------------------------------------------------------------------------------------- the end

    async def stop(self) -> None:
        """Writes, syncs and splits what is left, checkpoints: the next start scans nothing, unless a journal stopped.

        What a stopped journal wrote and could not sync is left to recovery.
        """
        for loop in self.loops.values():
            await loop.drain()
        await self.splitter.finish()
        if self._expiry is not None:
            self._expiry.cancel()
        self.loops.close()
        self._cold.shutdown()
        self._unpacker.shutdown()
        try:
            self.engine.end()
        except OSError as error:
            log.warning("the clean stop could not be noted down: %s", text_of(error))

    # -------------------------------------------------------------------------------------------------- figures

    def stats(self) -> StoreStats:
        return stats_of(self)
