"""One queue's entries that are not split yet: offset -> journal position, size, timestamp. In memory, 32 bytes each.

Flat arrays instead of objects: a million unsplit entries must stay cheap, and an idle queue has no tail at all.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right


class Tail:
    """Batches in offset order. `positions` are those of the batch bytes, not of their frames."""

    __slots__ = ("offsets", "positions", "sizes", "timestamps")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.sizes = array("q")
        self.timestamps = array("q")

    def add(self, offset: int, position: int, size: int, timestamp: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.sizes.append(size)
        self.timestamps.append(timestamp)

    def extend(self, later: Tail) -> None:
        self.offsets.extend(later.offsets)
        self.positions.extend(later.positions)
        self.sizes.extend(later.sizes)
        self.timestamps.extend(later.timestamps)

    def __len__(self) -> int:
        return len(self.offsets)

    def find(self, offset: int) -> int:
        """Index of the batch that holds `offset`; -1 when it lies before the tail."""
        return bisect_right(self.offsets, offset) - 1

    def find_time(self, timestamp: int) -> int:
        """Index of the first batch whose maximum timestamp reaches `timestamp`; len(self) when none does."""
        for index, at in enumerate(self.timestamps):
            if at >= timestamp:
                return index
        return len(self.timestamps)

    def drop_below(self, offset: int) -> int:
        """Forgets batches that begin below `offset` (they are split); returns how many."""
        count = bisect_left(self.offsets, offset)
        if count:
            del self.offsets[:count]
            del self.positions[:count]
            del self.sizes[:count]
            del self.timestamps[:count]
        return count
