"""An engine and a splitter on simulated disks, for tests of splitting and of what becomes of split records."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from cairnmq.codec.records import Record, build_batch
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig, Fetched
from cairnmq.storage.model import Thresholds
from cairnmq.storage.queue_log import QueueSpec
from cairnmq.storage.split_report import Resume
from cairnmq.storage.splitter import Splitter
from cairnmq.storage.upkeep import Upkeep
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

    def start(self, epoch: int) -> None:
        self.engine = Engine.open(
            self.journal_disk,
            self.read_disk,
            self.specs.values(),
            epoch=epoch,
            seed=5,
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
        self.upkeep = Upkeep(splitter, fanout=2)
        if resume is not None:
            splitter.replay(NOW)
            self.engine.shelf.replace(splitter.shelf.numbers)
        return splitter

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
        while offset < queue.visible:
            fetched = self.engine.read(queue, offset, 1, whole=True, cached=False)
            assert isinstance(fetched, Fetched)
            found.append(int.from_bytes(fetched.buffers[0][:8], "big"))
            offset = fetched.next_offset
        return found
