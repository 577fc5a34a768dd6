"""Which batches of a queue are of aborted transactions, for compaction: from `.txnindex` files and the queue's row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from cairnmq.codec.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import Aborted, RowSum
from cairnmq.storage.segments.txn_index import read_rows


class AbortedRanges:
    """Of each producer, from the first record of an aborted transaction to its marker."""

    def __init__(self, rows: Iterable[Aborted] = ()) -> None:
        self._ranges: dict[int, list[Aborted]] = {}
        for row in sorted(rows, key=lambda row: row.last):
            self._ranges.setdefault(row.producer_id, []).append(row)

    def hold(self, header: BatchHeader) -> bool:
        """Is this a batch of an aborted transaction? Markers are none."""
        if not self._ranges or header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) != TRANSACTIONAL_BIT:
            return False
        ranges = self._ranges.get(header.producer_id, [])
        index = bisect_right(ranges, header.base_offset, key=lambda row: row.first) - 1
        return index >= 0 and header.base_offset < ranges[index].last


def aborted_ranges(
    disk: Disk, directory: str, bases: Iterable[int], packed: Iterable[Aborted], known: Mapping[int, RowSum]
) -> AbortedRanges:
    """`packed`: those whose marker no `.txnindex` knows. Damage is raised: without it aborted records would stay.

    `known`: sums of the rows of each segment.
    """
    rows = [row for base in bases for row in read_rows(disk, directory, base, known)]
    return AbortedRanges([*packed, *rows])
