"""The transactions of one queue: which are open, which end, which were aborted. In memory, only while there are any."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice

from cairnmq.storage.files.format import Aborted


def by_marker(row: Aborted) -> int:
    return row.last


def overlapping(rows: list[Aborted], start: int, end: int) -> list[Aborted]:
    """Of rows in the order of their markers, those that have records from offset `start` up to, not including, `end`;
    Kafka's rule."""
    found = []
    for row in islice(rows, bisect_left(rows, start, key=by_marker), None):
        if row.first < end:
            found.append(row)
        if row.stable >= end:
            break  # whatever ends later has begun later
    return found


class Transactions:
    """`open`: producer id -> first offset, ascending. `ending`: (first offset, marker) of those whose marker is not
    visible yet. `aborted`: in the order of their markers; without those that a `.txnindex` holds."""

    __slots__ = ("open", "ending", "aborted")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.ending: list[tuple[int, int]] = []
        self.aborted: list[Aborted] = []

    def __bool__(self) -> bool:
        return bool(self.open or self.ending or self.aborted)

    def begin(self, producer_id: int, first: int) -> None:
        before = next(reversed(self.open.values()), -1)
        self.open[producer_id] = first
        if first < before:  # only when a marker is taken back
            self.open = dict(sorted(self.open.items(), key=lambda pair: pair[1]))

    def undecided(self, default: int) -> int:
        """The first offset of the oldest one that is open."""
        return next(iter(self.open.values()), default)

    def stable(self, visible: int) -> int:
        """Below this offset everything is decided, and so that all may know it."""
        if self.ending:
            self.ending = [pair for pair in self.ending if pair[1] >= visible]
        return min([visible, self.undecided(visible), *(first for first, _ in self.ending)])

    def take_back(self, end: int) -> None:
        """Markers at `end` and behind were not written after all."""
        self.ending = [pair for pair in self.ending if pair[1] < end]
        del self.aborted[bisect_left(self.aborted, end, key=by_marker) :]

    def forget(self, start: int, end: int) -> None:
        """Of the aborted ones, those with a marker from `start` up to, not including, `end`."""
        low = bisect_left(self.aborted, start, key=by_marker)
        del self.aborted[low : bisect_left(self.aborted, end, key=by_marker)]

    def add_aborted(self, rows: Iterable[Aborted]) -> None:
        """Rows that may be known already, in any order."""
        self.aborted = sorted({row.last: row for row in (*self.aborted, *rows)}.values(), key=by_marker)
