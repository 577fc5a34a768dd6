"""A broker's storage without threads or sockets: queues, journals' write paths, reads, and what the splitter reports.

The asyncio shell (broker/store.py) and the simulator drive the same object. Every method runs on the owner's thread
unless it says that it blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import Struct

from cairnmq.codec.batch import TRANSACTIONAL_BIT, read_header
from cairnmq.codec.records import UNPACKED_BYTES_MAX, decode_batch, wrapped
from cairnmq.errors import Corrupt, ErrorCode, Refusal
from cairnmq.storage.checkpoint import CheckpointImage, load_checkpoint
from cairnmq.storage.chunks import Tray
from cairnmq.storage.damage import Damage, DamageList, Place
from cairnmq.storage.disk import Disk
from cairnmq.storage.doubt import doubt_name
from cairnmq.storage.fault_point import reach
from cairnmq.storage.format import BATCH, ENTRY_SIZE, NO_SEGMENTS, Aborted, numbered
from cairnmq.storage.journal import JournalReader
from cairnmq.storage.markers import Marker, StagedMarkers
from cairnmq.storage.pack_shelf import PackShelf
from cairnmq.storage.producers import live
from cairnmq.storage.queue import Queue
from cairnmq.storage.queue_log import QueueSpec
from cairnmq.storage.queue_reader import QueueReader
from cairnmq.storage.queue_segment import TXN_INDEX, Part, Wanted, Warm, left_over, sound_batches
from cairnmq.storage.queue_state import QueueState
from cairnmq.storage.queue_transactions import by_marker, overlapping
from cairnmq.storage.recovery import Progress, Scan, live_queues, recover_journal, reopened
from cairnmq.storage.repair import refuse_stale_checkpoint
from cairnmq.storage.split_report import Published, Resume, Round
from cairnmq.storage.tail import Tail
from cairnmq.storage.txn_index import NOTHING_KNOWN
from cairnmq.storage.write_path import WritePath
from cairnmq.types import Buffer

READERS_MAX = 1000


class EngineConfig(Struct, frozen=True, kw_only=True):
    journals: int = 1
    segment_bytes: int = 256 << 20
    retain_bytes: int = 0
    unsplit_bytes_max: int = 1 << 30
    unsplit_entries_max: int = 1_000_000


class Fetched(Struct):
    """Whole batches from one queue, and the offset behind them."""

    buffers: list[Buffer]
    size: int
    next_offset: int


class Found(Struct, frozen=True, gc=False):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


class SplitBatch(Struct, frozen=True, gc=False):
    """A batch that is in a queue log and still in the journal."""

    journal: int
    queue_id: int
    offset: int
    position: int
    size: int
    timestamp: int


class Engine:
    """Made by `Engine.open`, which is recovery."""

    def __init__(
        self,
        read_disk: Disk,
        image: CheckpointImage,
        queues: dict[int, Queue],
        paths: list[WritePath],
        keyed: dict[tuple[str, bytes], bytes],
        scans: list[Scan],
        config: EngineConfig,
        epoch: int,
    ) -> None:
        self.read_disk = read_disk
        self.image = image
        self.queues = queues
        self.paths = paths
        self.keyed = keyed
        self.scans = scans
        self.config = config
        self.epoch = epoch
        self.split = {scan.number: scan.start for scan in scans}
        self.checkpointed = dict(self.split)
        self.shelf = PackShelf(read_disk, image.packs)
        self.damages = DamageList(scan.damage for scan in scans if scan.damage is not None)
        for place in self.shelf.damages():
            self.damages.add(place)
        self._resume = Resume(dict(self.split))
        self.tail_reads = 0
        # segments that a power loss may have left, all or some, until the splitter has opened the log
        self._left_over = {
            queue_id: left_over(read_disk.list(queues[queue_id].spec.directory), row.compaction.swaps)
            for queue_id, row in image.queues.items()
            if row.compaction.swaps and queue_id in queues
        }
        self._read: deque[Queue] = deque()  # queues with a reader, the oldest first

    @classmethod
    def open(
        cls,
        journal_disk: Disk,
        read_disk: Disk,
        specs: Iterable[QueueSpec],
        *,
        epoch: int,
        seed: int,
        config: EngineConfig,
        now_ms: int,
        progress: Progress | None = None,
    ) -> Engine:
        """Recovers everything the directories hold. `epoch` must be higher than any before; `seed` is for a journal
        that has none yet. Journals that exist are kept even if `config.journals` is lower now; a queue changes journals
        only while all its entries are below the checkpoint."""
        image = load_checkpoint(read_disk)
        found = {int(name) for name in journal_disk.list("") if name.isdigit()} | set(image.marks)
        numbers = range(max([config.journals - 1, *found]) + 1)
        queues = live_queues(specs, image, lambda queue_id: queue_id % config.journals)
        segmented = (q.spec.directory for q in queues.values() if max(q.log_start, q.packed_end) < q.split_end)
        refuse_stale_checkpoint(read_disk, image, segmented)
        keyed = dict(image.keyed)
        scans, paths = [], []
        for number in numbers:
            journal_disk.make_dir(str(number))
            scan, reader = recover_journal(journal_disk, number, image, queues, keyed, now_ms=now_ms, progress=progress)
            if scan.epoch >= epoch:
                raise Corrupt(
                    f"epoch {epoch} is not above {scan.epoch}, which journal {number} holds: the metadata is older "
                    f"than the journal. Restore it."
                )
            journal = reopened(
                journal_disk,
                reader,
                scan.end,
                epoch=epoch,
                seed=reader.find_seed() or seed,
                segment_bytes=config.segment_bytes,
            )
            reader.close()
            path = WritePath(journal)
            path.unsplit_entries = scan.entries
            if scan.damage is not None:
                path.stop(scan.damage_text)
            scans.append(scan)
            paths.append(path)
        journal_disk.sync_dir("")
        read_disk.remove(doubt_name(""))  # the splitter that starts now makes everything behind the checkpoint again
        return cls(read_disk, image, queues, paths, keyed, scans, config, epoch)

    # ------------------------------------------------------------------------------------------------ the queues

    def add_queues(self, specs: Iterable[QueueSpec]) -> None:
        for spec in specs:
            self.queues[spec.queue_id] = Queue(spec, QueueState(), spec.queue_id % self.config.journals)

    def drop_queues(self, queue_ids: Iterable[int]) -> list[Queue]:
        """Their entries that are still in journals are skipped by everyone who meets them."""
        return [queue for queue_id in queue_ids if (queue := self.queues.pop(queue_id, None)) is not None]

    def configure(self, spec: QueueSpec) -> None:
        self.queues[spec.queue_id].spec = spec

    def path_of(self, queue: Queue) -> WritePath:
        return self.paths[queue.journal]

    def stage_markers(self, markers: Sequence[Marker], now_ms: int) -> StagedMarkers:
        """Ends transactions: as durable as acks=all is on their topics. A queue that is deleted has nothing to end."""
        done = StagedMarkers([], [], {}, {})
        for marker in markers:
            queue = self.queues.get(marker.queue_id)
            end = self.path_of(queue).stage_marker(queue, marker, now_ms) if queue is not None else 0
            if isinstance(end, Refusal):
                done.codes.append(end.code)
                done.ends.append(0)
                if end.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    done.stopped = end.message
                continue
            done.codes.append(ErrorCode.NONE)
            done.ends.append(end)
            if queue is not None:
                # What follows in journal 0 ("complete") must not outlive a marker in another journal.
                line = done.synced if queue.config.flush == "commit" or queue.journal else done.written
                line[queue.journal] = max(end, line.get(queue.journal, 0))
        return done

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        for queue in self.queues.values():
            if queue.state.producers:
                queue.state.producers = live(queue.state.producers, now_ms, expiration_ms)

    # -------------------------------------------------------------------------------------- the splitter's reports

    def on_round(self, done: Round) -> None:
        path = self.paths[done.journal]
        assert done.position <= min(path.journal.synced, path.journal.high_watermark)  # invariant 1
        resume = self._resume
        if done.pack:
            self.shelf.add(done.pack)
            resume.packs.append(done.pack)
        for split in done.queues:
            queue = self.queues.get(split.queue_id)
            if queue is None:
                continue
            if queue.segments_from != split.segments_from:
                queue.segments_from = resume.segments_from[split.queue_id] = split.segments_from
            queue.learn_sums(split.row_sums)
            queue.split_to(split.end)
            if queue.reader is not None:
                try:
                    queue.reader.saw_segment(split.last_segment, aborted=bool(split.row_sums))
                except OSError:
                    queue.reader = None  # the next read looks for itself; the round must be taken in whole
        path.unsplit_entries -= done.batches
        self.split[done.journal] = resume.positions[done.journal] = done.position

    def on_checkpoint(self, published: Published) -> None:
        """OSError says that journal segments could not be removed; all else is done, and the next one removes them."""
        self.shelf.replace(published.packs)
        for queue_id in published.demoted:
            self._left_over.pop(queue_id, None)
            queue = self.queues.get(queue_id)
            if queue is not None:
                queue.segments_from, queue.reader, queue.row_sums = NO_SEGMENTS, None, None
                self._recall_aborted(queue, published.aborted.get(queue_id, ()))
        for queue_id, segments_from in published.compacted.items():
            queue = self.queues.get(queue_id)
            if queue is not None:
                queue.row_sums = None
                queue.reader = None  # what it has open and remembers is of the old files
                if queue.segments_from != segments_from:
                    queue.segments_from = segments_from
                    queue.state.forget_aborted(segments_from, queue.split_end)  # a `.txnindex` has them
        self._resume = Resume(dict(self.split))
        for number, position in published.positions.items():
            assert position <= self.split[number]
            self.checkpointed[number] = position
        for number, position in published.positions.items():
            reach("journal-delete")
            self.paths[number].journal.remove_below(position - self.config.retain_bytes)

    @staticmethod
    def _recall_aborted(queue: Queue, rows: Iterable[Aborted]) -> None:
        """Aborted transactions that are no longer to be read from the queue's segments."""
        queue.state.add_aborted(rows)
        queue.state.forget_aborted(0, queue.log_start)

    def scan_split(self) -> tuple[CheckpointImage, list[SplitBatch], dict[int, QueueState]]:
        """The checkpoint on disk, the batches that were split since, from the journals, and what their transactions
        came to. Blocks, and may run on any thread while there is no splitter."""
        image = load_checkpoint(self.read_disk)  # it may be younger than the last one that was reported
        found = []
        states: dict[int, QueueState] = {}
        for number, end in self.split.items():
            mark = image.marks.get(number)
            reader = JournalReader(self.paths[number].journal.disk, number)
            position = mark.split if mark is not None else 0
            for entry in reader.entries(position, end):
                position = entry.end
                if entry.kind == BATCH:
                    place, size = entry.position + ENTRY_SIZE, len(entry.payload)
                    found.append(
                        SplitBatch(number, entry.queue_id, entry.base_offset, place, size, entry.max_timestamp)
                    )
                    if entry.attributes & TRANSACTIONAL_BIT:
                        state = states.get(entry.queue_id)
                        if state is None:
                            row = image.queues.get(entry.queue_id)
                            state = QueueState.from_row(row) if row is not None else QueueState()
                            states[entry.queue_id] = state
                        state.fold(entry, 0)
            reader.close()
            if position < end:
                raise Corrupt(f"journal {number} is damaged at position {position}; it was split up to {end}")
        return image, found, states

    def unsplit(self, image: CheckpointImage, found: list[SplitBatch], states: dict[int, QueueState]) -> None:
        """Back to the checkpoint: what was split since is in doubt, so it is read from the journals again, and the
        next splitter makes it anew. Only while there is no splitter."""
        for queue_id, state in states.items():
            if queue_id in self.queues:
                self._recall_aborted(self.queues[queue_id], state.aborted)
        tails: dict[int, Tail] = {}
        for batch in found:
            self.paths[batch.journal].unsplit_entries += 1
            queue = self.queues.get(batch.queue_id)
            if queue is None:
                continue
            tail = tails.get(batch.queue_id)
            if tail is None:
                tail = tails[batch.queue_id] = Tail()
                queue.split_end = batch.offset
            tail.add(batch.offset, batch.position, batch.size, batch.timestamp)
        for queue_id, tail in tails.items():
            queue = self.queues[queue_id]
            if queue.tail is not None:
                tail.extend(queue.tail)
            queue.tail = tail
        for queue_id in {*tails, *self._resume.segments_from}.intersection(self.queues):
            row = image.queues.get(queue_id)
            queue = self.queues[queue_id]
            queue.segments_from, queue.reader = row.segments_from if row is not None else NO_SEGMENTS, None
            queue.row_sums = None
            if row is not None and not row.compaction.swaps:
                queue.learn_sums(row.row_sums)
        self.shelf.replace(image.packs)
        for number in self.split:
            mark = image.marks.get(number)
            self.split[number] = mark.split if mark is not None else 0
        self._resume = Resume(dict(self.split))

    def mended(self, queue_id: int, file: str) -> None:
        """The splitter has put a good file in the place of a damaged one."""
        self.damages.mended(file)
        queue = self.queues.get(queue_id)
        if queue is not None:
            queue.reader = None
            for base in numbered([file.rpartition("/")[2]], TXN_INDEX):
                queue.row_sums = {b: known for b, known in (queue.row_sums or {}).items() if b != base}

    def resume(self) -> Resume:
        """What a successor of a splitter that died alone must know."""
        return self._resume.copy()

    def splittable(self, number: int) -> int:
        """How far the splitter may go: nothing is split before it is synced and below the high watermark."""
        journal = self.paths[number].journal
        return min(journal.synced, journal.high_watermark)

    def full(self, path: WritePath) -> bool:
        """Producers of this journal wait while the backlog is at its cap; of one that stopped, they are refused."""
        if path.stopped is not None:
            return False
        journal = path.journal
        return (
            journal.staged_end - self.split[journal.number] >= self.config.unsplit_bytes_max
            or path.unsplit_entries >= self.config.unsplit_entries_max
        )

    # ---------------------------------------------------------------------------------------------------- reading

    def read(
        self,
        queue: Queue,
        offset: int,
        max_bytes: int,
        *,
        whole: bool,
        cached: bool,
        committed: bool = False,
        tray: Tray | None = None,
    ) -> Fetched | Refusal | Warm:
        """Visible batches from the one holding `offset` on; a `Warm` (only if `cached`) when that waits for the disk.

        At least one batch if `whole`, whatever `max_bytes` says. `committed`: only those below the last stable offset;
        which of them are aborted, `aborted` says. With a `tray` they lie there as far as they fit.
        """
        if offset < queue.log_start or offset > queue.end:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}; the queue holds {queue.log_start} to {queue.end}"
            )
        fetched = Fetched([], 0, offset)
        until = queue.last_stable if committed else queue.visible
        split = min(queue.split_end, until)
        while fetched.next_offset < split and (fetched.size < max_bytes or (whole and not fetched.size)):
            try:
                part = self._read_split(
                    queue,
                    fetched.next_offset,
                    split,
                    max_bytes - fetched.size,
                    tray,
                    whole=whole and not fetched.size,
                    cached=cached,
                )
            except (Corrupt, OSError):
                if fetched.size:
                    return fetched  # the next read begins with what cannot be read
                raise
            if not isinstance(part, Part):
                return fetched if fetched.size else part
            if not len(part.data):
                return fetched
            fetched.buffers.append(part.data)
            fetched.size += len(part.data)
            fetched.next_offset = part.next_offset
        if fetched.next_offset < until:
            warm = self._read_tail(queue, fetched, until, max_bytes, whole, cached, tray)
            if warm is not None and not fetched.size:
                return warm
        return fetched

    def _read_split(
        self, queue: Queue, offset: int, until: int, max_bytes: int, tray: Tray | None, *, whole: bool, cached: bool
    ) -> Part | Warm:
        """From a pack or from the queue's own segments."""
        epoch, limit = queue.state.epoch_of(offset)
        limit = min(limit, until)
        packed_end = queue.packed_end
        if offset < packed_end:
            wanted = Wanted(offset, min(limit, packed_end), epoch, max_bytes, tray)
            return self.shelf.read(queue.queue_id, wanted, whole=whole, cached=cached)
        reader = queue.reader or self._open_reader(queue)
        wanted = Wanted(offset, limit, epoch, max_bytes, tray)
        part = reader.read(wanted, whole=whole, cached=cached)
        return part if isinstance(part, Part) else partial(_warm, queue, reader, part)

    def _open_reader(self, queue: Queue) -> QueueReader:
        """Readers keep files open, and a process may not have as many of those as there are queues."""
        while len(self._read) >= READERS_MAX:
            self._read.popleft().reader = None  # closed when the last read on it ends
        self._read.append(queue)
        queue.reader = self._reader_of(queue)
        return queue.reader

    def _reader_of(self, queue: Queue) -> QueueReader:
        interval, ignored = queue.config.index_interval_bytes, self._left_over.get(queue.queue_id, ())
        return QueueReader(self.read_disk, queue.spec.directory, interval, ignored)

    def _read_tail(
        self,
        queue: Queue,
        fetched: Fetched,
        limit: int,
        max_bytes: int,
        whole: bool,
        cached: bool,
        tray: Tray | None,
    ) -> Warm | None:
        """Adds batches straight from the journal, as far as that does not wait for the disk."""
        tail = queue.tail
        if tail is None:
            return None
        index = tail.find(fetched.next_offset)
        if index < 0:
            return None
        offsets, positions, sizes = tail.offsets, tail.positions, tail.sizes
        journal = self.paths[queue.journal].journal
        count = len(offsets)
        epoch, until = -1, -1
        while index < count and offsets[index] < limit:
            # neighbours in the journal are read together: one pread instead of many
            first = index
            start = positions[index]
            end = start
            room = max_bytes - fetched.size
            while index < count and offsets[index] < limit:
                gap = positions[index] - end
                if (index > first and gap != ENTRY_SIZE) or positions[index] + sizes[index] - start > room:
                    break
                end = positions[index] + sizes[index]
                index += 1
            if index == first:
                if fetched.size or not whole:
                    return None
                end = start + sizes[index]
                index += 1
            file, at = journal.locate(start)
            data = file.read_cached(at, end - start, tray) if cached else file.read(at, end - start)
            if data is None:
                return partial(file.read, at, end - start)
            self.tail_reads += 1
            view = memoryview(data)
            if tray is not None:
                tray.keep(view)
            for i in range(first, index):
                begin, size = positions[i] - start, sizes[i]
                batch = view[begin : begin + size]
                if offsets[i] >= until:
                    epoch, until = queue.state.epoch_of(offsets[i])
                if sound_batches(batch, size, offsets[i], offsets[i] + 1, epoch)[0] != size:
                    if fetched.size:
                        return None  # the next read begins with the damage
                    end = offsets[i + 1] if i + 1 < count else queue.end
                    raise Damage(Place(file.name, at + begin, str(queue.queue_id), offsets[i], end))
                fetched.buffers.append(batch)
                fetched.size += size
                fetched.next_offset = offsets[i + 1] if i + 1 < count else queue.end
            if fetched.size >= max_bytes:
                return None
        return None

    def aborted(self, queue: Queue, start: int, end: int, *, cached: bool) -> list[Aborted] | Warm:
        """Aborted transactions with records from offset `start` up to `end`, in the order of their markers.

        `end` is not behind the last stable offset. A `Warm` (only if `cached`) when that waits for the disk.
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
            place = self.shelf.find_time(queue.queue_id, timestamp, queue.log_start, queue.packed_end)
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
        while offset is not None and offset < queue.visible:
            fetched = self.read(queue, max(offset, queue.log_start), 1, whole=True, cached=False)
            if not isinstance(fetched, Fetched) or not fetched.buffers:
                return None
            found = find_record(fetched.buffers[0], timestamp, queue.log_start)
            if found is not None:
                return found
            offset = fetched.next_offset
        return None

    def largest_in_log(self, queue: Queue) -> int:
        """The largest timestamp that is split, -1 if none is. Blocks, and may run on any thread."""
        if queue.split_end <= queue.log_start:
            return -1
        largest = -1
        if queue.log_start < queue.packed_end:
            largest = self.shelf.largest_timestamp(queue.queue_id, queue.log_start)
        if queue.packed_end < queue.split_end:
            reader = self._reader_of(queue)
            largest = max(largest, reader.largest_timestamp(queue.split_end))
        return largest

    def largest_in_tail(self, queue: Queue) -> int:
        if queue.tail is None:
            return -1
        visible = sum(1 for offset in queue.tail.offsets if offset < queue.visible)
        return max(queue.tail.timestamps[:visible], default=-1)

    def epoch_end(self, queue: Queue, epoch: int) -> tuple[int, int]:
        return queue.state.epoch_end(epoch, self.epoch, queue.end)


def _warm(queue: Queue, reader: QueueReader, warm: Warm) -> None:
    """Files of a reader that is no longer the queue's may be gone. That is no damage: the next read takes others."""
    try:
        warm()
    except Damage:
        if queue.reader is reader:
            raise


def find_record(batch: Buffer, timestamp: int, log_start: int, unpacked_max: int = UNPACKED_BYTES_MAX) -> Found | None:
    """The first record of a batch that reaches `timestamp`. Decompresses, so it takes its time; any thread.

    Nobody has checked what the producer wrote into its records: an offset outside of the batch is not believed.
    """
    header = read_header(batch)
    first = max(log_start, header.base_offset)
    for record in decode_batch(batch, limit=unpacked_max):
        time = wrapped(record.timestamp)
        if time >= timestamp and first <= record.offset <= header.last_offset:
            return Found(record.offset, time, header.leader_epoch)
    return None
