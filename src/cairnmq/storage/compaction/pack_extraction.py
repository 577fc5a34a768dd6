"""What a compacted queue has in packs, copied into segments in front of its own, so that passes see all of its keys.

In small steps between the splitter's rounds. The copies take the packs' place by swaps (docs/compaction.md).
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

from cairnmq.codec.batch import read_header
from cairnmq.storage.compaction.cleaned_segment import CleanedSegment
from cairnmq.storage.compaction.job import batches_of
from cairnmq.storage.compaction.plan import RELATIVE_MAX
from cairnmq.storage.compaction.queue_job import Abandoned, QueueJob
from cairnmq.storage.files.format import Extent
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_records import SplitRecords


def is_scattered(queue: SplitQueue) -> bool:
    """Some of its records lie in packs, and the later ones in segments."""
    return queue.state.log_start < queue.segments_from


class ExtractionJob(QueueJob):
    def __init__(self, records: SplitRecords, queue: SplitQueue) -> None:
        super().__init__(records, queue)
        self._segments_from = queue.segments_from
        self._extents: list[tuple[PackReader, Extent]] = []
        self._made: list[CleanedSegment] = []

    def _look(self) -> None:
        super()._look()
        counted = self.records.pack_set.packs
        if self.queue.segments_from != self._segments_from or any(pack not in counted for pack, _ in self._extents):
            raise Abandoned  # merged meanwhile

    def _drop_files(self) -> None:
        for segment in self._made:
            segment.drop()

    def _run(self) -> Generator[int, None, None]:
        log_start = self.queue.state.log_start
        self._extents = [
            (pack, extent)
            for pack, extent in self.records.pack_set.extents(self.queue.spec.queue_id)
            if extent.end_offset > log_start and extent.base_offset < self._segments_from
        ]
        self._refuse_gaps()
        for pack, extent in self._extents:
            run: list[memoryview] = []
            size = 0
            for batch in batches_of(memoryview(pack.data(extent))):
                header = read_header(batch)
                if not self._made or self._is_full(header.last_offset, size + len(batch)):
                    self._finish_last(run, header.base_offset)
                    run, size = [], 0
                    self._made.append(CleanedSegment(self.disk, self.queue.spec.directory, header.base_offset))
                run.append(batch)
                size += len(batch)
            self._made[-1].append(run)
            yield extent.size
        self._finish_last([], self._segments_from)
        self._look()
        self.records.replacements.prepend(self.queue, [segment.base for segment in self._made])
        self.came_further = True

    def _refuse_gaps(self) -> None:
        """A damaged pack may be missing among them."""
        extents = [extent for _, extent in self._extents]
        if (
            not extents
            or extents[0].base_offset > self.queue.state.log_start
            or extents[-1].end_offset != self._segments_from
            or any(one.end_offset != other.base_offset for one, other in pairwise(extents))
        ):
            raise Abandoned

    def _is_full(self, last_offset: int, size: int) -> bool:
        segment = self._made[-1]
        return segment.size + size > self.queue.spec.config.segment_bytes or last_offset - segment.base > RELATIVE_MAX

    def _finish_last(self, run: list[memoryview], end: int) -> None:
        """The segment that is written to takes these batches too, and ends before offset `end`."""
        for segment in self._made[-1:]:
            segment.append(run)
            rows = [row for row in self.queue.state.aborted if segment.base <= row.last < end]
            segment.finish(self.queue.spec.config.index_interval_bytes, rows or None)
