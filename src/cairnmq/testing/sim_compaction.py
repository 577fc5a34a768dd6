"""Compacted topics on the simulated machine, in both models, among everything else. What must stay follows from the
batches alone: the newest record of every key, whatever is undecided, and tombstones for their time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from msgspec.structs import replace

from cairnmq.codec.batch import CONTROL_BIT, TRANSACTIONAL_BIT, read_header
from cairnmq.codec.records import Record, decode_batch, iter_batches
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.engine import Engine
from cairnmq.storage.files.format import Aborted
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.oracle import QueueModel, demand
from cairnmq.testing.sim_checks import name
from cairnmq.testing.sim_transactions import TransactionWorld, check_transactions, replay

KEYS = tuple(b"%d" % number for number in range(6))
FOREVER = 10**12


class CompactionWorld(TransactionWorld):
    """The workload of `TransactionWorld`, with keys, and topics that are compacted for a while or for ever."""

    def __init__(self, seed: int, *, branch_share: float = 0.25, trace: Callable[[str], None] | None = None) -> None:
        self.tombstones_ms: dict[int, int] = {}  # queue that was ever compacted -> its shortest delete.retention.ms
        super().__init__(seed, branch_share=branch_share, trace=trace)
        self.keys = KEYS

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        return [*super()._actions(), (24, self._compact)]

    def draw_config(self) -> LogConfig:
        rng, config = self.rng, super().draw_config()
        if rng.random() < 0.4:
            return config
        return replace(
            config,
            compact=True,
            model="dedicated" if config.model == "auto" else config.model,
            segment_bytes=2800,
            retention_ms=rng.choice((-1, -1, config.retention_ms)),
            retention_bytes=rng.choice((-1, -1, config.retention_bytes)),
            delete_retention_ms=rng.choice((0, 40, FOREVER)),
            compaction_lag_min_ms=rng.choice((0, 0, 20)),
            compaction_lag_max_ms=rng.choice((50, 2**63 - 1)),
            dirty_ratio_min=rng.choice((0.0, 0.5)),
        )

    def _compact(self) -> None:
        def act(splitter: Splitter) -> None:
            assert self.maintenance is not None
            compactor = self.maintenance.compactor
            before, compactor.keys_max = compactor.tally.passes, self.rng.choice((4, 100))
            if self.rng.random() < 0.3:
                self.maintenance.look(self.now)
            self.maintenance.compact(self.now)
            if self.rng.random() < 0.7:  # the others stop after the smallest slice
                while compactor.step(self.now, 1):
                    pass
            self.tally.compactions += compactor.tally.passes - before

        self.with_splitter(act)

    def _tidy(self) -> None:
        """Merges compact what is in packs."""
        before = self.maintenance.compactor.tally.passes if self.maintenance is not None else 0
        super()._tidy()
        if self.maintenance is not None:
            self.tally.compactions += max(0, self.maintenance.compactor.tally.passes - before)

    def _compact_on(self, engine: Engine, splitter: Splitter, maintenance: Maintenance) -> None:
        maintenance.look(self.now)
        while maintenance.step():
            pass
        while maintenance.compact(self.now):
            pass
        for _ in range(2):
            self._checkpoint_on(engine, splitter)

    # ------------------------------------------------------------------------------------------------- the judge

    def _may_be_compacted(self, queue: Queue) -> bool:
        """Also if it no longer is: nothing comes back."""
        if queue.config.compact:
            known = self.tombstones_ms.get(queue.queue_id, FOREVER)
            self.tombstones_ms[queue.queue_id] = min(known, queue.config.delete_retention_ms)
        return queue.queue_id in self.tombstones_ms

    def _check(self) -> None:
        for queue in self.engine.queues.values():
            self._may_be_compacted(queue)
        super()._check()

    def _check_content(self, engine: Engine, queue: Queue, expected: QueueModel) -> None:
        if self._may_be_compacted(queue):
            self._check_compacted(engine, queue, expected, queue.log_start)
        else:
            super()._check_content(engine, queue, expected)

    def _check_transactions(self, engine: Engine, queue: Queue, expected: QueueModel) -> None:
        if self._may_be_compacted(queue):
            check_transactions(engine, queue, expected)
        else:
            super()._check_transactions(engine, queue, expected)

    def _read_in(self, queue: Queue) -> None:
        if self._may_be_compacted(queue):
            start = self.rng.randint(queue.log_start, max(queue.high_watermark, queue.log_start))
            self._check_compacted(self.engine, queue, self.live.get(queue.queue_id) or QueueModel(), start)
        else:
            super()._read_in(queue)

    def _read_committed_in(self, queue: Queue) -> None:
        if self._may_be_compacted(queue):
            self._read_in(queue)
        else:
            super()._read_committed_in(queue)

    def _look_up_in(self, queue: Queue) -> None:
        if not self._may_be_compacted(queue):
            super()._look_up_in(queue)
            return
        queue.reader = None  # lookups open files anew; a reader from before a swap may still see more
        time = self.now - self.rng.randint(-50, 2000)
        found = self.engine.reads.find_time(queue, time, self.engine.reads.find_in_log(queue, time))
        readable = (record for batch in batches_of(self.engine, queue, queue.log_start) for record in records_in(batch))
        first = next((r.offset for r in readable if r.timestamp >= time and r.offset >= queue.log_start), None)
        demand((found.offset if found else None) == first, name(queue), "finds", found, "for", time, "not", first)

    def _check_compacted(self, engine: Engine, queue: Queue, expected: QueueModel, start: int) -> None:
        """docs/compaction.md, invariants 1 to 4, from offset `start` on."""
        who, stable = name(queue), queue.last_stable
        sent, hidden = written(expected, start, queue.high_watermark)
        rows = engine.reads.aborted(queue, start, stable, cached=False)
        assert isinstance(rows, list)
        read: dict[int, Record] = {}
        aborted: set[int] = set()
        for batch in batches_of(engine, queue, start):
            header = read_header(batch)
            for record in records_in(batch):
                if record.control or record.offset < start:
                    continue
                was = sent.get(record.offset)
                demand(
                    was is not None
                    and (was.key, was.value, was.timestamp) == (record.key, record.value, record.timestamp),
                    who, "holds", record, "where", was, "was written",
                )  # fmt: skip
                if _in_rows(header.producer_id, bool(header.attributes & TRANSACTIONAL_BIT), record.offset, rows):
                    aborted.add(record.offset)
                read[record.offset] = record
        counted = {offset: record for offset, record in sent.items() if offset not in hidden}
        demand(aborted.isdisjoint(counted), who, "calls aborted what was not:", aborted & counted.keys())
        left = {offset for offset in hidden & read.keys() if offset < stable}
        demand(left <= aborted, who, "aborted records that nobody calls so:", left - aborted)
        undecided = {offset for offset in counted if offset >= stable}
        demand(undecided <= read.keys(), who, "undecided records are gone:", undecided - read.keys())
        newest = {record.key: offset for offset, record in counted.items() if offset < stable}
        for key, offset in newest.items():
            if key is None or offset in read:
                continue
            young = sent[offset].timestamp + self.tombstones_ms[queue.queue_id] > self.now
            demand(sent[offset].value is None and not young, who, "the newest record of", key, "at", offset, "is gone")
            older = [at for at, record in read.items() if record.key == key and at < offset and at not in hidden]
            demand(not older, who, "tombstone", offset, "is gone, but not", older)


@lru_cache(maxsize=4096)
def records_in(batch: bytes) -> tuple[Record, ...]:
    return tuple(decode_batch(batch))


def written(expected: QueueModel, start: int, end: int) -> tuple[dict[int, Record], set[int]]:
    """Records by offset in ascending order, and which of them belong to aborted transactions."""
    _, rows = replay(expected.batches)
    sent: dict[int, Record] = {}
    hidden: set[int] = set()
    for _, behind, data in expected.batches:
        header = read_header(data)
        if behind <= start or behind > end or header.attributes & CONTROL_BIT:
            continue
        for record in records_in(data):
            if record.offset >= start:
                sent[record.offset] = record
                if _in_rows(header.producer_id, bool(header.attributes & TRANSACTIONAL_BIT), record.offset, rows):
                    hidden.add(record.offset)
    return sent, hidden


def _in_rows(producer_id: int, transactional: bool, offset: int, rows: list[Aborted]) -> bool:
    return transactional and any(row.producer_id == producer_id and row.first <= offset < row.last for row in rows)


def batches_of(engine: Engine, queue: Queue, start: int) -> list[bytes]:
    """Everything visible from `start` on; batches go on where the one before ends."""
    offset, found = start, []
    while offset < queue.high_watermark:
        fetched = engine.reads.read(queue, offset, 3000, whole=True, cached=False)
        if not isinstance(fetched, Batches) or not fetched.size:
            demand(False, name(queue), "cannot read offset", offset, "of", queue.high_watermark, fetched)
        assert isinstance(fetched, Batches)
        for batch in iter_batches(b"".join(fetched.buffers)):
            header = read_header(batch)
            demand(header.base_offset <= offset, name(queue), "has a hole before", header.base_offset, "from", offset)
            found.append(bytes(batch))
            offset = header.last_offset + 1
        demand(offset == fetched.next_offset, name(queue), "goes on at", fetched.next_offset, "not", offset)
    return found
