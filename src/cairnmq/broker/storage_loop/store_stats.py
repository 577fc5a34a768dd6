"""What storage tells about itself: the numbers behind /metrics, /health/ready and the status page."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.broker.metrics import Histogram
from cairnmq.broker.storage_loop.splitter_messages import Compacted
from cairnmq.storage.api.serving import Place


class JournalStats(Struct, frozen=True):
    """One journal for metrics and the status page. All positions are bytes."""

    number: int
    start: int
    end: int
    synced: int
    split: int
    checkpoint: int
    unsplit_entries: int
    stopped: str | None
    sync_seconds: Histogram
    slow_writes: int
    cut_bytes: int  # at the start
    damaged: bool  # likewise

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def split_lag(self) -> int:
        return self.end - self.split

    @property
    def replay_bytes(self) -> int:
        return self.end - self.checkpoint


class StoreStats(Struct, frozen=True):
    """All of it at one moment."""

    journals: list[JournalStats]
    checkpoint_age_seconds: float
    checkpoint_seconds: float
    splitter_pid: int | None
    splitter_restarts: int
    splitter_trouble: str
    split_enabled: bool
    recovery_seconds: float
    recovery_bytes: int
    tail_reads: int
    cold_reads: int
    compaction: Compacted
    damage_count: int  # places found since the start
    damages: list[Place]  # those that are not repaired, the latest of them
    reasons: list[str]  # why the broker is not ready; empty when it is
