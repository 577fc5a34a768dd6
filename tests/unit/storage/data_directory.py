"""A data directory as a broker leaves it, made with the real engine and splitter, for the tests of dump and verify."""

from __future__ import annotations

from pathlib import Path

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Refusal
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.disk import Disk, RealDisk
from cairnmq.storage.files.format import Keyed, StartMoved
from cairnmq.storage.live.write_path import Placed
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.splitter import Splitter

CONFIG = LogConfig(model="dedicated", segment_bytes=4000, index_interval_bytes=500)
SEED = 77
NOW = 1_000_000


class DataDirectory:
    """Topic `t` with three partitions. `produce`, `split`, `checkpoint` in any order; `stop` closes everything."""

    def __init__(self, root: Path, *, journal_segment_bytes: int = 64 * 1024, config: LogConfig = CONFIG) -> None:
        self.root = root
        self.config = EngineConfig(segment_bytes=journal_segment_bytes, retain_bytes=1 << 20)
        root.mkdir(parents=True, exist_ok=True)
        store = SqliteStore(str(root / "meta.db"))
        catalog = Catalog(store)
        catalog.load()
        topic = catalog.image.topic("t")
        if topic is None:
            made = catalog.create_topic(CreateTopic(name="t", partitions=3), broker=BrokerConfig(), now_ms=NOW)
            assert not isinstance(made, Refusal)
            topic = made
        epoch = catalog.next_epoch()
        self.specs = [QueueSpec(q, "t", partition, topic.topic_id, config) for partition, q in topic.queues()]
        store.close()
        journal_disk: Disk = RealDisk(root / "journal")
        read_disk: Disk = RealDisk(root)
        self.engine = Engine.open(
            journal_disk, read_disk, self.specs, begin=lambda _: epoch, seed=SEED, config=self.config, now_ms=NOW
        )
        self.splitter = Splitter(
            journal_disk,
            read_disk,
            load_checkpoint(read_disk),
            lambda ids: [spec for spec in self.specs if spec.queue_id in ids],
            journals=[0],
            round_bytes=4000,
        )
        self.sequences: dict[int, int] = {}
        self.time = NOW

    def produce(self, rounds: int) -> None:
        """Each round: one batch of three records for each queue, from an idempotent producer; written and synced."""
        path = self.engine.paths[0]
        for _ in range(rounds):
            for queue in self.engine.queues.values():
                self.time += 1
                first = self.sequences.get(queue.queue_id, queue.state.end)
                self.sequences[queue.queue_id] = first + 3
                records = [Record(0, self.time, b"k%d" % i, b"value " * 10) for i in range(3)]
                batch = build_batch(records, producer_id=9, producer_epoch=0, base_sequence=first)
                placed = path.stage(queue, memoryview(bytearray(batch)), -1, self.time)
                assert isinstance(placed, Placed), placed
            self._flush()
        self._sync()

    def commit_offset(self, key: bytes, value: bytes | None) -> None:
        self.engine.paths[0].stage_fact(None, Keyed("offsets", key, value), self.time)
        self._flush()
        self._sync()

    def trim(self, queue_id: int, offset: int) -> None:
        self.engine.paths[0].stage_fact(self.engine.queues[queue_id], StartMoved(offset), self.time)
        self._flush()
        self._sync()

    def _flush(self) -> None:
        path = self.engine.paths[0]
        write = path.take()
        assert write is not None
        path.write(write)
        path.written(write)

    def _sync(self) -> None:
        path = self.engine.paths[0]
        path.synced_to(path.sync())

    def split(self) -> None:
        while (done := self.splitter.split(0, self.engine.splittable(0), self.time)) is not None:
            self.engine.on_round(done)

    def checkpoint(self, *, clean: bool = False) -> None:
        published = self.splitter.checkpoint(self.time, clean=clean)
        self.engine.on_checkpoint(published)
        self.splitter.seen(published.serial)

    def stop(self) -> Path:
        self.splitter.close()
        for path in self.engine.paths.values():
            path.journal.close()
        return self.root


def worn(root: Path) -> Path:
    """Two starts, checkpoints with rolls before and after them, trims, offsets, and batches that are not split yet."""
    data = DataDirectory(root)
    data.produce(20)
    data.commit_offset(b"g", b"1")
    data.split()
    data.checkpoint()
    data.trim(data.specs[0].queue_id, 10)
    data.produce(20)
    data.commit_offset(b"h", b"2")
    data.split()
    data.checkpoint()
    data.stop()
    data = DataDirectory(root)
    data.produce(5)
    data.split()
    data.checkpoint()
    data.produce(30)
    data.split()
    data.produce(2)
    return data.stop()
