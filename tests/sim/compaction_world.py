"""Compaction under one seed: a random workload on simulated disks, stopped anywhere, against a model of the records.

Journals are synced at once here, so every record that was sent must count whatever happens to the read disk.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from cairnmq.codec.batch import read_header
from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.errors import Refusal
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.check.verify import check
from cairnmq.storage.checkpoint.split_report import Published, Round
from cairnmq.storage.files.fault_point import arm
from cairnmq.storage.files.format import StartMoved
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.live.write_path import Placed
from cairnmq.testing.oracle import demand
from cairnmq.testing.sim_checks import check_report
from unit.storage.splitter_harness import NOW, Broker

FOREVER = 10**12
POINTS = {"_checkpoint": "compaction-swap", "_acknowledge": "compaction-delete"}  # where an action is hit on purpose


class Stop(BaseException):
    """The machine, or the splitter alone, stops in the middle of a disk operation."""


class Sent(NamedTuple):
    key: bytes
    value: bytes | None
    time: int
    producer: int  # of its transaction, -1 without one


class World(Broker):
    """One compacted queue, number 1, and what was ever sent to it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.now = NOW
        self.loses_reports = seed % 4 == 1
        self.retention = rng.choice((0, 40, FOREVER))
        self.keys = [b"%d" % number for number in range(rng.choice((8, 60)))]
        super().__init__(
            rng.choice(("dedicated", "dedicated", "shared")),
            compact=True,
            segment_bytes=rng.choice((300, 600, 1500)),
            segment_ms=10**9,
            retention_ms=-1,
            index_interval_bytes=rng.choice((1, 300)),
            delete_retention_ms=self.retention,
            compaction_lag_min_ms=rng.choice((0, 0, 20)),
            dirty_ratio_min=rng.choice((0.0, 0.5)),  # type: ignore[arg-type]
        )
        self.epoch = 1
        self.sent: dict[int, Sent] = {}
        self.aborted: set[int] = set()
        self.open: dict[int, list[int]] = {}  # producer -> offsets of its transaction
        self.sequences: dict[int, int] = {}
        self.reports: list[Round | Published] = []  # on their way to the broker
        self.seen: list[int] = []
        self.passes = self.strikes = self.deaths = self.number = self.gathered = 0

    def run(self, steps: int) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (30, self._send),
            (6, self._end_transaction),
            (16, self._split),
            (16, self._checkpoint),
            (20, self._deliver),
            (16, self._acknowledge),
            (16, self._look),
            (30, self._compact),
            (8, self._merge),
            (4, self._wait),
            (1, self._trim),
            (4, self._alter),
            (10, self._read),
            (2, self._look_up),
            (1, self._die),
        ]
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            action = self.rng.choices(actions, weights)[0][1]
            self.now += self.rng.choice((0, 1))
            if self.rng.random() < (0.2 if action.__name__ in POINTS else 0.06):
                self._strike(action)
            else:
                action()
        self._settle()

    # ------------------------------------------------------------------------------------------------- the clients

    def _send(self) -> None:
        rng = self.rng
        queue = self.engine.queues[1]
        self.number += 1
        records = [
            Record(0, self.now - rng.randint(0, 5), rng.choice(self.keys), self._value())
            for _ in range(rng.randint(1, 4))
        ]
        options = {}
        producer = rng.choice((-1, -1, 1, 2, 3))
        transactional = producer in (2, 3)
        if producer > 0:
            options = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer, 0),
                "transactional": transactional,
            }
            self.sequences[producer] = self.sequences.get(producer, 0) + len(records)
        data = build_batch(records, codec=rng.choice((0, 0, 1, 3)), **options)  # type: ignore[arg-type]
        path = self.engine.paths[0]
        placed = path.stage(queue, memoryview(bytearray(data)), -1, self.now, in_transaction=transactional)
        assert isinstance(placed, Placed), placed
        self.flush()
        for index, record in enumerate(records):
            offset = placed.base_offset + index
            assert record.key is not None
            self.sent[offset] = Sent(record.key, record.value, record.timestamp, producer if transactional else -1)
            if transactional:
                self.open.setdefault(producer, []).append(offset)

    def _value(self) -> bytes | None:
        return None if self.rng.random() < 0.2 else b"%d " % self.number + bytes(self.rng.choice((0, 40)))

    def _end_transaction(self) -> None:
        if not self.open:
            return
        producer = self.rng.choice(sorted(self.open))
        commit = self.rng.random() < 0.5
        staged = self.engine.paths[0].stage_marker(self.engine.queues[1], Marker(1, producer, 0, commit, 0), self.now)
        assert not isinstance(staged, Refusal), staged
        self.flush()
        offsets = self.open.pop(producer)
        if not commit:
            self.aborted.update(offsets)

    def _trim(self) -> None:
        queue = self.engine.queues[1]
        if queue.high_watermark > queue.log_start:
            offset = self.rng.randint(queue.log_start, (queue.log_start + queue.high_watermark) // 2)
            self.engine.paths[0].stage_fact(queue, StartMoved(offset), self.now)
            self.flush()

    def _alter(self) -> None:
        """What is in packs comes into segments, once it has some; not while it is to stay in packs."""
        self.configure(1, model=self.rng.choice(("dedicated", "shared")))

    # ------------------------------------------------------------------------------------------------ the splitter

    def _split(self) -> None:
        done = self.splitter.split(0, self.engine.splittable(0), self.now)
        if done is not None:
            self.reports.append(done)

    def _checkpoint(self) -> None:
        queue = self.splitter.queues.get(1)
        before = queue.segments_from if queue is not None else -1
        published = self.splitter.checkpoint(self.now)
        check_report(self.engine, published)
        if self.loses_reports and self.rng.random() < 0.2:
            self._die()
            return
        self.reports.append(published)
        self.gathered += queue is not None and queue.segments_from < before

    def _deliver(self) -> None:
        if self.reports:
            report = self.reports.pop(0)
            if isinstance(report, Round):
                self.engine.on_round(report)
            else:
                self.engine.on_checkpoint(report)
                self.seen.append(report.serial)

    def _acknowledge(self) -> None:
        if self.seen:
            self.splitter.seen(self.seen.pop(0))
            if self.rng.random() < 0.1:
                self._restart()

    def _look(self) -> None:
        self.maintenance.look(self.now)

    def _compact(self) -> None:
        self.maintenance.compactor.keys_max = self.rng.choice((4, 100))
        before = self.maintenance.compactor.tally.passes
        self.maintenance.compact(self.now)
        if self.rng.random() < 0.7:  # the others stop after the smallest slice
            while self.maintenance.compactor.step(self.now, 1):
                pass
        self.passes += self.maintenance.compactor.tally.passes - before

    def _merge(self) -> None:
        before = self.maintenance.compactor.tally.passes
        self.maintenance.step()
        self.passes += self.maintenance.compactor.tally.passes - before

    def _wait(self) -> None:
        self.now += self.rng.choice((5, 30, 100))

    def _die(self) -> None:
        """The splitter alone; what it had sent still arrives."""
        self.deaths += 1
        while self.reports:
            self._deliver()
        self.seen.clear()
        self.succeed()

    def _strike(self, action: Callable[[], None]) -> None:
        left = self.rng.randint(1, 12)

        def observe(_: object = None) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Stop

        point = POINTS.get(action.__name__, "")
        if point and self.rng.random() < 0.5:
            left = 0
            arm(f"{point}:{self.rng.randint(1, 2)}", observe)
        else:
            # the clients' writes go to the other disk, and are not what is tried here
            self.read_disk.observe = observe
        try:
            action()
        except Stop:
            pass
        else:
            return
        finally:
            arm("", observe)
            self.read_disk.observe = None
        if self.rng.random() < 0.3:
            self._die()
        else:
            self._restart()

    def _restart(self) -> None:
        self.strikes += 1
        power = self.rng.random() < 0.5
        for name in ("journal_disk", "read_disk"):
            disk = getattr(self, name)
            setattr(self, name, disk.crash(self.rng) if power else disk.kill(self.rng))
        self.reports.clear()
        self.seen.clear()
        self._verify()
        self.epoch += 1
        self.start(self.epoch)
        self._check()

    # ------------------------------------------------------------------------------------------------- the readers

    def _batches(self, start: int) -> list[bytes]:
        queue = self.engine.queues[1]
        offset, found = start, []
        while offset < queue.high_watermark:
            fetched = self.engine.reads.read(queue, offset, 500, whole=True, cached=False)
            assert isinstance(fetched, Batches) and fetched.size, (offset, fetched)
            for buffer in fetched.buffers:
                data, at = bytes(buffer), 0
                while at < len(data):
                    header = read_header(data, at)
                    demand(header.base_offset <= max(offset, start), "a hole before", header.base_offset)
                    found.append(data[at : at + header.size])
                    at += header.size
                    offset = header.last_offset + 1
            demand(offset == fetched.next_offset, "goes on at", fetched.next_offset, "not", offset)
        return found

    def _read(self) -> None:
        queue = self.engine.queues[1]
        self._check(self.rng.randint(queue.log_start, max(queue.log_start, queue.high_watermark)))

    def _look_up(self) -> None:
        """A record of that time, and none before it that can be read."""
        queue = self.engine.queues[1]
        queue.reader = None  # lookups open files anew; a reader from before a swap may still see more
        time = self.now - self.rng.randint(0, 100)
        found = self.engine.reads.find_time(queue, time, self.engine.reads.find_in_log(queue, time))
        records = [r for batch in self._batches(queue.log_start) for r in decode_batch(batch)]
        first = next((r.offset for r in records if r.timestamp >= time and r.offset >= queue.log_start), None)
        demand((found.offset if found else None) == first, "time", time, "is found at", found, "not", first)

    def _check(self, start: int | None = None) -> None:
        """docs/compaction.md, invariants 1 to 4, for a reader of committed records."""
        queue = self.engine.queues[1]
        first = queue.log_start if start is None else start
        batches = self._batches(first)
        aborted: set[int] = set()
        stable = queue.state.stable(queue.high_watermark)
        ranges = self.engine.reads.aborted(queue, first, stable, cached=False)
        assert isinstance(ranges, list)
        read: dict[int, Record] = {}
        for batch in batches:
            header = read_header(batch)
            for record in decode_batch(batch):
                if record.control or record.offset < first:
                    continue
                sent = self.sent.get(record.offset)
                demand(sent is not None, "offset", record.offset, "was never written")
                assert sent is not None
                same = (record.key, record.value, record.timestamp) == (sent.key, sent.value, sent.time)
                demand(same, "offset", record.offset, "holds", record, "not", sent)
                if any(r.producer_id == header.producer_id and r.first <= record.offset < r.last for r in ranges):
                    aborted.add(record.offset)
                read[record.offset] = record
        decided = {offset: sent for offset, sent in self.sent.items() if first <= offset and offset not in self.aborted}
        demand(not (aborted & set(decided)), "called aborted:", aborted & set(decided))
        left = {offset for offset in self.aborted & set(read) if offset < stable}
        demand(left <= aborted, "aborted records that nobody calls so:", left - aborted)
        newest = {sent.key: offset for offset, sent in sorted(decided.items()) if offset < stable}
        for offset in decided:
            if offset >= stable:
                demand(offset in read, "undecided offset", offset, "is gone")
        for key, offset in newest.items():
            tombstone = self.sent[offset].value is None
            young = self.sent[offset].time + self.retention > self.now
            if offset in read:
                continue
            demand(tombstone and not young, "the newest record of", key, "at", offset, "is gone")
            older = [o for o, r in read.items() if r.key == key and o < offset and o not in self.aborted]
            demand(not older, "tombstone", offset, "is gone, but not", older)

    def _check_clean(self) -> None:
        """No key occurs twice below the clean end, once packs and segments are one, and swaps are done."""
        queue = self.splitter.learn(1)
        assert queue is not None
        if queue.segments_from > queue.state.log_start or queue.compaction.swaps:
            return
        clean_end = queue.compaction.clean_end
        records = [record for batch in self._batches(queue.state.log_start) for record in decode_batch(batch)]
        keys = [record.key for record in records if not record.control and record.offset < clean_end]
        demand(len(keys) == len(set(keys)), "keys occur twice below the clean end", clean_end)

    def _verify(self) -> None:
        for finding in check(self.read_disk, self.journal_disk):
            demand(finding.is_note, "verify says:", finding)

    def _settle(self) -> None:
        """In the end everything is compacted, and nothing is left over."""
        self._restart()
        while done := self.splitter.split(0, self.engine.splittable(0), self.now):
            self.reports.append(done)
        for _ in range(4):
            self.now += 100
            self._checkpoint()
            self.maintenance.look(self.now)
            while self.maintenance.step():
                pass
            while self.maintenance.compact(self.now):
                pass
            self._checkpoint()
            while self.reports:
                self._deliver()
            while self.seen:
                self._acknowledge()
        self._check()
        self._check_clean()
        self._verify()
