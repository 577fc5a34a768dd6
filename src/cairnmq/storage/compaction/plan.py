"""Is a queue's log due for compaction, up to where, and what becomes one segment? Pure: sizes and times in."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairnmq.settings.topic import LogConfig

RELATIVE_MAX = 0x7FFFFFFF


class Stretch(Struct, frozen=True, gc=False):
    """A closed segment, or an extent of a pack, as the plan sees it. `end` is the offset behind it."""

    base: int
    end: int
    size: int
    oldest: int  # time of its first batch
    newest: int


class Due(Struct, frozen=True, gc=False):
    """What a pass may take: everything below offset `end`. The larger the `ratio`, the sooner."""

    end: int
    ratio: float
    dirty: int
    is_overdue: bool


def cleanable_end(stretches: Sequence[Stretch], clean_end: int, config: LogConfig, now_ms: int) -> int:
    """Up to where nothing is younger than `min.compaction.lag.ms`."""
    end = clean_end
    for stretch in stretches:
        if stretch.end <= clean_end:
            continue
        if config.compaction_lag_min_ms and stretch.newest > now_ms - config.compaction_lag_min_ms:
            break
        end = stretch.end
    return end


def due(stretches: Sequence[Stretch], clean_end: int, config: LogConfig, now_ms: int) -> Due | None:
    """Kafka's rule: the dirty share is above the limit, or a dirty record has waited for too long."""
    end = cleanable_end(stretches, clean_end, config, now_ms)
    clean = sum(stretch.size for stretch in stretches if stretch.end <= clean_end)
    dirty = [stretch for stretch in stretches if clean_end < stretch.end <= end]
    size = sum(stretch.size for stretch in dirty)
    if not size:
        return None
    ratio = size / (clean + size)
    is_overdue = any(0 <= s.oldest < now_ms - config.compaction_lag_max_ms for s in dirty)
    return Due(end, ratio, size, is_overdue) if is_overdue or ratio > config.dirty_ratio_min else None


def next_look(stretches: Sequence[Stretch], clean_end: int, config: LogConfig, now_ms: int) -> int | None:
    """When time alone may make a log due that is not; None: it needs new records for that, or other settings."""
    end = cleanable_end(stretches, clean_end, config, now_ms)
    young = [s.newest + config.compaction_lag_min_ms for s in stretches if s.end > end]
    dirty = [s for s in stretches if clean_end < s.end <= end and s.oldest >= 0]
    late = [s.oldest + config.compaction_lag_max_ms + 1 for s in dirty]
    return min((time for time in [*young[:1], *late] if time > now_ms), default=None)


def fits(segment: Stretch, base: int, size: int, config: LogConfig) -> bool:
    """May what is left of a segment follow in the compacted one that begins at `base` and has `size` bytes so far?"""
    return size + segment.size <= config.segment_bytes and segment.end - 1 - base <= RELATIVE_MAX
