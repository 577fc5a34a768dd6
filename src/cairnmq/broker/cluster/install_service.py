"""The leader's side of installs: holds its journal from a checkpoint on, and sends what the checkpoint speaks of.

A step is answered from what is there now. So the leader keeps no place for a follower, only the snapshot and the hold
on the journal, and both for a limited time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.broker.internal.answer import InstallAnswer
from cairnmq.broker.internal.peer import Peer
from cairnmq.errors import Fault
from cairnmq.os_errors import text_of
from cairnmq.replication.throttle import Throttle
from cairnmq.storage.api.installing import (
    Hosting,
    Run,
    Snapshot,
    aborted_bytes,
    newest_checkpoint,
    read_run,
    take_snapshot,
)
from cairnmq.storage.api.serving import Queue, ReadFailure, failure_of
from cairnmq.wire.internal import (
    INSTALL_RUNS_MAX,
    TEXT_MAX,
    InstallAsk,
    InstallBegun,
    InstallPiece,
    InstallRefused,
    InstallRun,
    InstallRuns,
    InstallTold,
)

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.store import Store

log = logging.getLogger("cairnmq.broker")

HELD_MS = 300_000  # without a request: its broker may be starting again with what it took; then it begins again
HELD_BYTES = 16 << 30  # of a journal, for an install
THROTTLED_SECONDS = 10  # of bytes at the rate that is set: more at once, and the follower would not wait for it
RUNS_AT_ONCE = 32  # that are read between other requests
LOADS_MAX = 50  # from the disk, for one read

Told: TypeAlias = InstallBegun | InstallPiece | InstallRuns | InstallRefused


class _Given(Struct):
    """What a follower takes over. `seen_ms`: when it asked last."""

    follower: int
    journal: int
    epoch: int
    snapshot: Snapshot
    seen_ms: int


class InstallService:
    """`rate`: bytes per second for all followers. `settled` returns when all that the splitter has done so far is
    known."""

    def __init__(
        self,
        replicas: Mapping[int, JournalReplica],
        store: Store,
        *,
        rate: Callable[[], int],
        settled: Callable[[], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._store = store
        self._rate = rate
        self._settled = settled
        self._now_ms = now_ms
        self._given: dict[int, _Given] = {}
        self._begun_at: dict[int, tuple[int, int]] = {}  # of those whose checkpoint is being read: journal, position
        self._numbers = itertools.count(1)
        self._throttle = Throttle()

    @property
    def _hosting(self) -> Hosting:
        hosting = self._store.engine.hosting
        assert hosting is not None
        return hosting

    async def serve(self, peer: Peer, ask: InstallAsk) -> InstallAnswer:
        """A follower's step."""
        try:
            told, parts = await self._serve(ask)
        except (Fault, OSError) as error:
            log.warning("journal %d: broker %d cannot take it over now: %s", ask.journal, peer.broker, text_of(error))
            told, parts = InstallRefused(text_of(error)[:TEXT_MAX]), []
        size = sum(part.nbytes for part in parts)
        await asyncio.sleep(self._throttle.wait_ms(size, self._rate(), self._now_ms()) / 1000)
        return InstallAnswer(InstallTold(told), parts)

    async def _serve(self, ask: InstallAsk) -> tuple[Told, list[memoryview]]:
        self._check_leads(ask)
        if not ask.install:
            return await self._begin(ask), []
        given = self._given.get(ask.install)
        if given is None or (given.follower, given.journal, given.epoch) != (ask.follower, ask.journal, ask.epoch):
            raise Fault(f"journal {ask.journal}: the leader does not hold it for this install any more")
        given.seen_ms = self._now_ms()
        if ask.piece:
            return InstallPiece(), [memoryview(given.snapshot.pieces[ask.piece - 1])]
        return await self._runs(given.snapshot, ask)

    def _check_leads(self, ask: InstallAsk) -> None:
        replica = self._replicas.get(ask.journal)
        leader = replica.leader if replica is not None else None
        if leader is None or leader.epoch != ask.epoch or ask.follower not in leader.record.replicas:
            raise Fault(f"journal {ask.journal}: this broker does not lead it in epoch {ask.epoch}")

    # ------------------------------------------------------------------------------------------------------ the hold

    async def _begin(self, ask: InstallAsk) -> InstallBegun:
        """The journal is held before the checkpoint is read, so that it is there from the checkpoint on."""
        engine, journal = self._store.engine, ask.journal
        number = next(self._numbers)
        self._begun_at[number] = journal, engine.checkpointed[journal]
        self._pin(journal)
        try:
            image = await asyncio.to_thread(newest_checkpoint, engine.read_disk)
            # after that: it may have rows of a queue that was made just now
            queues = {queue_id for queue_id, queue in self._store.queues.items() if queue.spec.journal == journal}
            snapshot = await asyncio.to_thread(take_snapshot, image, journal, queues, self._slots_in(journal))
            self._check_leads(ask)
        finally:
            del self._begun_at[number]
            self._pin(journal)
        for other, given in list(self._given.items()):
            if (given.follower, given.journal) == (ask.follower, journal):
                del self._given[other]
        self._given[number] = _Given(ask.follower, journal, ask.epoch, snapshot, self._now_ms())
        self._pin(journal)
        mark = snapshot.mark
        log.info(
            "journal %d: broker %d takes it over as it is at position %d, with %d queues",
            journal,
            ask.follower,
            mark.split,
            len(snapshot.order),
        )
        return InstallBegun(number, mark.split, mark.epoch, mark.seed, len(snapshot.pieces), snapshot.records)

    def _slots_in(self, journal: int) -> set[int]:
        slots = self._store.slots
        if slots is None:
            return set()
        places = range(slots.first, slots.first + slots.count)
        return {each for each in places if slots.place(each).journal == journal}

    def _pin(self, journal: int) -> None:
        """The journal is kept from the oldest snapshot on that somebody takes over, or is about to."""
        held = [given.snapshot.mark.split for given in self._given.values() if given.journal == journal]
        held += [position for number, position in self._begun_at.values() if number == journal]
        pins = self._hosting.pins
        if held:
            pins[journal] = min(held)
        else:
            pins.pop(journal, None)

    def expire(self) -> None:
        """Now and then: a follower that asks no more holds nothing, nor one that takes so long that the journal would
        fill the disk. It begins again, from a later checkpoint."""
        now_ms, engine = self._now_ms(), self._store.engine
        for number, given in list(self._given.items()):
            replica = self._replicas.get(given.journal)
            leads = replica is not None and replica.leader is not None and replica.leader.epoch == given.epoch
            bytes_held = engine.checkpointed.get(given.journal, 0) - given.snapshot.mark.split
            if not leads or now_ms - given.seen_ms > HELD_MS or bytes_held > HELD_BYTES:
                del self._given[number]
                self._pin(given.journal)

    # --------------------------------------------------------------------------------------------------- the batches

    async def _runs(self, snapshot: Snapshot, ask: InstallAsk) -> tuple[InstallRuns, list[memoryview]]:
        runs: list[tuple[Queue | None, Run]] = []
        room, is_last = min(ask.max_bytes, THROTTLED_SECONDS * self._rate()), True
        for queue_id in snapshot.queues_from(ask.queue):
            if len(runs) == INSTALL_RUNS_MAX or (runs and room <= 0):
                is_last = False
                break
            row = snapshot.rows[queue_id]
            queue = self._store.queues.get(queue_id)
            if queue is None:
                runs.append((None, Run(queue_id, 0, row.end, row.log_start, 0, is_last=True)))
                continue
            offset = ask.offset if queue_id == ask.queue else row.log_start
            run = await self._read(queue, snapshot, offset, max(room, 1))
            runs.append((queue, run))
            room -= run.size
            if not len(runs) % RUNS_AT_ONCE:
                await asyncio.sleep(0)  # others have their turn
            if not run.is_last:
                is_last = False
                break
        if any(run.is_last and run.rewrites for _, run in runs):
            # A part of it may have been read from files that were put in the place of others meanwhile.
            await self._settled()
        return self._told(runs, ask, is_last)

    async def _read(self, queue: Queue, snapshot: Snapshot, offset: int, room: int) -> Run:
        row = snapshot.rows[queue.queue_id]
        for _ in range(LOADS_MAX):
            rewrites = self._hosting.rewrites(queue)
            try:
                found = read_run(self._store.engine.reads, queue, row, offset, room, cached=True, rewrites=rewrites)
            except (Fault, OSError) as error:
                self._store.found_damage(queue, failure_of(error))
                raise
            if isinstance(found, Run):
                return found
            loaded: asyncio.Future[list[ReadFailure | None]] = asyncio.get_running_loop().create_future()
            self._store.cold_reads.load([found], loaded.set_result)
            for failure in await loaded:
                if failure is not None:
                    self._store.found_damage(queue, failure)
                    raise Fault(f"queue {queue.queue_id} at offset {offset} cannot be read: {failure}")
        raise Fault(f"queue {queue.queue_id} at offset {offset}: the disk did not give it in time")

    def _told(
        self, runs: list[tuple[Queue | None, Run]], ask: InstallAsk, is_last: bool
    ) -> tuple[InstallRuns, list[memoryview]]:
        told: list[InstallRun] = []
        parts: list[memoryview] = []
        for queue, run in runs:
            if queue is not None and self._hosting.rewrites(queue) != run.rewrites:
                # What was read may lack a tombstone of what the follower has. It asks again, from the log start on.
                if run.queue_id == ask.queue and ask.offset:
                    told.append(InstallRun(run.queue_id, run.offset, run.offset, run.log_start, run.rewrites + 1))
                return InstallRuns(told), parts
            aborted = aborted_bytes(run) if run.is_last else b""
            told.append(
                InstallRun(
                    run.queue_id,
                    run.offset,
                    run.next_offset,
                    run.log_start,
                    run.rewrites,
                    run.size,
                    len(aborted),
                    run.is_last,
                    queue is None,
                )
            )
            parts += [*(memoryview(each) for each in run.buffers), memoryview(aborted)]
        return InstallRuns(told, is_last), parts
