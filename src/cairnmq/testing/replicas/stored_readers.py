"""Consumers of replicas on real storage that read from a follower as soon as they are sent there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from msgspec import Struct

from cairnmq.errors import ErrorCode
from cairnmq.replication.follower_reads import readable, sends_within_ms
from cairnmq.replication.records import ClusterView
from cairnmq.storage.files.format import BATCH, Entry
from cairnmq.storage.live.queue import Queue
from cairnmq.testing.replicas.near_judge import NearJudge, Read
from cairnmq.testing.replicas.stored_replica import Life

READERS = 8
READ_LAGS_MS = (150, 400, 1_200)


class Reader(Struct):
    """It reads one queue at a time. `home`: the broker in its rack. One that `stays` asks there again when it was sent
    back: for some clients what a leader says holds for minutes."""

    home: int
    committed: bool
    stays: bool
    queue_id: int = -1
    offset: int = 0
    epoch: int = -1  # of the leader, as the metadata told it
    sent_home: bool = False


class StoredReaders:
    """Those of a world; each method is one step of one of them."""

    def __init__(
        self,
        random: Random,
        lives: dict[int, Life],
        view: Callable[[], ClusterView],
        judge: NearJudge,
        counts: Counter[str],
    ) -> None:
        self.random = random
        self.lives = lives
        self.view = view
        self.judge = judge
        self.counts = counts
        self.lag_max_ms = random.choice(READ_LAGS_MS)
        self.readers = [
            Reader(random.choice((1, 2, 3)), random.random() < 0.5, random.random() < 0.5) for _ in range(READERS)
        ]

    def look(self) -> None:
        """A client asks for metadata, of a broker that knows the latest. A position behind a cut is found by its
        epoch."""
        reader = self.random.choice(self.readers)
        record = self.view().journals[0].record
        if record.epoch > reader.epoch:
            reader.epoch, reader.queue_id = record.epoch, -1
            reader.sent_home = reader.sent_home and reader.stays

    def read(self, now_ms: int) -> None:
        """A fetch, of the leader or of the replica where the leader has sent it."""
        reader = self.random.choice(self.readers)
        record = self.view().journals[0].record
        broker = reader.home if reader.sent_home else record.leader.broker if record.leader is not None else -1
        life = self.lives.get(broker)
        if life is None:
            reader.sent_home = False
            return
        if reader.queue_id not in life.queues:
            reader.queue_id = self.random.choice(list(life.queues) or [-1])
            chosen = life.queues.get(reader.queue_id)
            if chosen is not None:
                reader.offset = max(chosen.log_start, chosen.high_watermark - self.random.randint(0, 8))
        queue = life.queues.get(reader.queue_id)
        if queue is None:
            reader.sent_home = False
        elif reader.sent_home and life.leader is None:
            self._of_follower(reader, life, queue, now_ms)
        elif life.leader is not None and life.leader.epoch == record.epoch:
            self._of_leader(reader, life, queue, now_ms)

    def _of_leader(self, reader: Reader, life: Life, queue: Queue, now_ms: int) -> None:
        assert life.leader is not None
        reader.epoch = max(reader.epoch, life.leader.epoch)
        reader.offset = min(max(reader.offset, queue.log_start), queue.high_watermark)  # it resets, if it must
        sent = readable(life.leader, self.view(), now_ms, sends_within_ms(self.lag_max_ms))
        if reader.home in sent:
            self.counts["sent to a follower"] += 1
            reader.sent_home = True
            return
        self._read(reader, life, queue)

    def _of_follower(self, reader: Reader, life: Life, queue: Queue, now_ms: int) -> None:
        follower = life.follower
        refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if follower is not None:
            refusal = follower.read_refusal(reader.epoch, now_ms, self.lag_max_ms)
        if refusal or follower is None or not queue.log_start <= reader.offset <= queue.end:
            self.counts["sent back"] += 1
            self.counts[refusal.name] += 1
            reader.sent_home = reader.stays
            return
        self.judge.served(life, follower, reader.epoch, now_ms, self.lag_max_ms)
        self._read(reader, life, queue)
        self.counts["read from a follower"] += 1

    def _read(self, reader: Reader, life: Life, queue: Queue) -> None:
        until = queue.last_stable if reader.committed else queue.high_watermark
        entries = [e for e in life.entries() if e.kind == BATCH and e.queue_id == queue.queue_id]
        found = [e for e in entries if reader.offset <= e.last_offset < until]
        taken: list[Entry] = found[: self.random.randint(1, 4)]
        if not taken:
            return
        read = Read(queue, reader.offset, reader.committed, taken)
        self.judge.check(life, read)
        reader.offset = taken[-1].last_offset + 1
        self.counts["read committed" if reader.committed else "read"] += len(taken)
