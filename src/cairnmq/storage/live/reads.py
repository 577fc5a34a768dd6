"""Everything that is read: visible batches from packs, segments and journals; aborted transactions; lookups by time.

A read has a named outcome: `Batches`, `NotCached` (the disk has to be waited for) or a `Refusal` (the offset is not
there). Damage is raised. The broker and the simulator call the same object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec import Struct

from cairnmq.codec.batch import only_empty
from cairnmq.errors import Corrupt, ErrorCode, Refusal
from cairnmq.storage.batches.batch_run import NotCached, Part, Wanted, sound_batches
from cairnmq.storage.files.buffers import ResponseArena
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import ENTRY_SIZE, NO_SEGMENTS, Aborted
from cairnmq.storage.live.follow_path import JournalRole
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.time_lookup import Found, Newest, find_record, newest_in_log
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.storage.queue.tail import Tail
from cairnmq.storage.queue.transactions import by_marker, overlapping
from cairnmq.storage.segments.queue_reader import QueueReader
from cairnmq.storage.segments.txn_index import NOTHING_KNOWN
from cairnmq.types import Buffer

READERS_MAX = 1000


class Batches(Struct):
    """Whole batches of one queue, and the offset after them. `aborted`: for a reader of committed records, the aborted
    transactions among them."""

    buffers: list[Buffer]
    size: int
    next_offset: int
    aborted: Sequence[Aborted] = ()


class Reads:
    """One storage's. Every method runs on the owner's thread unless it says that it blocks."""

    def __init__(
        self, disk: Disk, paths: Mapping[int, JournalRole], pack_set: PackSet, ignored: Mapping[int, Collection[int]]
    ) -> None:
        """`ignored`: by queue, segments that do not count."""
        self._disk = disk
        self._paths = paths
        self._pack_set = pack_set
        self._ignored = ignored
        self._read_queues: deque[Queue] = deque()  # queues with a reader, the oldest first
        self.tail_reads = 0

    def read(
        self,
        queue: Queue,
        offset: int,
        max_bytes: int,
        *,
        whole: bool,
        cached: bool,
        committed: bool = False,
        arena: ResponseArena | None = None,
    ) -> Batches | NotCached | Refusal:
        """For a consumer: visible batches from the one that holds `offset`; `NotCached` only if `cached`.

        At least one batch with records if `whole`, whatever `max_bytes` says: some clients do not move on over empty
        ones alone. `committed`: only those below the last stable offset. With an `arena` they lie there as far as they
        fit.
        """
        found = self._read(queue, offset, max_bytes, whole, cached, committed, arena)
        while whole and isinstance(found, Batches) and found.size and all(map(only_empty, found.buffers)):
            room, after = max(max_bytes - found.size, 0), found.next_offset
            try:
                more = self._read(queue, after, room, True, cached, committed, arena)
            except (Corrupt, OSError):
                break  # the next read begins with what cannot be read
            if not isinstance(more, Batches):
                return more
            if not more.size:
                break
            found = Batches([*found.buffers, *more.buffers], found.size + more.size, more.next_offset)
        if committed and isinstance(found, Batches) and found.size:
            aborted = self.aborted(queue, offset, found.next_offset, cached=cached)
            if isinstance(aborted, NotCached):
                return aborted
            found.aborted = aborted
        return found

    def read_batch(self, queue: Queue, offset: int, *, cached: bool) -> Batches | NotCached | Refusal:
        """The visible batch that holds `offset`, also if it is empty; no batch at the end."""
        return self._read(queue, offset, 1, True, cached, False, None)

    def _read(
        self,
        queue: Queue,
        offset: int,
        max_bytes: int,
        whole: bool,
        cached: bool,
        committed: bool,
        arena: ResponseArena | None,
    ) -> Batches | NotCached | Refusal:
        until = queue.last_stable if committed else queue.high_watermark
        refusal = _refusal(queue, offset, until)
        if refusal is not None:
            return refusal
        found = Batches([], 0, offset)
        if offset < queue.split_end:
            not_cached = self._read_log(queue, found, min(queue.split_end, until), max_bytes, whole, cached, arena)
            if found.next_offset < queue.split_end:
                return found if found.size or not_cached is None else not_cached
        if found.next_offset < until:
            not_cached = self._read_tail(queue, found, until, max_bytes, whole, cached, arena)
            if not_cached is not None and not found.size:
                return not_cached
        return found

    def _read_log(
        self,
        queue: Queue,
        found: Batches,
        limit: int,
        max_bytes: int,
        whole: bool,
        cached: bool,
        arena: ResponseArena | None,
    ) -> NotCached | None:
        """Adds split batches."""
        while found.next_offset < limit and (found.size < max_bytes or (whole and not found.size)):
            first = whole and not found.size
            try:
                part = self._read_split(
                    queue, found.next_offset, limit, max_bytes - found.size, arena, whole=first, cached=cached
                )
            except (Corrupt, OSError):
                if found.size:
                    return None  # the next read begins with what cannot be read
                raise
            if not isinstance(part, Part):
                return part
            if not len(part.data):
                return None
            found.buffers.append(part.data)
            found.size += len(part.data)
            found.next_offset = part.next_offset
        return None

    def _read_split(
        self,
        queue: Queue,
        offset: int,
        until: int,
        max_bytes: int,
        arena: ResponseArena | None,
        *,
        whole: bool,
        cached: bool,
    ) -> Part | NotCached:
        """From a pack or from the queue's own segments."""
        epoch, limit = queue.state.epoch_of(offset)
        limit = min(limit, until)
        packed_end = queue.packed_end
        if offset < packed_end:
            wanted = Wanted(offset, min(limit, packed_end), epoch, max_bytes, arena)
            return self._pack_set.read(queue.queue_id, wanted, whole=whole, cached=cached)
        reader = queue.reader or self._open_reader(queue)
        wanted = Wanted(offset, limit, epoch, max_bytes, arena)
        part = reader.read(wanted, whole=whole, cached=cached)
        return part if isinstance(part, Part) else NotCached(partial(_load, queue, reader, part))

    def _open_reader(self, queue: Queue) -> QueueReader:
        """Readers keep files open, and a process may not have as many of those as there are queues."""
        while len(self._read_queues) >= READERS_MAX:
            self._read_queues.popleft().reader = None  # closed when the last read on it ends
        self._read_queues.append(queue)
        queue.reader = self._reader_of(queue)
        return queue.reader

    def _reader_of(self, queue: Queue) -> QueueReader:
        interval, ignored = queue.config.index_interval_bytes, self._ignored.get(queue.queue_id, ())
        return QueueReader(self._disk, queue.spec.directory, interval, ignored, queue.queue_id)

    def _read_tail(
        self,
        queue: Queue,
        found: Batches,
        limit: int,
        max_bytes: int,
        whole: bool,
        cached: bool,
        arena: ResponseArena | None,
    ) -> NotCached | None:
        """Adds batches straight from the journal, as far as that does not wait for the disk."""
        tail = queue.tail
        index = tail.find(found.next_offset) if tail is not None else -1
        if tail is None or index < 0:
            return None
        offsets = tail.offsets
        count = len(offsets)
        while index < count and offsets[index] < limit:
            first, index = index, _run_end(tail, index, limit, max_bytes - found.size)
            if index == first:
                if found.size or not whole:
                    return None
                index += 1
            try:
                not_cached = self._read_run(queue, tail, found, first, index, cached, arena)
            except Damage:
                if found.size:
                    return None  # the next read begins with the damage
                raise
            if not_cached is not None or found.size >= max_bytes:
                return not_cached
        return None

    def _read_run(
        self,
        queue: Queue,
        tail: Tail,
        found: Batches,
        first: int,
        behind: int,
        cached: bool,
        arena: ResponseArena | None,
    ) -> NotCached | None:
        """Adds the batches `first` to `behind` of the tail, which are neighbours in the journal, with one read."""
        offsets, positions, sizes = tail.offsets, tail.positions, tail.sizes
        start = positions[first]
        length = positions[behind - 1] + sizes[behind - 1] - start
        file, at = self._paths[queue.journal].journal.locate(start)
        data = file.read_cached(at, length, arena) if cached else file.read(at, length)
        if data is None:
            return NotCached(partial(file.read, at, length))
        self.tail_reads += 1
        view = memoryview(data)
        if arena is not None:
            arena.keep(view)
        epoch, until = -1, -1
        for index in range(first, behind):
            begin, size, offset = positions[index] - start, sizes[index], offsets[index]
            batch = view[begin : begin + size]
            if offset >= until:
                epoch, until = queue.state.epoch_of(offset)
            end = offsets[index + 1] if index + 1 < len(offsets) else queue.end
            if sound_batches(batch, size, offset, offset + 1, epoch)[0] != size:
                raise Damage(Place(file.name, at + begin, str(queue.queue_id), offset, end))
            found.buffers.append(batch)
            found.size += size
            found.next_offset = end
        return None

    def aborted(self, queue: Queue, start: int, end: int, *, cached: bool) -> list[Aborted] | NotCached:
        """Aborted transactions with records from offset `start` up to `end`, in the order of their markers.

        `end` is not behind the last stable offset. `NotCached` only if `cached`.
        """
        known = queue.state.aborted
        rows = {row.last: row for row in overlapping(known, start, end)} if known else {}
        if queue.segments_from != NO_SEGMENTS and start < queue.split_end and queue.packed_end < queue.split_end:
            reader = queue.reader or self._open_reader(queue)
            sums = queue.row_sums if queue.row_sums and not queue.config.compact else NOTHING_KNOWN
            part = reader.aborted(start, end, queue.split_end, cached=cached, sums=sums)
            if not isinstance(part, list):
                return part
            rows.update((row.last, row) for row in part)
        return sorted(rows.values(), key=by_marker) if rows else []

    # ----------------------------------------------------------------------------------------------- looking up

    def find_in_log(self, queue: Queue, timestamp: int) -> int | None:
        """Base offset of the first split batch that reaches `timestamp`. Blocks, and may run on any thread."""
        if queue.split_end <= queue.log_start:
            return None
        place = None
        if queue.log_start < queue.packed_end:
            place = self._pack_set.find_time(queue.queue_id, timestamp, queue.log_start, queue.packed_end)
        if place is None and queue.packed_end < queue.split_end:
            place = self._reader_of(queue).find_time(timestamp, queue.split_end)
        return place.base_offset if place is not None else None

    def find_batch(self, queue: Queue, timestamp: int, in_log: int | None) -> int | None:
        """An offset in or before the first batch that reaches `timestamp`; `in_log` is what `find_in_log` said."""
        if in_log is None and queue.tail is not None:
            index = queue.tail.find_time(timestamp)
            if index < len(queue.tail):
                return queue.tail.offsets[index]
        return in_log

    def find_time(self, queue: Queue, timestamp: int, in_log: int | None) -> Found | None:
        """The first visible record whose timestamp reaches `timestamp`, for those who may wait for disks."""
        offset = self.find_batch(queue, timestamp, in_log)
        while offset is not None and offset < queue.high_watermark:
            fetched = self.read_batch(queue, max(offset, queue.log_start), cached=False)
            if not isinstance(fetched, Batches) or not fetched.buffers:
                return None
            found = find_record(fetched.buffers[0], timestamp, queue.log_start)
            if found is not None:
                return found
            offset = fetched.next_offset
        return None

    def newest_in_log(self, queue: Queue) -> Callable[[], Newest | None]:
        """A lookup of the largest timestamp that is split. The lookup blocks, and may run on any thread."""
        reader = (queue.reader or self._open_reader(queue)) if queue.packed_end < queue.split_end else None
        return partial(newest_in_log, self._pack_set, queue, reader)


def _refusal(queue: Queue, offset: int, until: int) -> Refusal | None:
    if queue.cut_short and offset >= until:  # the end of the transaction that is open there may be lost too
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"offset {offset}; the journal is damaged after {queue.end}")
    if offset < queue.log_start or offset > queue.end:
        why = f"offset {offset}; the partition holds {queue.log_start} to {queue.end}"
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, why)
    return None


def _run_end(tail: Tail, first: int, limit: int, room: int) -> int:
    """The index after the batches from `first` on that are neighbours in the journal and fit into `room`."""
    offsets, positions, sizes = tail.offsets, tail.positions, tail.sizes
    start = end = positions[first]
    index, count = first, len(offsets)
    while index < count and offsets[index] < limit:
        position = positions[index]
        if (index > first and position - end != ENTRY_SIZE) or position + sizes[index] - start > room:
            break
        end = position + sizes[index]
        index += 1
    return index


def _load(queue: Queue, reader: QueueReader, not_cached: NotCached) -> None:
    """Files of a reader that is no longer the queue's may be gone. That is no damage: the next read takes others."""
    try:
        not_cached.load()
    except Damage:
        if queue.reader is reader:
            raise
