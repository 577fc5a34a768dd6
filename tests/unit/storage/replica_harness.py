"""A leader's path and a follower's, on disks of their own."""

from __future__ import annotations

from random import Random

from cairnmq.codec.records import Record, build_batch
from cairnmq.settings.topic import Flush, LogConfig
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files.format import Leader
from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.journal_fold import JournalFold
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.unreplicated import Keyeds
from cairnmq.storage.live.write_path import Placed, WritePath
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.recovery.replay import Replicated, followed, scan_journal
from cairnmq.testing.sim_disk import SimDisk

NOW = 5000


def batch(count: int = 1, sequence: int = -1, *, transactional: bool = False) -> memoryview:
    records = [Record(offset=0, timestamp=NOW, key=None, value=b"v" * 20) for _ in range(count)]
    pid = 8 if sequence >= 0 else -1
    return memoryview(
        bytearray(
            build_batch(
                records,
                producer_id=pid,
                producer_epoch=min(0, pid),
                base_sequence=sequence,
                transactional=transactional,
            )
        )
    )


def queue_of(number: int, flush: Flush = "commit") -> Queue:
    return Queue(QueueSpec(number, "t", number, bytes(16), LogConfig(flush=flush)), QueueState())


def disk_of(seed: int) -> SimDisk:
    disk = SimDisk(Random(seed))
    disk.make_dir("0")
    disk.sync_dir("")
    return disk


class Leading:
    """A leader of a journal with several replicas, and two queues."""

    def __init__(self, flush: Flush = "commit", epoch: int = 4, *, seed: int = 1, segment_bytes: int = 1 << 20) -> None:
        self.disk = disk_of(seed)
        self.keyed: Keyeds = {}
        journal = Journal(
            self.disk, 0, epoch=epoch, leader=Leader(1, 1), seed=9, segments=[], end=0, segment_bytes=segment_bytes
        )
        self.path = WritePath(journal, keyed=self.keyed)
        self.queues = {number: queue_of(number, flush) for number in (1, 2)}
        self.heard: list[tuple[str, bool]] = []

    @property
    def end(self) -> int:
        return self.path.journal.end

    def put(
        self,
        name: str = "",
        *,
        queue: int = 1,
        acks: int = -1,
        count: int = 1,
        sequence: int = -1,
        transactional: bool = False,
        write: bool = True,
    ) -> int:
        """Returns the position behind it."""
        data = batch(count, sequence, transactional=transactional)
        placed = self.path.stage(self.queues[queue], data, acks, NOW, in_transaction=transactional)
        assert isinstance(placed, Placed), placed
        self.path.lines.when(placed.level, placed.end, lambda met: self.heard.append((name, met)))
        if write:
            self.write()
        return placed.end

    def write(self) -> None:
        write = self.path.take()
        assert write is not None
        self.path.write(write)
        self.path.written(write)

    def content(self, position: int = 0) -> memoryview:
        journal, parts = self.path.journal, []
        for segment in journal.segments:
            if segment.end > position:
                at = max(position, segment.base)
                parts.append(segment.file.read(at - segment.base, segment.end - at))
        return memoryview(b"".join(parts))


class Following:
    """A follower of it."""

    def __init__(self, *, next_queue: int = 3, flush: Flush = "commit") -> None:
        self.disk = disk_of(2)
        self.next_queue = next_queue
        self.flush = flush
        self.keyed: Keyeds = {}
        self.queues = {number: queue_of(number, flush) for number in range(1, next_queue)}
        journal = Journal(self.disk, 0, epoch=0, leader=Leader(2, 1), seed=0, segments=[], end=0, segment_bytes=1 << 20)
        self.path = FollowPath(journal, JournalFold(0, self.queues, self.keyed, 0, next_queue=next_queue))

    @property
    def end(self) -> int:
        return self.path.journal.end

    def copy(self, data: memoryview, leader_epoch: int = 4) -> None:
        copy = self.path.take(data, leader_epoch, NOW)
        if copy is not None:
            self.path.write(copy)
            self.path.written(copy)

    def follow(self, leading: Leading, *, replicated: int | None = None, durable: int = 0) -> list[Queue]:
        self.copy(leading.content(self.end))
        return self.path.replicated_to(self.end if replicated is None else replicated, durable, NOW)

    def restarted(self, disk: SimDisk, *, replicated: int, durable: int = 0) -> None:
        """As a recovery finds it."""
        self.disk = disk
        self.queues = {number: queue_of(number, self.flush) for number in range(1, self.next_queue)}
        self.keyed = {}
        rule = Replicated(
            replicated_end=replicated, durable_end=durable, next_queue=self.next_queue, led=lambda epoch: False
        )
        scan, reader = scan_journal(disk, 0, CheckpointImage(), self.queues, self.keyed, now_ms=NOW, replicated=rule)
        assert scan.damage is None
        self.path = followed(disk, reader, scan, member=Leader(1, 1), seed=7, segment_bytes=1 << 20)
