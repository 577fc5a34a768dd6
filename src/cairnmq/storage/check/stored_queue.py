"""A queue's batches as one data directory stores them, from packs and from segments of its own."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from cairnmq.codec.batch import BatchHeader, read_header
from cairnmq.codec.records import iter_batches
from cairnmq.storage.batches.batch_scan import NoBatch, scan_batches
from cairnmq.storage.check.replica import Replica
from cairnmq.storage.compaction.aborted_ranges import AbortedRanges, aborted_ranges
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.format import QueueRow, numbered
from cairnmq.storage.segments.segment import LOG, left_over, segment_name


class Stored(Struct, frozen=True, gc=False):
    header: BatchHeader
    data: bytes


class StoredQueue:
    """Up to the end that the checkpoint knows. Damage is raised, as Corrupt or OSError."""

    def __init__(self, replica: Replica, row: QueueRow) -> None:
        self.replica = replica
        self.row = row
        self.directory = replica.directories.get(row.queue_id, "")
        names = replica.read_disk.list(self.directory) if self.directory else []
        superseded = left_over(names, row.compaction.swaps)
        self.bases = [base for base in numbered(names, LOG) if base not in superseded and base < row.end]

    @property
    def place(self) -> str:
        """As a person would look for it."""
        return f"{self.replica.root}/{self.directory}" if self.directory else f"{self.replica.root}/packs"

    def batches(self, start: int, end: int) -> Iterator[Stored]:
        """Those with an offset from `start` on that begin before `end`, in order."""
        end = min(end, self.row.end)
        for stored in self._all(start):
            if stored.header.base_offset >= end:
                return
            if stored.header.last_offset >= start:
                yield stored

    def aborted(self) -> AbortedRanges:
        return aborted_ranges(self.replica.read_disk, self.directory, self.bases, self.row.aborted, {})

    def _all(self, start: int) -> Iterator[Stored]:
        packed_end = self.row.packed_end
        if start < packed_end:
            found = [(extent, pack) for pack in self.replica.packs for extent in pack.of_queue(self.row.queue_id)]
            for extent, pack in sorted(found, key=lambda one: one[0].base_offset):
                if start < extent.end_offset and extent.base_offset < packed_end:
                    for batch in iter_batches(pack.data(extent)):
                        yield Stored(read_header(batch), bytes(batch))
        for index, base in enumerate(self.bases):
            if index + 1 < len(self.bases) and self.bases[index + 1] <= start:
                continue
            yield from self._segment(base, packed_end)

    def _segment(self, base: int, packed_end: int) -> Iterator[Stored]:
        file = self.replica.read_disk.open(segment_name(self.directory, base, LOG))
        try:
            for found in scan_batches(file):
                if isinstance(found, NoBatch):
                    raise Damage(Place(file.name, found.position), found.why)
                if found.header.base_offset >= packed_end:
                    yield Stored(found.header, bytes(found.data))
        finally:
            file.close()
