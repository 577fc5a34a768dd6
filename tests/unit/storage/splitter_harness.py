"""An engine and a splitter on simulated disks, for tests of splitting and of what becomes of split records."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from cairnmq.codec.batch import CONTROL_BIT, read_header
from cairnmq.codec.records import Record, build_batch, iter_batches
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.checkpoint.split_report import Resume
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import Aborted
from cairnmq.storage.live.ack_policy import AckPoint
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.live.write_path import Placed
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.placement import Thresholds
from cairnmq.storage.splitter.progress import Unreported
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimDisk

NOW = 10_000
THRESHOLDS = Thresholds(few=0, promote_round_bytes=10_000, promote_bytes=500, demote_bytes=300)


class Broker:
    """An engine and a splitter on the same disks."""

    def __init__(self, model: str = "dedicated", **config: int) -> None:
        self.journal_disk, self.read_disk = SimDisk(Random(1)), SimDisk(Random(2))
        self.specs = {
            number: QueueSpec(number, "t", number, bytes(16), LogConfig(model=model, **config))
            for number in (1, 2, 3)  # type: ignore[arg-type]
        }
        self.start(1)

    def start(self, epoch: int, seed: int = 5) -> None:
        self.engine = Engine.open(
            self.journal_disk,
            self.read_disk,
            self.specs.values(),
            begin=lambda _: epoch,
            seed=seed,
            config=EngineConfig(segment_bytes=400),
            now_ms=NOW,
        )
        self.splitter = self.make_splitter()

    def make_splitter(self, resume: Resume | None = None) -> Splitter:
        splitter = Splitter(
            self.journal_disk,
            self.read_disk,
            load_checkpoint(self.read_disk),
            lambda ids: [self.specs[number] for number in ids if number in self.specs],
            journals=[0],
            resume=resume,
            round_bytes=300,
            thresholds=THRESHOLDS,
        )
        self.maintenance = Maintenance(splitter, fanout=2)
        if resume is not None:
            splitter.replay(NOW)
        return splitter

    def succeed(self) -> None:
        """The splitter has died alone: a successor, as a broker starts it."""
        stored = self.engine.scan_split()
        if stored is not None:
            self.engine.unsplit(stored)
        self.splitter = self.make_splitter(self.engine.resume())

    def try_again(self) -> None:
        """The splitter has failed: it goes on as its process does, which ends if the broker has to know first."""
        try:
            self.splitter = self.make_splitter(self.splitter.resume())
        except Unreported:
            self.succeed()

    def configure(self, number: int, **config: object) -> None:
        spec = self.specs[number]
        self.specs[number] = replace(spec, config=replace(spec.config, **config))
        self.engine.configure(self.specs[number])
        self.splitter.configure(self.specs[number])

    def put(self, *queue_ids: int, timestamp: int = NOW) -> None:
        path = self.engine.paths[0]
        for number in queue_ids:
            queue = self.engine.queues[number]
            data = build_batch([Record(offset=0, timestamp=timestamp, key=None, value=b"v" * 40)])
            path.stage(queue, memoryview(bytearray(data)), -1, NOW)
        self.flush()

    def flush(self) -> None:
        path = self.engine.paths[0]
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)
        path.synced_to(path.sync())

    def split(self) -> None:
        while done := self.splitter.split(0, self.engine.splittable(0), NOW):
            self.engine.on_round(done)

    def checkpoint(self) -> None:
        published = self.splitter.checkpoint(NOW)
        self.engine.on_checkpoint(published)
        self.splitter.seen(published.serial)

    def offsets(self, number: int) -> list[int]:
        queue = self.engine.queues[number]
        offset, found = queue.log_start, []
        while offset < queue.high_watermark:
            fetched = self.engine.reads.read_batch(queue, offset, cached=False)
            assert isinstance(fetched, Batches)
            found.append(int.from_bytes(fetched.buffers[0][:8], "big"))
            offset = fetched.next_offset
        return found

    # -------------------------------------------------------------------------------------------- transactions

    def send(self, number: int, pid: int, epoch: int = 0, *, count: int = 1, flush: bool = True) -> int:
        """A batch of a producer's transaction; returns its base offset."""
        row = self.engine.queues[number].state.producers.get(pid)
        fits = row is not None and row.epoch == epoch and row.batches
        sequence = row.batches[-1][1] + 1 if fits and row is not None else 0
        records = [Record(offset=0, timestamp=NOW, key=None, value=b"t" * 40)] * count
        data = build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        placed = self.engine.paths[0].stage(
            self.engine.queues[number], memoryview(bytearray(data)), -1, NOW, in_transaction=True
        )
        assert isinstance(placed, Placed), placed
        if flush:
            self.flush()
        return placed.base_offset

    def mark(self, number: int, pid: int, epoch: int = 0, *, commit: bool, flush: bool = True) -> int:
        """Ends a producer's transaction; returns the offset behind the marker."""
        queue = self.engine.queues[number]
        staged = self.engine.paths[0].stage_marker(queue, Marker(number, pid, epoch, commit, 0), NOW)
        assert isinstance(staged, AckPoint), staged
        if flush:
            self.flush()
        return queue.state.end

    def abort(self, number: int, pid: int, epoch: int = 0) -> Aborted:
        """A transaction of one batch, aborted at once."""
        first = self.send(number, pid, epoch)
        last = self.mark(number, pid, epoch, commit=False) - 1
        return Aborted(pid, first, last, min([last + 1, *self.engine.queues[number].open_transactions.values()]))

    def aborted(self, number: int, start: int = 0, end: int | None = None) -> list[Aborted]:
        queue = self.engine.queues[number]
        found = self.engine.reads.aborted(queue, start, queue.last_stable if end is None else end, cached=False)
        assert isinstance(found, list)
        return found

    def committed(self, number: int) -> list[int]:
        """Base offsets of what a reader of committed records gets, markers left out."""
        queue = self.engine.queues[number]
        offset, found = queue.log_start, []
        while offset < queue.last_stable:
            fetched = self.engine.reads.read(queue, offset, 150, whole=True, cached=False, committed=True)
            assert isinstance(fetched, Batches) and fetched.size
            rows = self.aborted(number, offset, fetched.next_offset)
            for buffer in fetched.buffers:
                for batch in iter_batches(buffer):
                    header = read_header(batch)
                    pid, base = header.producer_id, header.base_offset
                    hidden = any(row.producer_id == pid and row.first <= base <= row.last for row in rows)
                    if not header.attributes & CONTROL_BIT and not hidden:
                        found.append(base)
            offset = fetched.next_offset
        return found
