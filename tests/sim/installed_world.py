"""Installs on real storage under one seed: a leader lives on, with compaction, transactions, retention, while another
machine takes its journal over, loses power, and begins again. What it has then must be what the leader has.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from cairnmq.broker.cluster.install_service import HELD_MS, InstallService
from cairnmq.broker.cluster.install_steps import InstallSteps, Refused
from cairnmq.broker.internal.answer import InstallAnswer
from cairnmq.broker.internal.peer import Peer
from cairnmq.codec.batch import CONTROL_BIT, read_header
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import Refusal
from cairnmq.replication.records import Member
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.checkpoint.split_report import Published, Round
from cairnmq.storage.files.format import ProducerRow
from cairnmq.storage.install.install_files import read_install
from cairnmq.storage.install.installed import put_in_place
from cairnmq.storage.install.staged_install import StagedInstall
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.testing.oracle import demand
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from cairnmq.wire.internal import INSTALL, Hello, InstallAsk
from unit.storage.cluster_harness import Machine
from unit.storage.install.install_harness import hosted_by
from unit.storage.replica_harness import NOW

JOURNAL, OTHER, EPOCH = 4, 9, 5
STEPS = 500
KEYS = tuple(b"%d" % number for number in range(16))
COMPACTED = LogConfig(
    compact=True, delete=False, segment_bytes=900, delete_retention_ms=0, dirty_ratio_min=0.0, retention_ms=-1
)
CONFIGS = {
    1: LogConfig(),
    2: replace(COMPACTED, model="dedicated"),
    3: replace(COMPACTED, model="shared"),
    5: LogConfig(model="dedicated", segment_bytes=900),
    6: LogConfig(model="shared"),
}
TRANSACTIONAL, COMPACTED_QUEUES = (1, 5, 6), (2, 3)


class InstalledWorld:
    """Machine 1 leads, machine 3 comes. `run` raises if a promise is broken."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.counts: Counter[str] = Counter()
        self.pace = self.random.choice((10, 40))  # of the install, beside what the leader does
        self.keys = KEYS[: self.random.choice((2, 6, 16))]
        self.writes = self.random.choice((8, 30))
        self.now = NOW
        specs = [QueueSpec(each, "t", each, bytes(16), config, JOURNAL) for each, config in CONFIGS.items()]
        self.leader, self.target = Machine(1, specs), Machine(3, specs)
        for journal in (JOURNAL, OTHER):
            self.leader.lead(EPOCH, journal)
        self.maintenance = Maintenance(self.leader.splitter, 2)
        self.reports: list[Round | Published] = []
        self.newest: dict[tuple[int, bytes], bytes | None] = {}
        self.sequences: dict[int, int] = dict.fromkeys(TRANSACTIONAL, 0)
        self.open: set[int] = set()
        self.serial = 0
        self.steps: InstallSteps | None = None
        self.loop = asyncio.new_event_loop()
        self.service = self._service()

    def _service(self) -> InstallService:
        engine = self.leader.engine
        leads = SimpleNamespace(leader=SimpleNamespace(epoch=EPOCH, record=SimpleNamespace(replicas=(1, 3))))
        slots = SimpleNamespace(first=1, count=1, place=lambda each: SimpleNamespace(journal=JOURNAL))

        async def settled() -> None:
            self._deliver()

        return InstallService(
            cast(Any, {JOURNAL: leads}),
            cast(Any, SimpleNamespace(engine=engine, queues=engine.queues, slots=slots, cold_reads=_ColdReads())),
            rate=lambda: 1 << 40,
            settled=settled,
            now_ms=lambda: self.now,
        )

    def run(self, steps: int = STEPS) -> None:
        try:
            actions: list[tuple[int, Callable[[], None]]] = [
                (self.writes, self._put),
                (12, self._send),
                (8, self._end_transaction),
                (4, self._put_fact),
                (3, self._move_start),
                (20, self._advance),
                (14, self._split),
                (10, self._checkpoint),
                (14, self._deliver),
                (24, self._compact),
                (self.pace, self._install),
                (1, self._lose_power),
            ]
            weights = [weight for weight, _ in actions]
            for _ in range(steps):
                self.now += self.random.choice((0, 1, 5))
                self.random.choices(actions, weights)[0][1]()
        finally:
            self.loop.close()

    # ---------------------------------------------------------------------------------------------------- the leader

    def _stage(self, queue_id: int, data: bytes, *, in_transaction: bool = False) -> None:
        path, queue = self.leader.leading(JOURNAL), self.leader.engine.queues[queue_id]
        placed = path.stage(queue, memoryview(bytearray(data)), -1, self.now, in_transaction=in_transaction)
        demand(not isinstance(placed, Refusal), "refused:", placed)
        self.leader.write(JOURNAL)

    def _put(self) -> None:
        queue_id, key = self.random.choice(COMPACTED_QUEUES), self.random.choice(self.keys)
        self._put_record(queue_id, key, None if self.random.random() < 0.4 else b"%d" % self.serial)

    def _put_record(self, queue_id: int, key: bytes, value: bytes | None) -> None:
        self.serial += 1
        self.newest[queue_id, key] = value
        self._stage(queue_id, build_batch([Record(offset=0, timestamp=self.now, key=key, value=value)]))

    def _send(self) -> None:
        queue_id = self.random.choice(TRANSACTIONAL)
        self.serial += 1
        records = [Record(offset=0, timestamp=self.now, key=None, value=b"%d" % self.serial)]
        data = build_batch(
            records,
            producer_id=100 + queue_id,
            producer_epoch=0,
            base_sequence=self.sequences[queue_id],
            transactional=True,
        )
        self.sequences[queue_id] += 1
        self.open.add(queue_id)
        self._stage(queue_id, data, in_transaction=True)

    def _end_transaction(self) -> None:
        if not self.open:
            return
        queue_id = self.random.choice(sorted(self.open))
        self.open.discard(queue_id)
        marker = Marker(queue_id, 100 + queue_id, 0, self.random.random() < 0.4, 1)
        point = self.leader.leading(JOURNAL).stage_marker(self.leader.engine.queues[queue_id], marker, self.now)
        demand(not isinstance(point, Refusal), "refused:", point)
        self.leader.write(JOURNAL)

    def _clear(self, queue_id: int) -> None:
        """Records of other keys let it be compacted again and again: tombstones that were there are gone in the end."""
        for _ in range(4):
            for number in range(14):
                self._put_record(queue_id, b"other %d" % (number % 3), b"%d" % self.serial)
            self._advance()
            self._split()
            self._checkpoint()
            if self.random.random() < 0.8:
                self._deliver()
            self.now += 10
            self._compact()
            self._checkpoint()

    def _put_fact(self) -> None:
        self.serial += 1
        self.leader.fact(b"%d" % self.serial)

    def _move_start(self) -> None:
        queue = self.leader.engine.queues[self.random.choice(TRANSACTIONAL)]
        if queue.high_watermark > queue.log_start:
            offset = self.random.randint(queue.log_start + 1, queue.high_watermark)
            self.leader.leading(JOURNAL).stage_start(queue, offset, self.now)
            self.leader.write(JOURNAL)

    def _advance(self) -> None:
        """All of it is replicated, and durable."""
        self.leader.sync(JOURNAL)
        path, end = self.leader.leading(JOURNAL), self.leader.end(JOURNAL)
        path.replicated_to(end)
        path.durable_to(end)

    def _split(self) -> None:
        engine, splitter = self.leader.engine, self.leader.splitter
        while done := splitter.split(JOURNAL, engine.splittable(JOURNAL), self.now):
            self.reports.append(done)

    def _checkpoint(self) -> None:
        """What it has put in the place of other files is not known to the broker yet."""
        self.reports.append(self.leader.splitter.checkpoint(self.now))

    def _deliver(self) -> None:
        """In order."""
        for report in self.reports:
            if isinstance(report, Round):
                self.leader.engine.on_round(report)
            else:
                self.leader.engine.on_checkpoint(report)
                self.leader.splitter.seen(report.serial)
        self.reports.clear()

    def _compact(self) -> None:
        self.maintenance.look(self.now)
        while self.maintenance.step():
            pass
        while self.maintenance.compact(self.now):
            pass
        self.counts["passes"] = self.maintenance.compactor.tally.passes

    # ---------------------------------------------------------------------------------------------------- the target

    def _install(self) -> None:
        """A step of it; the last one ends with a comparison."""
        if self.steps is None:
            staged = StagedInstall(self.target.disks[1], JOURNAL, self.target.engine.serial, pack_bytes=2000)
            self.steps = InstallSteps(JOURNAL, Member(3, 30), EPOCH, staged)
            self.counts["begun"] += 1
        steps = self.steps
        ask = steps.ask()
        try:
            if ask is None:
                self._put_in_place(steps)
                return
            if ask.max_bytes:
                if ask.queue in COMPACTED_QUEUES and ask.offset and self.random.random() < 0.3:
                    self._clear(ask.queue)
                sizes = (1, 1, 1, 300) if ask.queue in COMPACTED_QUEUES else (300, 5000)
                ask = replace(ask, max_bytes=self.random.choice(sizes))
            answer = self.loop.run_until_complete(self._answer(ask))
            steps.took(answer.told.told, memoryview(b"".join(bytes(part) for part in answer.checked())))
        except Refused:  # no checkpoint yet
            self.counts["refused"] += 1
            self.steps = None

    async def _answer(self, ask: InstallAsk) -> InstallAnswer:
        return await self.service.serve(Peer(Hello("c", 3, 30, 1, INSTALL, 1, 1, bytes(16)), 1), ask)

    def _put_in_place(self, steps: InstallSteps) -> None:
        """Power may be lost in the middle of it."""
        if self.random.random() < 0.5:
            disk = self.random.choice(self.target.disks)
            disk.crash_at = disk.operations + self.random.randint(1, 30)
        split = -1  # of what is whole
        try:
            steps.complete()
            split = read_install(self.target.disks[1], JOURNAL).marks[JOURNAL].split  # type: ignore[union-attr]
            put_in_place(*self.target.disks, hosted_by(self.target))
        except SimCrash:
            self.counts["crashes"] += 1
        self.steps = None
        self._lose_power()
        mark = self.target.engine.image.marks.get(JOURNAL)
        if mark is not None and mark.split == split:
            self._compare()
        self._begin_anew()

    def _lose_power(self) -> None:
        """What was received and is not whole is gone."""
        self.steps = None
        for disk in self.target.disks:
            disk.crash_at = None
        self.target.crashed(seed=self.random.getrandbits(30))

    def _begin_anew(self) -> None:
        """On new disks, or on what it has."""
        if self.random.random() < 0.5:
            self.target.disks = (SimDisk(Random(self.serial)), SimDisk(Random(self.serial + 1)))
            self.target.start()
        self.now += HELD_MS + 1
        self.service.expire()

    def _compare(self) -> None:
        leader, target = self.leader, self.target
        self._advance()
        while target.copy(leader, JOURNAL):
            pass
        demand(target.end(JOURNAL) == leader.end(JOURNAL), "the journal goes on at", target.end(JOURNAL), "and ends")
        target.sync(JOURNAL)
        target.following(JOURNAL).replicated_to(leader.end(JOURNAL), leader.end(JOURNAL), NOW)
        if self.random.random() < 0.5:
            while done := target.splitter.split(JOURNAL, target.engine.splittable(JOURNAL), NOW):
                target.engine.on_round(done)
            target.checkpoint()
        demand(target.engine.keyed == leader.engine.keyed, "facts", target.engine.keyed, "not", leader.engine.keyed)
        for queue_id in CONFIGS:
            self._compare_queue(leader.engine.queues[queue_id], target.engine.queues[queue_id])
        self.counts["compared"] += 1

    def _compare_queue(self, theirs: Queue, ours: Queue) -> None:
        queue_id = theirs.queue_id
        for field in ("log_start", "end", "epochs", "producers", "open_transactions"):
            told, expected = (_undated(getattr(queue.state, field)) for queue in (ours, theirs))
            demand(told == expected, "queue", queue_id, field, told, "not", expected)
        demand(ours.last_stable == theirs.last_stable, "queue", queue_id, "is stable up to", ours.last_stable)
        rows = [
            machine.engine.reads.aborted(queue, queue.log_start, queue.last_stable, cached=False)
            for machine, queue in ((self.target, ours), (self.leader, theirs))
        ]
        demand(rows[0] == rows[1], "queue", queue_id, "aborted", rows[0], "not", rows[1])
        records = [self._records(self.target, ours), self._records(self.leader, theirs)]
        if queue_id in TRANSACTIONAL:
            demand(records[0] == records[1], "queue", queue_id, "has", records[0], "not", records[1])
            return
        view: dict[bytes | None, bytes | None] = {}
        for record in records[0]:
            view[record.key] = record.value
        expected = {key: self.newest.get((queue_id, key)) for key in KEYS}
        found = {key: view.get(key) for key in KEYS}
        demand(found == expected, "queue", queue_id, "shows", found, "not", expected)

    def _records(self, machine: Machine, queue: Queue) -> Sequence[Record]:
        found: list[Record] = []
        offset = queue.log_start
        while offset < queue.high_watermark:
            read = machine.engine.reads.read_batch(queue, offset, cached=False)
            demand(not isinstance(read, Refusal) and read.size, "queue", queue.queue_id, "cannot be read at", offset)  # type: ignore[union-attr]
            data = bytes(read.buffers[0])  # type: ignore[union-attr]
            if not read_header(data).attributes & CONTROL_BIT:
                found += [record for record in decode_batch(data) if record.offset >= queue.log_start]
            offset = read.next_offset  # type: ignore[union-attr]
        return found


def _undated(value: object) -> object:
    """Producers without the time at which this replica has heard of them."""
    if not isinstance(value, dict):
        return value
    return {key: replace(row, timestamp=0) if isinstance(row, ProducerRow) else row for key, row in value.items()}


class _ColdReads:
    def load(self, reads: list[NotCached], then: Callable[[list[None]], None]) -> None:
        for read in reads:
            read.load()
        then([None for _ in reads])
