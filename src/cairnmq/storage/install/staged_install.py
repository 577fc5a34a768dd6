"""The receiving side of an install: rows and batches of a journal's queues, written beside what the broker serves.

All batches go into packs, whatever the leader keeps them in: a few files, however many queues there are. Queues that
are large or get records again are given segments by the splitter later. Nothing counts before `complete`; what is
found of an install that was not completed is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cairnmq.codec.batch import (
    HEADER_SIZE,
    BatchHeader,
    empty_batch,
    read_header,
    set_offset_and_epoch,
    sound_batches,
)
from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, write_parts
from cairnmq.storage.files.checkpoint_frame import checkpoint_frame, read_checkpoint_frame
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import (
    COMMIT,
    INSTALLS,
    NOT_COMPACTED,
    PACK_SUFFIX,
    PACKED,
    PACKS,
    UNFINISHED,
    Aborted,
    CheckpointRows,
    Entry,
    JournalMark,
    PackLabel,
    numbered,
)
from cairnmq.storage.install.install_files import install_directory, remove_install, rows_name
from cairnmq.storage.packs.pack import PackWriter
from cairnmq.storage.queue.state import QueueState
from cairnmq.types import Buffer

PACK_BYTES = 256 << 20
SPOOL_BYTES = 16 << 20  # of a compacted queue, held in memory until it is known that nothing of it was rewritten
NUMBERS_APART = 1_000_000  # packs of installs are numbered so far ahead of the splitter's


class StagedInstall:
    """Of one journal; blocks. Queues come in the order of their ids, each from its log start to the end in its row."""

    def __init__(
        self, disk: Disk, journal: int, serial: int, *, free_min: int = 0, pack_bytes: int = PACK_BYTES
    ) -> None:
        """`serial`: of a checkpoint that is on the disk. `free_min`: what an install leaves of the disk's free bytes
        to all else."""
        self.journal = journal
        self.image = CheckpointImage()
        self.bytes = 0
        self._disk = disk
        self._serial = serial
        self._free_min = free_min
        self._pack_bytes = pack_bytes
        self._directory = install_directory(journal)
        remove_install(disk, journal)
        disk.make_dir(self._directory)
        known = max([0, *numbered(disk.list(PACKS), PACK_SUFFIX)])
        self._next = known + NUMBERS_APART * (journal + 1)
        self._packs: list[int] = []
        self._writer: PackWriter | None = None
        self._queue = -1  # whose batches come now
        self._is_put = False  # some of that queue is in a pack that others share
        self._spool: list[Entry] = []
        self._spooled = 0
        self._own: PackWriter | None = None  # of a compacted queue that is too large for memory

    def add_rows(self, frame: Buffer) -> None:
        """Rows and facts, as a frame of the leader's checkpoint."""
        read = read_checkpoint_frame(memoryview(frame), 0)
        if read is None or read[2] != len(frame):
            raise Corrupt(f"journal {self.journal}: rows of an install are damaged")
        rows = read[1]
        queues = [
            replace(row, homes=PACKED, packed_bytes=0, aborted=(), compaction=NOT_COMPACTED, row_sums=())
            for row in rows.queues  # they say nothing of the leader's files
        ]
        self.image.apply(CheckpointRows(queues=queues, keyed=rows.keyed))

    def add_run(self, queue_id: int, offset: int, data: Buffer, *, rewritable: bool) -> int:
        """Whole batches, the first of which holds `offset`; those behind the queue's end are left out. `rewritable`:
        the queue may have to be `restarted`. Returns the offset after them."""
        end = self.image.queues[queue_id].end
        if queue_id != self._queue:
            self._settle()
            self._queue, self._is_put = queue_id, False
        self._keep_room(len(data))
        entries = list(_entries(queue_id, bytes(data), offset, end))
        if not entries:
            return offset
        size = sum(len(entry.payload) for entry in entries)
        self.bytes += size
        if rewritable:
            self._hold(entries, size)
        else:
            self._is_put = True
            self._put(entries)
        row = self.image.queues[queue_id]
        self.image.queues[queue_id] = replace(row, packed_bytes=row.packed_bytes + size)
        return entries[-1].last_offset + 1

    def restart(self, queue_id: int) -> None:
        """Of a compacted queue: what came may lack a tombstone that is gone by now. All of it comes again."""
        assert queue_id == self._queue
        if self._is_put:
            raise Fault(f"queue {queue_id} became a compacted one while it was taken over")
        self._spool, self._spooled = [], 0
        if self._own is not None:
            self._own.abandon()
            self._own = None
        self.image.queues[queue_id] = replace(self.image.queues[queue_id], packed_bytes=0)

    def end_queue(self, queue_id: int, log_start: int, aborted: Sequence[Aborted]) -> None:
        """All of it is there. `log_start`: as the leader has it now. `aborted`: its aborted transactions."""
        row = self.image.queues[queue_id]
        state = QueueState.from_row(row)
        state.move_start(min(log_start, row.end))  # as it does when the journal tells it: epochs begin later too
        rows = tuple(one for one in aborted if state.log_start <= one.last < row.end)
        self.image.queues[queue_id] = replace(row, log_start=state.log_start, epochs=tuple(state.epochs), aborted=rows)

    def drop_queue(self, queue_id: int) -> None:
        """It was deleted meanwhile."""
        del self.image.queues[queue_id]

    def _keep_room(self, size: int) -> None:
        """A disk that an install fills up would stop the splitter, and with it producers of other journals."""
        free = self._disk.free_bytes()
        if free < self._free_min + size:
            raise Fault(
                f"the read disk has {free} bytes left, and {self._free_min} must stay free; an install needs room for "
                f"all records of the journal beside those that are there"
            )

    def _hold(self, entries: list[Entry], size: int) -> None:
        if self._own is not None:
            self._own.add_batches(entries[0].queue_id, entries)
            return
        self._spool.extend(entries)
        self._spooled += size
        if self._spooled > SPOOL_BYTES:
            self._finish_pack()
            self._own = self._begin_pack()
            self._own.add_batches(entries[0].queue_id, self._spool)
            self._spool, self._spooled = [], 0

    def _settle(self) -> None:
        """The queue before is whole."""
        if self._own is not None:
            self._writer, self._own = self._own, None
            self._finish_pack()
        elif self._spool:
            self._put(self._spool)
            self._spool, self._spooled = [], 0

    def _put(self, entries: Sequence[Entry]) -> None:
        if self._writer is None:
            self._writer = self._begin_pack()
        self._writer.add_batches(entries[0].queue_id, entries)
        if self._writer.position >= self._pack_bytes:
            self._finish_pack()

    def _begin_pack(self) -> PackWriter:
        self._next += 1
        return PackWriter(self._disk, PackLabel(self._next - 1, self._serial), self._directory)

    def _finish_pack(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.finish()
        writer.file.sync()
        writer.file.close()
        self._packs.append(writer.number)
        reach("install-pack")

    def complete(self, mark: JournalMark, epoch: int) -> None:
        """Durable on return: the next start puts it in place. The journal goes on at the mark. `epoch`: of the leader
        that it came from."""
        self._settle()
        self._finish_pack()
        disk, name = self._disk, rows_name(self.journal)
        file = disk.create(name + UNFINISHED)
        write_parts(file, self.image)
        commit = CheckpointRows(marks=[mark], packs=self._packs, serial=epoch)
        file.append([checkpoint_frame(COMMIT, commit)])
        file.sync()
        file.close()
        for directory in (self._directory, INSTALLS, ""):
            disk.sync_dir(directory)
        reach("install-complete")
        disk.rename(name + UNFINISHED, name)
        disk.sync_dir(self._directory)

    def abandon(self) -> None:
        """It is not completed."""
        for writer in (self._writer, self._own):
            if writer is not None:
                writer.abandon()
        self._writer = self._own = None
        remove_install(self._disk, self.journal)


def _entries(queue_id: int, data: bytes, offset: int, end: int) -> Iterator[Entry]:
    """Each batch below `end`, checked to its last bit."""
    size, _, is_damaged, _ = sound_batches(data, len(data), offset, end, -1)
    if is_damaged or (not size and offset < end):
        raise Corrupt(f"queue {queue_id}: batches of an install at offset {offset} are damaged")
    view, at = memoryview(data), 0
    while at + HEADER_SIZE <= size:
        header = read_header(view, at)
        batch, last = view[at : at + header.size], header.last_offset
        if last >= end:
            batch, last = _ended(queue_id, header, end), end - 1
        yield Entry.of_stored(queue_id, batch, (header.base_offset, last), header.max_timestamp)
        at += header.size


def _ended(queue_id: int, header: BatchHeader, end: int) -> memoryview:
    """The part below `end` of an empty batch: compaction has put it in the place of batches on both sides."""
    if header.count:
        raise Corrupt(f"queue {queue_id}: a batch of an install at offset {header.base_offset} goes beyond {end}")
    batch = empty_batch(header.base_offset, end - 1, header.max_timestamp)
    set_offset_and_epoch(batch, header.base_offset, header.leader_epoch)
    return memoryview(batch)
