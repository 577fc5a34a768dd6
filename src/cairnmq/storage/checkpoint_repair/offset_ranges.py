"""Offsets as ranges, each from its first up to, not including, its end: sorted, and none touches the next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class OffsetRanges:
    __slots__ = ("_starts", "_ends")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._starts, self._ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def start(self) -> int:
        return self._starts[0]

    @property
    def end(self) -> int:
        return self._ends[-1]

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def overlaps(self, start: int, end: int) -> bool:
        index = bisect_right(self._ends, start)
        return start < end and index < len(self._starts) and self._starts[index] < end

    def covers(self, start: int, end: int) -> bool:
        return start >= end or next(self.gaps(start, end), None) is None

    def gaps(self, start: int, end: int) -> Iterator[Range]:
        """What is missing from `start` up to `end`."""
        for index in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[index] >= end:
                break
            if start < self._starts[index]:
                yield start, self._starts[index]
            start = self._ends[index]
        if start < end:
            yield start, end
