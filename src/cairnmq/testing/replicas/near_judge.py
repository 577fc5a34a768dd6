"""What must be true of what consumers read, wherever they read it."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.codec.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from cairnmq.replication.follower import JournalFollower
from cairnmq.replication.records import Member
from cairnmq.storage.batches.markers import read_marker
from cairnmq.storage.files.format import BATCH, Entry
from cairnmq.storage.live.queue import Queue
from cairnmq.testing.oracle import demand
from cairnmq.testing.replicas.stored_judge import StoredJudge
from cairnmq.testing.replicas.stored_replica import Life


class Read(Struct):
    """What one fetch from `offset` on gave."""

    queue: Queue
    offset: int
    committed: bool
    entries: list[Entry]


class Shown(Struct, frozen=True):
    """What a leader showed at a time."""

    at_ms: int
    epoch: int
    replicated: int
    durable: int


class NearJudge:
    """`judge` knows what is replicated. It is asked to `look` after each step."""

    def __init__(self, judge: StoredJudge) -> None:
        self.judge = judge
        self.durable = 0  # the most that a leader has called so
        self.recovered = 0  # the last epoch that began after all members had restarted
        self._shown: list[Shown] = []
        self._accepted: set[tuple[Member, int]] = set()  # followers, with the epoch

    def look(self, lives: dict[int, Life], recovered: int, now_ms: int) -> None:
        """After a step. A leader of before the last recovery does not count."""
        self.recovered = recovered
        for life in lives.values():
            if life.leader is not None and life.leader.epoch >= recovered:
                ends = life.path.journal
                self._shown.append(Shown(now_ms, life.leader.epoch, ends.replicated_end, ends.durable_end))
                self.durable = max(self.durable, ends.durable_end)

    def accepted(self, follower: Member, epoch: int) -> None:
        """The leader of this epoch has found the follower's journal to be a beginning of its own."""
        self._accepted.add((follower, epoch))

    def served(self, life: Life, follower: JournalFollower, client_epoch: int, now_ms: int, lag_max_ms: int) -> None:
        """A follower answers a reader: it knows the epoch, and shows what its leader showed that long ago."""
        epoch, ends = follower.record.epoch, life.path.journal
        demand((life.me, epoch) in self._accepted, life.me, "answers before it has heard its leader in epoch", epoch)
        demand(client_epoch in (-1, epoch), life.me, "of epoch", epoch, "answers a reader of epoch", client_epoch)
        for shown in reversed(self._shown):
            if shown.epoch == epoch and shown.at_ms < now_ms - lag_max_ms:
                demand(ends.replicated_end >= shown.replicated, life.me, "lacks what was shown at", shown.at_ms)
                demand(ends.durable_end >= shown.durable, life.me, "hides what was shown at", shown.at_ms)
                break

    def check(self, life: Life, read: Read) -> None:
        """Records that a consumer has got."""
        truth, expected = self.judge.truth, read.offset
        if life.epoch < self.recovered:
            return  # it does not know yet that members lost power, and what was lost with it
        for entry in read.entries:
            demand(entry.end <= len(truth), life.me, "gives what is not replicated, at", entry.position)
            stored = life.bytes_from(entry.position, entry.end - entry.position)
            demand(stored == truth[entry.position : entry.end], life.me, "gives something else, at", entry.position)
            if (entry.epoch, entry.end) in self.judge.durable_entries:
                demand(entry.end <= self.durable, life.me, "gives what is not durable, at", entry.position)
            demand(entry.base_offset <= expected, life.me, "leaves a gap at", expected)
            expected = entry.last_offset + 1
            if read.committed:
                self._check_decided(life, read.queue, entry)

    def _check_decided(self, life: Life, queue: Queue, entry: Entry) -> None:
        """The transaction's marker is visible too; if it is aborted, the reader is told."""
        if entry.attributes & CONTROL_BIT or not entry.attributes & TRANSACTIONAL_BIT:
            return
        markers = (
            each
            for each in life.entries()
            if each.kind == BATCH
            and each.queue_id == queue.queue_id
            and each.attributes & CONTROL_BIT
            and each.producer_id == entry.producer_id
            and each.base_offset > entry.base_offset
        )
        marker = next(markers, None)
        is_visible = marker is not None and marker.last_offset < queue.high_watermark
        demand(is_visible, life.me, "gives", entry.position, "of a transaction that is not decided")
        assert marker is not None
        decided = read_marker(marker.payload)
        assert decided is not None
        if not decided[0] and entry.base_offset >= queue.log_start:
            rows = [row for row in queue.state.aborted if row.producer_id == entry.producer_id]
            is_told = any(row.first <= entry.base_offset <= row.last for row in rows)
            demand(is_told, life.me, "does not tell that", entry.position, "is aborted")
