"""How far a log start moves."""

from __future__ import annotations

import pytest

from cairnmq.storage.splitter.retention import SegmentAge, new_start, start_by_size, start_by_time

SEGMENTS = [SegmentAge(0, 10, 100, 1000), SegmentAge(10, 30, 200, 3000), SegmentAge(30, 35, 50, 2000)]


@pytest.mark.parametrize(("now", "start"), [(1500, 0), (1501, 10), (3500, 10), (3501, 35)])
def test_by_time(now: int, start: int) -> None:
    assert start_by_time(SEGMENTS, 500, now) == start


@pytest.mark.parametrize(("limit", "start"), [(350, 0), (251, 0), (250, 10), (51, 10), (50, 30), (1, 30), (0, 35)])
def test_by_size_never_undercuts_the_limit(limit: int, start: int) -> None:
    assert start_by_size(SEGMENTS, limit) == start


def test_no_limit() -> None:
    assert new_start(SEGMENTS, -1, -1, 10**15) == 0
    assert new_start([], 5, 5, 10**15) == 0


def test_missing_segments_are_not_passed_over() -> None:
    """A lost first segment, or a pack that cannot be read, is damage: its records must not become deleted ones."""
    assert new_start(SEGMENTS[1:], -1, -1, 10**15) == 0
    assert new_start(SEGMENTS[1:], 500, 250, 3500) == 0
    assert new_start(SEGMENTS[1:], 500, -1, 3501) == 35, "what comes after them is too old, so they are"


def test_records_without_time_stay() -> None:
    assert start_by_time([SegmentAge(0, 5, 10, -1)], 1, 10**15) == 0


def test_the_stricter_rule_counts() -> None:
    assert new_start(SEGMENTS, 500, 50, 1501) == 30
    assert new_start(SEGMENTS, 500, 350, 1501) == 10
