"""A journal that is damaged behind the checkpoint: what is left of it, and the same journal made anew of that.

`Remains` reads and decides: entries before the damage, sound ones behind it, and empty batches where records of a queue
are missing in between, so that its offsets stay dense. `rebuild` writes them into a directory of their own, and `place`
puts that in the place of the old one. If that is stopped in between, a manifest in the new directory says how to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from cairnmq.codec.batch import CONTROL_BIT, CRC_START, EMPTY_DELTA_MAX, NO_TIMESTAMP, TRANSACTIONAL_BIT, empty_batch
from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files import sealed_json
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.format import (
    BATCH,
    ENTRY_HEAD,
    ENTRY_SIZE,
    FACT,
    JOURNAL_SUFFIX,
    LOSSES,
    QUEUE_ID_MAX,
    SEGMENT_ENTRY_SIZES,
    UNFINISHED,
    Entry,
    JournalMark,
    Leader,
    QueueRow,
    StartMoved,
    batch_frame,
    decode_fact,
    digits,
    numbered,
    segment_entry,
    whole_frame,
)
from cairnmq.storage.journal.entries import seal_batch
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.recovery.journal_search import entries_behind, find_entry, look_behind
from cairnmq.types import Buffer

MANIFEST = "loss.json"
SEGMENT_BYTES = 64 << 20
WRITE_BYTES = 1 << 20


class QueueLoss(Struct, frozen=True):
    """Records of a queue that are gone: offsets from `start` to before `end`; to an end nobody knows if it is None."""

    topic: str
    partition: int
    start: int
    end: int | None

    def __str__(self) -> str:
        until = f"to {self.end - 1}" if self.end is not None else "on, as many as there were"
        return f"{self.topic}-{self.partition}: offsets {self.start} {until}"


class Stretch(Struct, frozen=True):
    """Journal bytes that had reached the disk and do not read back. `queues`: whose batches lay there, if their heads
    can still be read; None: nobody knows."""

    start: int
    end: int
    queues: frozenset[int] | None


class Fill(Struct, frozen=True):
    """Offsets of a queue that have no record any more: from `start` to before `end`."""

    queue_id: int
    start: int
    end: int
    epoch: int
    timestamp: int


class Remains:
    """What is left of a journal behind `mark`. The fields behind the first ones are filled when `walk` has ended."""

    def __init__(self, reader: JournalReader, mark: JournalMark, rows: Mapping[int, QueueRow], ids: Collection[int]):
        """`ids`: the queues that exist."""
        self.reader = reader
        self.mark = mark
        self._rows = rows
        self._ids = ids
        self.known = 0  # everything before this had reached the disk
        self.stretches: list[Stretch] = []
        self.lost: dict[int, list[tuple[int, int]]] = {}  # queue -> offsets (from, to before) between others
        self.ends: dict[int, int] = {}  # queue -> where its records end
        self.last: dict[int, int] = {}  # queue -> position of its last batch
        self.open: dict[tuple[int, int], int] = {}  # (queue, producer) -> where its open transaction began

    def walk(self) -> Iterator[Entry | Fill]:
        """What the new journal holds, in order. Can be called again."""
        reader, position, epoch = self.reader, self.mark.split, self.mark.epoch
        self.known = max(self.mark.replicated_end, look_behind(reader, position).synced)
        self.stretches, self.lost, self.ends, self.last = [], {}, {}, {}
        rows = [row for row in self._rows.values() if row.producers]
        self.open = {(r.queue_id, p.producer_id): p.txn_start for r in rows for p in r.producers if p.txn_start >= 0}
        for entry in entries_behind(reader, position):
            if entry.epoch < epoch:
                continue  # left over from before an earlier cut
            if entry.position > position:
                if position >= self.known:
                    break  # a torn tail, as any
                self._miss(position, entry.position)
            epoch, position = entry.epoch, entry.end
            if entry.kind == BATCH:
                yield from self._batch(entry)
            elif entry.kind == FACT:
                yield from self._fact(entry)
        if position < self.known:
            # Of a file that ends before, only `synced` knows how far it went; other witnesses may lag behind that.
            ends_there = self.known in (self.reader.synced_end(), min(self.known, self.reader.end()))
            self._miss(position, self.known, ends_there=ends_there)

    def _miss(self, start: int, end: int, *, ends_there: bool = True) -> None:
        self.stretches.append(Stretch(start, end, self._queues_between(start, end) if ends_there else None))

    def _queues_between(self, start: int, end: int) -> frozenset[int] | None:
        """The head of a batch has a checksum of its own: where only what follows it is damaged, it still says whose
        batch it is and where the next entry begins. A segment begins with its own head, which holds nothing else."""
        seed, found = self.reader.find_seed(), set()
        while start < end:
            head, _ = self.reader.read(start, ENTRY_SIZE + CRC_START)
            if start in self.reader.bases:
                start = self._behind_head(start, end)
                continue
            if find_entry(head, 0, 1, start, seed, 0)[0] != 0:
                return None
            _, _, kind, length, _, word, _ = ENTRY_HEAD.unpack_from(head)
            if kind != BATCH:
                return None
            found.add(word & QUEUE_ID_MAX)
            start += ENTRY_SIZE + length
        return frozenset(found) if start == end else None

    def _behind_head(self, base: int, end: int) -> int:
        """A damaged head does not say of which version it is; what stands behind it does."""
        for size in SEGMENT_ENTRY_SIZES:
            following, _ = self.reader.read(base + size, ENTRY_SIZE + CRC_START)
            seed = self.reader.find_seed()
            if base + size == end or find_entry(following, 0, 1, base + size, seed, 0)[0] == 0:
                return base + size
        return base + SEGMENT_ENTRY_SIZES[0]

    def _end(self, queue_id: int, first: int) -> int:
        """Where the queue ends so far; of one that nobody knows, where its first batch begins."""
        row = self._rows.get(queue_id)
        known = row.end if row is not None else 0 if queue_id in self._ids else first
        return self.ends.setdefault(queue_id, known)

    def _batch(self, entry: Entry) -> Iterator[Entry | Fill]:
        queue_id, start = entry.queue_id, entry.base_offset
        end = self._end(queue_id, start)
        if start < end:
            return  # left over too
        if start > end:
            self.lost.setdefault(queue_id, []).append((end, start))
            yield Fill(queue_id, end, start, entry.epoch, entry.max_timestamp)
        yield entry
        self.ends[queue_id], self.last[queue_id] = entry.last_offset + 1, entry.position
        if entry.attributes & CONTROL_BIT:
            self.open.pop((queue_id, entry.producer_id), None)
        elif entry.attributes & TRANSACTIONAL_BIT:
            self.open.setdefault((queue_id, entry.producer_id), start)

    def _fact(self, entry: Entry) -> Iterator[Entry | Fill]:
        fact = decode_fact(entry.payload)
        if isinstance(fact, StartMoved):
            end = self._end(entry.queue_id, 0)
            if 0 < end < fact.offset:  # the records up to there are deleted, so these are not missed
                yield Fill(entry.queue_id, end, fact.offset, entry.epoch, NO_TIMESTAMP)
            self.ends[entry.queue_id] = max(end, fact.offset)
        yield entry

    def end_is_uncertain(self, queue_id: int) -> bool:
        """Whether records of this queue may be lost behind its last one."""
        last = self.last.get(queue_id, -1)
        return any(s.start > last and (s.queues is None or queue_id in s.queues) for s in self.stretches)

    @property
    def unknown_bytes(self) -> int:
        """In which anything may have stood, facts too."""
        return sum(stretch.end - stretch.start for stretch in self.stretches if stretch.queues is None)

    def file_of(self, position: int) -> tuple[str, int]:
        """The segment that holds this position, and the place in it."""
        base = max((base for base in self.reader.bases if base <= position), default=0)
        return digits(base, JOURNAL_SUFFIX), position - base


class Manifest(Struct, frozen=True):
    """Content of `loss.json`: a journal that was made anew, and what that has lost. Gone when the checkpoint knows."""

    journal: int
    epoch: int  # of the start that did it
    mark: JournalMark  # for the checkpoint
    what: list[str]
    queues: list[QueueLoss]


def _read_manifest(disk: Disk, directory: str) -> Manifest | None:
    name = f"{directory}/{MANIFEST}"
    if not disk.exists(name):
        return None
    file = disk.open(name)
    data = file.read(0, file.size())
    file.close()
    return msgspec.json.decode(data, type=Manifest) if sealed_json.holds(data) else None


def rebuild(
    disk: Disk, remains: Remains, what: list[str], queues: list[QueueLoss], *, leader: Leader, now_ms: int
) -> Manifest:
    """Writes what remains into a directory of its own, durably. The manifest comes last: with it, it is whole."""
    number = remains.mark.journal
    directory = f"{number}{UNFINISHED}"
    disk.remove_tree(directory)
    disk.make_dir(directory)
    try:
        end = _Writer(disk, directory, remains.mark, remains.reader.find_seed(), leader, now_ms).write(remains.walk())
        mark = msgspec.structs.replace(remains.mark, replicated_end=end, seed=remains.reader.find_seed())
        manifest = Manifest(number, leader.broker_epoch, mark, what, queues)
        disk.replace(f"{directory}/{MANIFEST}", sealed_json.seal(manifest))
        disk.sync_dir("")
    except OSError:
        disk.remove_tree(directory)
        raise
    return manifest


class _Writer:
    """Segments of one epoch each, from the split position on."""

    def __init__(self, disk: Disk, directory: str, mark: JournalMark, seed: int, leader: Leader, now_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        self._mark = mark
        self._seed = seed
        self._leader = leader
        self._now_ms = now_ms
        self._file: File | None = None
        self._base = 0
        self._epoch = -1
        self._position = mark.split
        self._buffers: list[Buffer] = []
        self._buffered = 0

    def write(self, items: Iterator[Entry | Fill]) -> int:
        """Returns the position behind the last."""
        self._begin(self._mark.epoch)
        for item in items:
            if item.epoch != self._epoch or self._position - self._base >= SEGMENT_BYTES:
                self._begin(item.epoch)
            if isinstance(item, Fill):
                self._fill(item)
            elif item.kind == BATCH:
                self._put(
                    batch_frame(item.epoch, item.queue_id, self._mark.split, item.payload, self._seed, item.flags),
                    item.payload,
                )
            else:
                payload, split = bytes(item.payload), self._mark.split
                frame = whole_frame(FACT, item.epoch, item.queue_id, split, payload, self._seed, item.flags)
                self._put(frame, payload)
        self._end_segment()
        self._disk.sync_dir(self._directory)
        return self._position

    def _begin(self, epoch: int) -> None:
        """Entries claim what was synced before the journal was made anew: nothing of it."""
        self._end_segment()
        self._epoch, self._base = epoch, self._position
        self._file = self._disk.create(f"{self._directory}/{digits(self._base, JOURNAL_SUFFIX)}")
        self._put(segment_entry(self._mark.journal, self._seed, epoch, self._mark.split, self._now_ms, self._leader))

    def _fill(self, fill: Fill) -> None:
        start = fill.start
        while start < fill.end:
            last = min(fill.end - 1, start + EMPTY_DELTA_MAX)
            batch = memoryview(empty_batch(start, last, fill.timestamp))
            self._put(seal_batch(batch, start, fill.epoch, fill.queue_id, self._mark.split, self._seed, 0), batch)
            start = last + 1

    def _put(self, *buffers: Buffer) -> None:
        size = sum(map(len, buffers))
        self._buffers += buffers
        self._buffered += size
        self._position += size
        if self._buffered >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._file is not None and self._buffers:
            self._file.append(self._buffers)
        self._buffers, self._buffered = [], 0

    def _end_segment(self) -> None:
        self._flush()
        if self._file is not None:
            self._file.sync()
            self._file.close()


def _is_away(disk: Disk, number: int) -> bool:
    """Whether the old journal was put aside."""
    return not numbered(disk.list(str(number)), JOURNAL_SUFFIX)


def place(disk: Disk, number: int) -> None:
    """The new journal takes the place of the old one, which was put aside; or it did already."""
    directory = f"{number}{UNFINISHED}"
    if _is_away(disk, number):
        disk.rename(directory, str(number))
        disk.sync_dir("")


def tidy(disk: Disk, numbers: Iterable[int]) -> None:
    """When nothing is unfinished: what was begun in vain goes, and what the checkpoint knows by now."""
    for number in numbers:
        disk.remove_tree(f"{number}{UNFINISHED}")
        if disk.exists(f"{number}/{MANIFEST}"):
            disk.remove(f"{number}/{MANIFEST}")
            disk.sync_dir(str(number))


def find_begun(disk: Disk) -> list[str]:
    """Directories of new journals beside old ones that were not put aside."""
    names = [name for name in disk.list("") if name.endswith(UNFINISHED) and name.removesuffix(UNFINISHED).isdecimal()]
    return [name for name in names if not _is_away(disk, int(name.removesuffix(UNFINISHED)))]


def find_unfinished(disk: Disk, image: CheckpointImage) -> list[Manifest]:
    """Journals that were made anew by a start with --accept-loss which was stopped before the checkpoint knew."""
    found = []
    names = [name for name in disk.list("") if name.removesuffix(UNFINISHED).isdecimal()]
    for name in names:
        manifest = _read_manifest(disk, name)
        if manifest is None or (name.endswith(UNFINISHED) and not _is_away(disk, manifest.journal)):
            continue
        mark = image.marks.get(manifest.journal)
        is_of_this = (mark.split if mark is not None else 0) == manifest.mark.split
        if is_of_this and (LOSSES, str(manifest.epoch).encode()) not in image.keyed:
            found.append(manifest)
    return found


def refuse_unfinished(disk: Disk, image: CheckpointImage) -> None:
    for manifest in find_unfinished(disk, image):
        raise Corrupt(
            f"journal {manifest.journal}: a start with --accept-loss did not finish. Start with --accept-loss "
            f"again; it continues where it stopped."
        )
