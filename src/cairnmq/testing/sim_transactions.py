"""Transactions on the simulated machine: producers, a coordinator that never forgets, zombies, readers of committed
records. What must be true follows from the batches alone.

The coordinator's decisions are taken as durable, as its facts are: after a stop it writes markers again until each is
stored, and repeats some that are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from random import Random

from cairnmq.codec.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    read_header,
    set_append_time,
    set_offset_and_epoch,
)
from cairnmq.codec.records import Record, build_batch, decode_batch, iter_batches
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.batches.markers import Marker, marker_batch
from cairnmq.storage.engine import Engine
from cairnmq.storage.files.format import Aborted
from cairnmq.storage.live.ack_policy import BATCH, DURABLE, AckPoint, durability
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Batches
from cairnmq.testing.oracle import SERIAL_DIGITS, JournalModel, QueueModel, demand
from cairnmq.testing.sim_checks import name
from cairnmq.testing.sim_metadata import new_producer_id
from cairnmq.testing.sim_storage import World

CLIENTS_MAX = 3


class Client:
    """A transactional producer and what the coordinator knows of it. `version` 2: every transaction has an epoch."""

    def __init__(self, pid: int, version: int) -> None:
        self.pid = pid
        self.version = version
        self.epoch = 0
        self.serial = 0
        self.queues: set[int] = set()  # of the open transaction
        self.ending: tuple[int, bool] | None = None  # epoch of the markers, whether they commit
        self.under_way: set[int] = set()  # queues whose marker was staged, and no answer came yet

    def records(self, rng: Random, now_ms: int, keys: Sequence[bytes]) -> list[Record]:
        self.serial += 1
        value = rng.randbytes(rng.choice((3, 40, 300))) + str(self.serial).zfill(SERIAL_DIGITS).encode()
        return [
            Record(offset=0, timestamp=now_ms, key=rng.choice(keys) if keys else None, value=value)
            for _ in range(rng.randint(1, 3))
        ]

    def marker(self, queue_id: int, epoch: int, commit: bool) -> Marker:
        return Marker(queue_id, self.pid, epoch, commit, 0, self.version)

    def marked(self, queue_id: int) -> None:
        """The marker is stored; with the last one the next transaction may begin."""
        self.queues.discard(queue_id)
        if not self.queues and self.ending is not None:
            self.epoch, self.ending = self.ending[0], None


class TransactionWorld(World):
    """The workload of `World`, with transactions among it."""

    def __init__(self, seed: int, *, branch_share: float = 0.25, trace: Callable[[str], None] | None = None) -> None:
        self.clients: list[Client] = []
        self.stable: dict[int, int] = {}  # queue -> last stable offset that was seen
        super().__init__(seed, branch_share=branch_share, trace=trace)

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        return [*super()._actions(), (30, self._transact), (10, self._read_committed), (2, self._haunt)]

    def _open(self, event: str) -> None:
        super()._open(event)
        self.stable = {}
        for client in self.clients:
            client.under_way.clear()

    # ------------------------------------------------------------------------------------------------- the clients

    def _client(self) -> Client:
        if len(self.clients) < CLIENTS_MAX and self.rng.random() < 0.3 or not self.clients:
            if (pid := new_producer_id(self)) is not None:
                self.clients.append(Client(pid, self.rng.choice((1, 2))))
        return self.rng.choice(self.clients)

    def _transact(self) -> None:
        client = self._client()
        for queue_id in client.queues - set(self.engine.queues):
            client.marked(queue_id)  # of a deleted topic
        if client.ending is not None:
            self._mark(client)
        elif client.queues and self.rng.random() < 0.35:
            # a version 1 producer keeps its epoch, unless its time is up
            raised = client.version == 2 or self.rng.random() < 0.2
            client.ending = (client.epoch + raised, self.rng.random() < 0.5)
            self._mark(client)
        else:
            queue = self.any_queue()
            if queue is not None:
                self._write_in(client, queue)

    def _write_in(self, client: Client, queue: Queue) -> None:
        lane = self.lanes[queue.journal]
        row = queue.state.producers.get(client.pid)
        fits = row is not None and row.epoch == client.epoch and row.batches
        sequence = row.batches[-1][1] + 1 if row is not None and fits else 0
        data = build_batch(
            client.records(self.rng, self.now, self.keys),
            producer_id=client.pid,
            producer_epoch=client.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        batch = memoryview(bytearray(data))
        placed = self.engine.appends.append(queue, batch, -1, self.now, in_transaction=True)
        if isinstance(placed, Refusal):
            demand(lane.path.stopped is not None, name(queue), "refuses a transaction:", placed.message)
            return
        demand(not placed.is_duplicate, name(queue), "calls a new batch a duplicate")
        client.queues.add(queue.queue_id)
        self._staged(queue, bytes(batch), placed, None)

    def _mark(self, client: Client) -> None:
        """Some of the markers that are missing; those under way may be written twice."""
        assert client.ending is not None
        epoch, commit = client.ending
        for queue_id in sorted(client.queues):
            if queue_id in client.under_way and self.rng.random() < 0.7:
                continue
            if self.rng.random() < 0.7:
                self._put_marker(client, self.engine.queues[queue_id], client.marker(queue_id, epoch, commit))

    def _put_marker(self, client: Client, queue: Queue, marker: Marker) -> None:
        lane = self.lanes[queue.journal]
        before = queue.state.end
        point = lane.path.stage_marker(queue, marker, self.now)
        if isinstance(point, Refusal):
            demand(lane.path.stopped is not None, name(queue), "refuses", marker, "because", point.message)
            return
        client.under_way.add(queue.queue_id)
        ending = client.ending

        def answered(stored: bool) -> None:
            client.under_way.discard(queue.queue_id)
            if stored and client.ending is ending:
                client.marked(queue.queue_id)

        if queue.state.end == before:
            self.wait_for(point, answered)
            return
        batch = marker_batch(marker, self.now)
        if queue.config.append_time:
            set_append_time(batch, read_header(batch).attributes, self.now)
        set_offset_and_epoch(batch, before, lane.path.journal.epoch)
        self._staged(queue, bytes(batch), point, answered)

    def _staged(self, queue: Queue, data: bytes, point: AckPoint, answer: Callable[[bool], None] | None) -> None:
        """What `World` does with a batch that has its offset."""
        lane, config = self.lanes[queue.journal], queue.config
        visible = durability(BATCH, config.flush).visible
        held = self.live.setdefault(queue.queue_id, QueueModel())
        held.add(data, name(queue))
        lane.bounds[point.end] = None if config.flush == "none" else config.flush_ms
        if visible is DURABLE:
            lane.visible_by.setdefault(queue.queue_id, []).append((held.end, point.end))
        self.tally.batches += 1
        self.wait_for(point, answer)

    def _haunt(self) -> None:
        """A zombie of an older epoch, and a late marker of version 2: neither may do anything."""
        queue = self.any_queue()
        if queue is None or not self.clients:
            return
        client = self.rng.choice(self.clients)
        row = queue.state.producers.get(client.pid)
        path = self.lanes[queue.journal].path
        if row is None or path.stopped is not None:
            return
        before = (queue.state.end, dict(queue.open_transactions))
        if row.epoch > 0:
            data = build_batch(
                client.records(self.rng, self.now, self.keys),
                producer_id=client.pid,
                producer_epoch=row.epoch - 1,
                base_sequence=0,
                transactional=True,
            )
            verdict = path.stage(queue, memoryview(bytearray(data)), -1, self.now, in_transaction=True)
            fenced = isinstance(verdict, Refusal) and verdict.code == ErrorCode.INVALID_PRODUCER_EPOCH
            demand(fenced, name(queue), "takes a zombie's batch", verdict)
        if client.version == 2:
            path.stage_marker(queue, client.marker(queue.queue_id, row.epoch, False), self.now)
        after = (queue.state.end, dict(queue.open_transactions))
        demand(after == before, name(queue), "was touched by a zombie:", before, after)

    # ------------------------------------------------------------------------------------------------- the readers

    def _read_committed(self) -> None:
        queue = self.any_queue()
        if queue is not None:
            self._read_committed_in(queue)

    def _read_committed_in(self, queue: Queue) -> None:
        held = self.live.get(queue.queue_id) or QueueModel()
        stable = queue.last_stable
        offset = self.rng.randint(queue.log_start, max(stable, queue.log_start))
        size = self.rng.choice((1, 200, 1000, 100_000))
        while True:
            found = self.engine.reads.read(queue, offset, size, whole=True, cached=True, committed=True)
            if not isinstance(found, NotCached):
                break
            found.load()
        assert isinstance(found, Batches), found
        first = bisect_right(held.batches, offset, key=lambda batch: batch[1])
        want = b"".join(data for _, end, data in held.batches[first:] if end <= stable)
        got = b"".join(found.buffers)
        demand(want.startswith(got), name(queue), "reads something else or undecided from", offset, "to", stable)
        demand(bool(got) or not want, name(queue), "reads nothing at", offset, "below the last stable offset")
        shown = [offset for offset, hidden in hide(got, found.aborted) if not hidden]
        meant = committed(held.batches, offset, found.next_offset)
        demand(not got or shown == meant, name(queue), "shows", shown, "instead of", meant, "from", offset)

    # -------------------------------------------------------------------------------------------------- the checks

    def _check(self) -> None:
        super()._check()
        for queue in self.engine.queues.values():
            stable = queue.last_stable
            demand(
                queue.log_start <= stable <= max(queue.high_watermark, queue.log_start),
                name(queue),
                "is stable to",
                stable,
            )
            before = self.stable.get(queue.queue_id, 0)
            demand(stable >= before, name(queue), "last stable offset fell from", before, "to", stable)
            self.stable[queue.queue_id] = stable

    def _check_live(self) -> None:
        super()._check_live()
        for queue in self.engine.queues.values():
            held = self.live.get(queue.queue_id) or QueueModel()
            self._check_transactions(self.engine, queue, held)

    def _check_recovered(self, engine: Engine, models: dict[int, JournalModel]) -> None:
        super()._check_recovered(engine, models)
        for queue in engine.queues.values():
            expected = models[queue.journal].settled.queues.get(queue.queue_id) or QueueModel()
            self._check_transactions(engine, queue, expected)

    def _check_transactions(self, engine: Engine, queue: Queue, expected: QueueModel) -> None:
        check_transactions(engine, queue, expected)
        check_aborted(engine, queue, expected)


def replay(batches: Iterable[tuple[int, int, bytes]]) -> tuple[dict[int, int], list[Aborted]]:
    """Open and aborted transactions, as the batches say."""
    open_: dict[int, int] = {}
    aborted: list[Aborted] = []
    for base, end, data in batches:
        header = read_header(data)
        if header.attributes & CONTROL_BIT:
            first = open_.pop(header.producer_id, None)
            key = next(decode_batch(data)).key
            if first is not None and key == b"\0\0\0\0":
                aborted.append(Aborted(header.producer_id, first, base, min(open_.values(), default=end)))
        elif header.attributes & TRANSACTIONAL_BIT:
            open_.setdefault(header.producer_id, base)
    return open_, aborted


def committed(batches: list[tuple[int, int, bytes]], start: int, end: int) -> list[int]:
    """Base offsets of the batches from `start` to `end` that count: data of no transaction, or of a committed one."""
    _, aborted = replay(batches)
    found = []
    for base, behind, data in batches:
        header = read_header(data)
        hidden = any(r.producer_id == header.producer_id and r.first <= base < r.last for r in aborted)
        if start < behind <= end and not header.attributes & CONTROL_BIT and not hidden:
            found.append(base)
    return found


def hide(data: bytes, rows: Sequence[Aborted]) -> list[tuple[int, bool]]:
    """As clients do it: (base offset, whether it is left out) of each batch."""
    waiting = sorted(rows, key=lambda row: row.first)
    aborting: set[int] = set()
    found = []
    for batch in iter_batches(data):
        header = read_header(batch)
        while waiting and waiting[0].first <= header.last_offset:
            aborting.add(waiting.pop(0).producer_id)
        hidden = bool(header.attributes & TRANSACTIONAL_BIT) and header.producer_id in aborting
        if header.attributes & CONTROL_BIT:
            hidden = True
            if next(decode_batch(batch)).key == b"\0\0\0\0":
                aborting.discard(header.producer_id)
        found.append((header.base_offset, hidden))
    return found


def check_transactions(engine: Engine, queue: Queue, expected: QueueModel) -> None:
    open_, _ = replay(expected.batches)
    demand(queue.open_transactions == open_, name(queue), "open:", queue.open_transactions, "not", open_)
    visible, _ = replay(batch for batch in expected.batches if batch[1] <= queue.high_watermark)
    stable = max(queue.log_start, min([queue.high_watermark, *visible.values()]))
    demand(queue.last_stable == stable, name(queue), "stable to", queue.last_stable, "not", stable)


def check_aborted(engine: Engine, queue: Queue, expected: QueueModel) -> None:
    _, aborted = replay(expected.batches)
    stable = queue.last_stable
    for start in {queue.log_start, (queue.log_start + stable) // 2}:
        want = [row for row in aborted if row.last >= start and row.first < stable]
        found = engine.reads.aborted(queue, start, stable, cached=False)
        demand(found == want, name(queue), "aborted from", start, "to", stable, ":", found, "not", want)
