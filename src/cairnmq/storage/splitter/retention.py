"""How far a queue's log start should move now. Pure: segments and times in, an offset out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class SegmentAge(Struct, frozen=True, gc=False):
    """A segment as retention sees it. `end` is the offset behind its last record.

    `max_timestamp`: the time of its file where no record has one; -1 if that is not known either.
    """

    base: int
    end: int
    size: int
    max_timestamp: int


def start_by_time(segments: Sequence[SegmentAge], retention_ms: int, now_ms: int) -> int:
    """Whole segments whose newest record is too old; they go in order, so one young segment keeps all behind it. 0 if
    none is: where the first segments are damaged or missing, those that are left do not say that they may go."""
    start = 0
    if retention_ms < 0:
        return start
    for segment in segments:
        if segment.max_timestamp < 0 or now_ms - segment.max_timestamp <= retention_ms:
            break
        start = segment.end
    return start


def start_by_size(segments: Sequence[SegmentAge], retention_bytes: int) -> int:
    """Oldest segments go while what remains is still at least the limit, so the limit is never undercut."""
    start = 0
    if retention_bytes < 0:
        return start
    excess = sum(segment.size for segment in segments) - retention_bytes
    for segment in segments:
        if segment.size > excess:
            break
        excess -= segment.size
        start = segment.end
    return start


def new_start(segments: Sequence[SegmentAge], retention_ms: int, retention_bytes: int, now_ms: int) -> int:
    return max(start_by_time(segments, retention_ms, now_ms), start_by_size(segments, retention_bytes))
