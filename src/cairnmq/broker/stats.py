"""What storage tells about itself: the numbers behind /metrics, /health/ready and the status page."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.broker.metrics import Histogram


class JournalStats(Struct, frozen=True, kw_only=True):
    """One journal. Positions are bytes since its beginning; split <= synced <= end, checkpoint <= split."""

    number: int
    end: int
    synced: int
    split: int
    checkpoint: int
    size_bytes: int
    unsplit_entries: int = 0
    stopped: str | None = None

    @property
    def split_lag_bytes(self) -> int:
        return self.end - self.split

    @property
    def replay_bytes(self) -> int:
        """What a start would have to scan if the broker were killed now."""
        return self.end - self.checkpoint


class StoreStats(Struct, frozen=True, kw_only=True):
    """`flush` is the histogram of sync times; `splitter` a word or two for people ("running", "paused", ...)."""

    journals: tuple[JournalStats, ...] = ()
    checkpoint_age_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    recovery_seconds: float = 0.0
    recovery_bytes: int = 0
    splitter: str = "running"
    splitter_stopped: str | None = None
    splitter_restarts: int = 0
    tail_reads: int = 0
    cold_reads: int = 0
    flush: Histogram

    def problems(self) -> list[str]:
        """Why this broker cannot do its work; empty if it can."""
        found = [f"journal {each.number} has stopped: {each.stopped}" for each in self.journals if each.stopped]
        if self.splitter_stopped:
            found.append(f"the splitter has stopped: {self.splitter_stopped}")
        return found
