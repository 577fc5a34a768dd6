"""One pass of compaction over a queue's own segments, in small steps between the splitter's rounds.

New files are written beside the old ones; what makes them count is the splitter's checkpoint (docs/compaction.md).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from msgspec import Struct

from cairnmq.codec.batch import offset_and_size, read_header
from cairnmq.storage.batches.batch_run import Part, Suspect, Wanted, read_batches
from cairnmq.storage.compaction.aborted_ranges import AbortedRanges, aborted_ranges
from cairnmq.storage.compaction.cleaned_segment import CleanedSegment
from cairnmq.storage.compaction.plan import Stretch, fits
from cairnmq.storage.compaction.queue_job import Abandoned, CannotCompact, QueueJob
from cairnmq.storage.compaction.sieve import KeyMap, Pass, Sieve, Weaver, note_keys
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.segments.segment import LOG, TXN_INDEX, SegmentRun, find_offset, segment_name
from cairnmq.storage.segments.txn_index import read_rows
from cairnmq.storage.splitter.split_queue import SplitQueue
from cairnmq.storage.splitter.split_records import SplitRecords
from cairnmq.types import Buffers

READ_BYTES = 1 << 20
SEGMENT_BYTES_MAX = 0x7FFFFFFF  # positions in its index are of 32 bits, with a sign


class Tally(Struct):
    """What compaction has done since the splitter started."""

    passes: int = 0
    read_bytes: int = 0  # of segments and packs that were filtered
    written_bytes: int = 0
    keys_peak: int = 0


def parts(disk: Disk, directory: str, base: int, first: int, limit: int) -> Iterator[memoryview]:
    """Runs of sound batches of a segment, from the one holding offset `first` up to `limit`."""
    file = disk.open(segment_name(directory, base, LOG))
    try:
        position, expected = 0, base
        if first > base:
            place = find_offset(disk, directory, base, file, first)
            if place is None:
                raise Damage(Place(file.name, file.size(), directory, first, limit))
            position, expected = place.position, place.base_offset
        checked = 0
        while expected < limit:
            wanted = Wanted(expected, limit, -1, READ_BYTES)
            part = read_batches(file, position, None, wanted, whole=True, cached=False, checked=checked)
            if isinstance(part, Suspect) and not checked:
                checked = SegmentRun(disk, directory, base, file).look_closer(position, expected, -1).size
                continue
            checked = 0
            if not isinstance(part, Part) or not len(part.data):
                raise Damage(Place(file.name, position, directory.rpartition("/")[2], expected, limit))
            yield part.data
            position, expected = position + len(part.data), part.next_offset
    finally:
        file.close()


def batches_of(part: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(part):
        size = offset_and_size(part, at)[1]
        yield part[at : at + size]
        at += size


class CompactionJob(QueueJob):
    """`segments`: all closed ones below `end`, in order."""

    def __init__(
        self,
        records: SplitRecords,
        queue: SplitQueue,
        segments: list[Stretch],
        end: int,
        *,
        keys_max: int,
        seed: bytes,
        now_ms: int,
        tally: Tally,
    ) -> None:
        super().__init__(records, queue)
        self._segments = segments
        self._ahead = segments  # those that no swap has taken yet: a checkpoint may count swaps in the middle of a pass
        self._end = end
        self._keys = KeyMap(keys_max, seed)
        self._now_ms = now_ms
        self._tally = tally
        self._aborted = AbortedRanges()
        self._file: CleanedSegment | None = None

    def _look(self) -> None:
        super()._look()
        queue = self.queue
        assert queue.log is not None
        if not queue.spec.config.compact or not {segment.base for segment in self._ahead}.issubset(queue.log.bases):
            raise Abandoned

    def _drop_files(self) -> None:
        if self._file is not None:
            self._file.drop()
            self._file = None

    # ------------------------------------------------------------------------------------------------- the phases

    def _run(self) -> Generator[int, None, None]:
        queue, clean_end = self.queue, self.queue.compaction.clean_end
        assert queue.log is not None
        self._aborted = aborted_ranges(
            self.disk, queue.spec.directory, queue.log.bases, queue.state.aborted, queue.row_sums
        )
        # what becomes of the records of an open transaction is not decided
        end = min([self._end, *queue.state.open_transactions.values()])
        end = yield from self._note_keys(clean_end, end)
        self._tally.keys_peak = max(self._tally.keys_peak, self._keys.count)
        course = Pass(
            self._keys,
            end,
            self._now_ms,
            queue.spec.config.delete_retention_ms,
            self._aborted,
            dict(queue.state.producers),
            covers_all=queue.state.log_start >= queue.segments_from,
        )
        sieve, weaver = Sieve(course), Weaver(queue.spec.queue_id)
        taken = [segment for segment in self._segments if segment.base < end]
        yield from self._rewrite(taken, sieve, weaver)
        self.records.replacements.cleaned_to(queue, max(end, clean_end))
        self.came_further = end > clean_end
        self._tally.passes += 1

    def _note_keys(self, clean_end: int, end: int) -> Generator[int, None, int]:
        """The offset up to which the map holds all keys."""
        directory = self.queue.spec.directory
        for segment in self._segments:
            if segment.end <= clean_end:
                continue
            for part in parts(self.disk, directory, segment.base, max(segment.base, clean_end), segment.end):
                for batch in batches_of(part):
                    offset = offset_and_size(batch, 0)[0]
                    if offset >= end or not note_keys(self._keys, batch, self._aborted):
                        return min(offset, end)
                yield len(part)
        return end

    def _rewrite(self, segments: list[Stretch], sieve: Sieve, weaver: Weaver) -> Iterator[int]:
        """What is left of neighbours goes into one file as long as the next fits in."""
        directory, config = self.queue.spec.directory, self.queue.spec.config
        joined: list[Stretch] = []
        for segment in segments:
            if self._file is not None and not fits(segment, self._file.base, self._file.size, config):
                self._close_file(joined, sieve, weaver)
                joined = []
            if self._file is None:
                self._file = CleanedSegment(self.disk, directory, segment.base)
            joined.append(segment)
            for part in parts(self.disk, directory, segment.base, segment.base, segment.end):
                self._append(
                    [
                        entry.payload
                        for batch in batches_of(part)
                        for entry in weaver.add(read_header(batch), sieve.strain(batch))
                    ]
                )
                self._tally.read_bytes += len(part)
                reach("compaction-write")
                yield len(part)
        if joined:
            self._close_file(joined, sieve, weaver)

    def _append(self, batches: Buffers) -> None:
        """Batches may grow: a delete horizon makes times longer, and codecs pack less well than their producers did."""
        file = self._file
        assert file is not None
        if file.size + sum(map(len, batches)) > SEGMENT_BYTES_MAX:
            raise CannotCompact(
                f"what remains of its segment at offset {file.base} has more than {SEGMENT_BYTES_MAX} bytes; the queue "
                f"is not compacted any more until enough of that segment is superseded"
            )
        file.append(batches)

    def _close_file(self, joined: list[Stretch], sieve: Sieve, weaver: Weaver) -> None:
        """It takes these segments' place at the next checkpoint."""
        file, directory, known = self._file, self.queue.spec.directory, self.queue.row_sums
        assert file is not None
        self._append([entry.payload for entry in weaver.finish()])
        rows = None
        if any(self.disk.exists(segment_name(directory, segment.base, TXN_INDEX)) for segment in joined):
            rows = [row for segment in joined for row in read_rows(self.disk, directory, segment.base, known)]
            # of an aborted transaction without a marker, readers would never hear the end
            rows = [row for row in rows if row.last not in sieve.gone_markers]
        file.finish(self.queue.spec.config.index_interval_bytes, rows)
        self._tally.written_bytes += file.size
        self._look()
        self._file = None
        self._ahead = self._ahead[len(joined) :]
        self.records.replacements.give(self.queue, [segment.base for segment in joined], joined[-1].end)
