"""Weeks of virtual time on one small node: journals go, idle queues hold nothing back, retention keeps its word."""

from __future__ import annotations

import random

from cairnmq.codec.records import Record, build_batch
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import StartMoved
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.sim_disk import SimDisk

HOUR = 3_600_000
DAY = 24 * HOUR
JOURNAL_SEGMENT = 20_000


class Node:
    """Engine and splitter on simulated disks, driven by a virtual clock."""

    def __init__(self, specs: list[QueueSpec]) -> None:
        rng = random.Random(7)
        self.specs = specs
        self.journal_disk, self.read_disk = SimDisk(rng), SimDisk(rng)
        self.now = 1_700_000_000_000
        self.epoch = 0
        self.start()

    def start(self) -> None:
        self.epoch += 1
        config = EngineConfig(segment_bytes=JOURNAL_SEGMENT)
        self.engine = Engine.open(
            self.journal_disk,
            self.read_disk,
            self.specs,
            begin=lambda _: self.epoch,
            seed=9,
            config=config,
            now_ms=self.now,
        )
        self.splitter = Splitter(
            self.journal_disk, self.read_disk, load_checkpoint(self.read_disk), self.resolve, journals=[0]
        )

    def resolve(self, queue_ids: list[int]) -> list[QueueSpec]:
        return [spec for spec in self.specs if spec.queue_id in queue_ids]

    def produce(self, queue: Queue, count: int) -> None:
        records = [Record(offset=0, timestamp=self.now, key=None, value=b"x" * 200, headers=()) for _ in range(count)]
        path = self.engine.paths[0]
        path.stage(queue, memoryview(bytearray(build_batch(records))), -1, self.now)
        self.flush()

    def flush(self) -> None:
        path = self.engine.paths[0]
        write = path.take()
        if write is not None:
            path.write(write)
            path.written(write)
        path.sync_begins()
        path.synced_to(path.sync())

    def housekeep(self) -> None:
        """What the splitter process does within a few seconds of real time."""
        for proposal in Maintenance(self.splitter).look(self.now):
            queue = self.engine.queues[proposal.queue_id]
            self.engine.paths[0].stage_fact(queue, StartMoved(proposal.offset), self.now)
        self.flush()
        while (done := self.splitter.split(0, self.engine.splittable(0), self.now)) is not None:
            self.engine.on_round(done)
        published = self.splitter.checkpoint(self.now)
        self.engine.on_checkpoint(published)
        self.splitter.seen(published.serial)

    def journal_bytes(self) -> int:
        return sum(self.journal_disk.open(f"0/{name}").size() for name in self.journal_disk.list("0"))

    def segments(self, queue: Queue) -> list[str]:
        return [name for name in self.read_disk.list(queue.spec.directory) if name.endswith(".log")]

    def readable(self, queue: Queue) -> int:
        offset, count = queue.log_start, 0
        while offset < queue.high_watermark:
            fetched = self.engine.reads.read(queue, offset, 1 << 16, whole=True, cached=False)
            assert isinstance(fetched, Batches) and fetched.next_offset > offset
            count += fetched.next_offset - offset
            offset = fetched.next_offset
        return count


def node() -> Node:
    busy = LogConfig(model="dedicated", segment_bytes=8_000, retention_ms=2 * DAY)
    idle = LogConfig(model="dedicated", segment_bytes=8_000, retention_ms=10 * DAY)
    sized = LogConfig(model="dedicated", segment_bytes=8_000, retention_ms=-1, retention_bytes=20_000)
    return Node(
        [
            QueueSpec(1, "busy", 0, bytes(16), busy),
            QueueSpec(2, "idle", 0, bytes(16), idle),
            QueueSpec(3, "sized", 0, bytes(16), sized),
        ]
    )


def test_weeks_of_traffic() -> None:
    cluster = node()
    busy, idle, sized = (cluster.engine.queues[number] for number in (1, 2, 3))
    cluster.produce(idle, 3)
    for hour in range(12 * 24):
        cluster.now += HOUR
        cluster.produce(busy, 5)
        cluster.produce(sized, 5)
        if hour % 6 == 5:
            cluster.housekeep()
            # one segment of the journal in use, and no idle queue keeps an older one alive
            assert cluster.journal_bytes() <= 2 * JOURNAL_SEGMENT, f"hour {hour}"
            assert cluster.engine.checkpointed[0] == cluster.engine.paths[0].journal.end
    # time: nothing older than two days and a segment is left, everything younger is
    assert 48 * 5 <= cluster.readable(busy) <= (48 + 12) * 5
    assert busy.end == 12 * 24 * 5
    # size: at least the limit is kept, at most one segment more, and the six hours since retention looked last
    kept = sum(cluster.read_disk.open(f"{sized.spec.directory}/{name}").size() for name in cluster.segments(sized))
    assert 20_000 <= kept <= 20_000 + 8_000 + 6 * 5 * 250
    # the idle queue's three records aged out after ten days, its file is gone, its offsets go on
    assert (idle.log_start, idle.end) == (3, 3)
    assert cluster.segments(idle) == []
    cluster.produce(idle, 1)
    cluster.housekeep()
    assert cluster.readable(idle) == 1 and cluster.segments(idle) == [f"{3:020d}.log"]


def test_offsets_and_starts_of_empty_queues_survive_a_restart() -> None:
    cluster = node()
    cluster.produce(cluster.engine.queues[2], 3)
    cluster.now += 11 * DAY
    cluster.housekeep()
    cluster.housekeep()
    cluster.journal_disk, cluster.read_disk = cluster.journal_disk.crash(), cluster.read_disk.crash()
    cluster.start()
    idle = cluster.engine.queues[2]
    assert (idle.log_start, idle.end) == (3, 3)
    cluster.produce(idle, 1)
    assert (idle.log_start, idle.end) == (3, 4)


def test_a_silent_queue_rolls_by_time_when_it_speaks_again() -> None:
    spec = QueueSpec(1, "slow", 0, bytes(16), LogConfig(model="dedicated", segment_ms=DAY, retention_ms=-1))
    cluster = Node([spec])
    slow = cluster.engine.queues[1]
    for _ in range(3):
        cluster.produce(slow, 1)
        cluster.housekeep()
        cluster.now += 2 * DAY
    assert cluster.segments(slow) == [f"{offset:020d}.log" for offset in range(3)]
    assert cluster.readable(slow) == 3
