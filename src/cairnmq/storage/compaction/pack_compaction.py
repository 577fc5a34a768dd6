"""Compaction of queues that lie in packs: a merge filters their extents. Which packs to merge for it is decided here.

The map holds the keys of what the merge reads, so a merge makes its own output clean, however many packs there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from cairnmq.codec.batch import offset_and_size, read_header
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.compaction.aborted_ranges import AbortedRanges
from cairnmq.storage.compaction.job import Tally, batches_of
from cairnmq.storage.compaction.plan import Stretch, cleanable_end, due
from cairnmq.storage.compaction.sieve import KeyMap, Pass, Sieve, Weaver, note_keys
from cairnmq.storage.files.format import Aborted, Entry, Extent, QueueRow
from cairnmq.storage.packs.pack import EXTENT_BYTES, PackReader

WORTH_SHARE = 1 / 16  # dirty bytes of what a merge for compaction's sake would write again

Extents = Sequence[tuple[PackReader, Extent]]
Write = Callable[[Sequence[Entry]], None]


class DirtyQueue(Struct, frozen=True):
    """A queue in packs that is due: the first and the last pack that hold it, by their place in the pack set."""

    queue_id: int
    first: int
    last: int
    dirty: int
    is_overdue: bool


def stretches(extents: Sequence[Extent]) -> list[Stretch]:
    return [Stretch(e.base_offset, e.end_offset, e.size, e.max_timestamp, e.max_timestamp) for e in extents]


def dirty_queue(
    row: QueueRow, config: LogConfig, places: Sequence[tuple[int, Extent]], now_ms: int
) -> DirtyQueue | None:
    """`places`: the queue's extents above its log start, each with its pack's place in the pack set."""
    found = due(stretches([extent for _, extent in places]), row.compaction.clean_end, config, now_ms)
    if found is None:
        return None
    taken = [index for index, extent in places if extent.base_offset < found.end]
    return DirtyQueue(row.queue_id, taken[0], taken[-1], found.dirty, found.is_overdue)


def packs_to_compact(dirty: Sequence[DirtyQueue], sizes: Sequence[int], bytes_max: int) -> tuple[int, int] | None:
    """The first and the last place in the pack set of packs to merge; None: none is worth it."""
    best: tuple[float, tuple[int, int]] | None = None
    runs = {(queue.first, queue.last) for queue in dirty}
    if dirty:
        runs.add((min(queue.first for queue in dirty), max(queue.last for queue in dirty)))
    for first, last in runs:
        cost = sum(sizes[first : last + 1])
        within = [queue for queue in dirty if first <= queue.first and queue.last <= last]
        share = sum(queue.dirty for queue in within) / max(cost, 1)
        worth = share >= WORTH_SHARE or any(queue.is_overdue for queue in within)
        if worth and cost <= bytes_max and (best is None or share > best[0]):
            best = share, (first, last)
    return best[1] if best is not None else None


class ExtentCleaning:
    """One queue's part of a merge. `run`, then `end` is the offset below which its keys are unique here."""

    def __init__(
        self,
        row: QueueRow,
        config: LogConfig,
        *,
        seed: bytes,
        keys_max: int,
        now_ms: int,
        tally: Tally,
        aborted: Sequence[Aborted] = (),
    ) -> None:
        """`aborted`: transactions that end in the queue's segments."""
        self.row = row
        self.config = config
        self._aborted = AbortedRanges([*row.aborted, *aborted])
        self.end = 0
        self.covers_all = False
        self._keys = KeyMap(keys_max, seed)
        self._now_ms = now_ms
        self._tally = tally

    @staticmethod
    def can(extents: Extents) -> bool:
        """Each goes on where the one before ends; else damage keeps apart what belongs together."""
        return all(one.end_offset == other.base_offset for (_, one), (_, other) in pairwise(extents))

    def run(self, extents: Extents, write: Write) -> Iterator[int]:
        """Yields the bytes read, now and then."""
        end = cleanable_end(stretches([e for _, e in extents]), extents[0][1].base_offset, self.config, self._now_ms)
        self.end = min([end, *(producer.txn_start for producer in self.row.producers if producer.txn_start >= 0)])
        yield from self._note_keys(extents)
        self.covers_all = extents[0][1].base_offset <= self.row.log_start
        self._tally.keys_peak = max(self._tally.keys_peak, self._keys.count)
        course = Pass(
            self._keys,
            self.end,
            self._now_ms,
            self.config.delete_retention_ms,
            self._aborted,
            {producer.producer_id: producer for producer in self.row.producers},
            covers_all=self.covers_all,
            keeps_markers=True,
        )
        yield from self._filter(extents, course, write)

    def _note_keys(self, extents: Extents) -> Iterator[int]:
        for pack, extent in extents:
            for batch in batches_of(memoryview(pack.data(extent))):
                offset = offset_and_size(batch, 0)[0]
                if offset >= self.end:
                    return
                if not note_keys(self._keys, batch, self._aborted):
                    self.end = offset
                    return
            yield extent.size

    def _filter(self, extents: Extents, course: Pass, write: Write) -> Iterator[int]:
        sieve, weaver = Sieve(course), Weaver(self.row.queue_id)
        waiting: list[Entry] = []
        size = 0
        for pack, extent in extents:
            for batch in batches_of(memoryview(pack.data(extent))):
                for entry in weaver.add(read_header(batch), sieve.strain(batch)):
                    waiting.append(entry)
                    size += len(entry.payload)
            if size >= EXTENT_BYTES:
                self._tally.written_bytes += size
                write(waiting)
                waiting, size = [], 0
            self._tally.read_bytes += extent.size
            yield extent.size
        waiting.extend(weaver.finish())
        if waiting:
            self._tally.written_bytes += sum(len(entry.payload) for entry in waiting)
            write(waiting)
