"""What storage tells about itself: the numbers behind /metrics, /health/ready and the status page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cairnmq.broker.metrics import Histogram
from cairnmq.broker.storage_loop.splitter_messages import Compacted
from cairnmq.storage.api.serving import Place

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.store import Store


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


def stats_of(store: Store) -> StoreStats:
    engine = store.engine
    journals = []
    splitter = store.splitter
    reasons = splitter.troubles
    for loop in store.loops.values():
        path, journal = loop.path, loop.path.journal
        journals.append(
            JournalStats(
                journal.number,
                journal.start,
                journal.end,
                journal.synced,
                engine.split[journal.number],
                engine.checkpointed[journal.number],
                path.unsplit_entries,
                path.stopped,
                loop.sync_seconds,
                loop.slow_writes,
                engine.scans[journal.number].cut_bytes,
                engine.scans[journal.number].damage is not None,
            )
        )
        if path.stopped is not None:
            reasons.append(path.stopped)
    return StoreStats(
        journals=journals,
        checkpoint_age_seconds=splitter.checkpoint_age_seconds,
        checkpoint_seconds=splitter.health.checkpoint_seconds,
        splitter_pid=splitter.link.pid,
        splitter_restarts=splitter.link.restarts,
        compaction=splitter.health.compaction,
        splitter_trouble="; ".join(splitter.troubles),
        split_enabled=splitter.split_enabled,
        recovery_seconds=store.recovery_seconds,
        recovery_bytes=sum(scan.end - scan.start for scan in engine.scans.values()),
        tail_reads=engine.reads.tail_reads,
        cold_reads=store.cold_reads.count,
        damage_count=engine.damages.count,
        damages=list(engine.damages.places.values()),
        reasons=reasons,
    )
