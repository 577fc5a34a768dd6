"""One journal: staged entries -> gathered writes -> synced end. Positions are bytes since the journal began.

States of a byte: staged (has a position) -> written (page cache) -> synced (disk). `stage_*`, `take`, `written` and
`taken_back` run on the thread that owns the journal; `write`, `sync` and `prepare` do I/O and may run on others, each
one at a time, `rewrite_unsynced` alone. All in-sync replicas have written what lies before the replicated end, and
synced what lies before the durable end; with one replica these are the written and the synced end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from msgspec import Struct

from cairnmq.codec.batch import CRC_START
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import Corrupt, Fault
from cairnmq.kernels import pick
from cairnmq.storage.files.buffers import SplitBuffer
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.failed_sync import noting_unsynced, unsynced_name
from cairnmq.storage.files.format import (
    BATCH,
    ENTRY_CRC,
    ENTRY_HEAD,
    ENTRY_LENGTH_MAX,
    ENTRY_SIZE,
    FACT,
    INCOMPLETE,
    JOURNAL_SUFFIX,
    SEGMENT_ENTRY_SIZE,
    UNFINISHED,
    Entry,
    Fact,
    Leader,
    SegmentHead,
    encode_fact,
    has_unknown_flags,
    is_newer_entry,
    is_newer_head,
    journal_segment,
    numbered,
    read_entry,
    read_segment_head,
    segment_entry,
    whole_frame,
)
from cairnmq.storage.files.reserve import Reserve
from cairnmq.storage.journal import entries
from cairnmq.storage.journal.segment_files import OPEN_MAX, Segment, SegmentFiles
from cairnmq.storage.journal.synced_end import SyncedEndFile, read_synced_end
from cairnmq.types import Buffer

seal_batch = pick(entries.seal_batch)
scan_entries = pick(entries.scan_entries)

SCAN_BYTES = 4 << 20
NEXT = "next" + UNFINISHED
ROOM_SEGMENTS = 4  # a disk with less room than for so many does not get files that are only to be filled
RUN_ENTRIES = 256  # scanned at a time: whoever stops early has not paid for a whole chunk


class Group(Struct):
    """Entries that go to the disk in one gathered write."""

    start: int
    end: int
    buffers: list[Buffer]
    rolls: bool


class Journal:
    """The write side, and reads of what was written."""

    def __init__(
        self,
        disk: Disk,
        number: int,
        *,
        epoch: int,
        leader: Leader,
        seed: int,
        segments: Iterable[Segment],
        end: int,
        segment_bytes: int,
    ) -> None:
        """`segments` are what recovery kept, all synced; the first group begins a new one, so each has one epoch."""
        self.disk = disk
        self.number = number
        self.epoch = epoch
        self.leader = leader
        self.seed = seed
        self.segments = segments if isinstance(segments, SegmentFiles) else SegmentFiles(disk, number, segments)
        self.segment_bytes = segment_bytes
        self.reserve = Reserve(disk, str(number))
        self.synced_file = SyncedEndFile(disk, number, epoch, seed)
        self.end = end
        self.synced = self.end
        self.replicated_end = self.end
        self.durable_end = self.end
        self.staged_end = self.end
        # A write failed, and other replicas will copy what takes its place. A power loss could bring back what it left
        # behind, of the same epoch and at the same position: so the next file's name is on disk before its bytes.
        self.names_first = False
        self._buffers: list[Buffer] = []
        self._staged_from = self.end
        self._rolls = False
        self._segment_start = -1
        self._next: File | None = None

    @property
    def start(self) -> int:
        return self.segments[0].base if self.segments else self.end

    # ------------------------------------------------------------------------------------------------- staging

    def stage_batch(self, queue_id: int, batch: memoryview, offset: int, now_ms: int, flags: int = 0) -> int:
        """Patches offset and epoch into the batch and queues it for the next group; returns the position of its own
        bytes."""
        buffers = self._buffers
        if not buffers:
            self._begin(now_ms)
        buffers.append(seal_batch(batch, offset, self.epoch, queue_id, self.synced, self.seed, flags))
        buffers.append(batch)
        position = self.staged_end + ENTRY_SIZE
        self.staged_end = position + len(batch)
        return position

    def stage_facts(self, queue_id: int, facts: Iterable[Fact], now_ms: int, flags: int = 0) -> int:
        """Queues facts, all of them or, if it raises, none; returns the position behind them."""
        framed = [
            whole_frame(FACT, self.epoch, queue_id, self.synced, payload, self.seed, flags) + payload
            for payload in map(encode_fact, facts)
        ]
        if not self._buffers:
            self._begin(now_ms)
        self._buffers.extend(framed)
        self.staged_end += sum(map(len, framed))
        return self.staged_end

    def _begin(self, now_ms: int) -> None:
        """Rolls happen only between groups, so that a failed group never leaves half a roll behind."""
        self._staged_from = self.staged_end
        self._rolls = self._segment_start < 0 or self.staged_end - self._segment_start >= self.segment_bytes
        if self._rolls:
            head = segment_entry(self.number, self.seed, self.epoch, self.synced, now_ms, self.leader)
            self._buffers.append(head)
            self._segment_start = self.staged_end
            self.staged_end += SEGMENT_ENTRY_SIZE

    def begin_epoch(self, epoch: int, now_ms: int) -> None:
        """This broker leads from here on. The head of a segment is staged alone, so that there is something to
        replicate: nothing of earlier epochs counts before something of this one does. It is staged again after a write
        that failed."""
        assert epoch >= self.epoch and not self._buffers
        self.epoch = self.synced_file.epoch = epoch
        self.begin_segment()
        self._begin(now_ms)

    def stage_copied(self, entries: Buffer, *, begins: bool) -> Group:
        """Whole entries of a leader, as they are; its own group. `begins`: with the head of a segment. A file that was
        open before a start or a cut is not gone on with, so one may begin without a head."""
        start, self.staged_end = self.staged_end, self.staged_end + len(entries)
        rolls = begins or self._segment_start < 0
        if rolls:
            self._segment_start = start
        return Group(start, self.staged_end, [entries], rolls)

    def take(self) -> Group | None:
        if not self._buffers:
            return None
        group = Group(self._staged_from, self.staged_end, self._buffers, self._rolls)
        self._buffers = []
        return group

    # ----------------------------------------------------------------------------------------------------- I/O

    def write(self, group: Group) -> None:
        """One gathered write. On an error the file is cut back to the last whole entry and the error raised."""
        if group.rolls:
            name = journal_segment(self.number, group.start)
            file = self._new_file(name)
            try:
                if self.names_first:
                    self.disk.sync_dir(str(self.number))
                    self.names_first = False
                file.append(group.buffers)
            except BaseException:
                file.close()
                self.disk.remove(name)
                raise
            if self.segments:
                self.segments.rolled(self.segments[-1])
            self.segments.append(Segment(self.segments, group.start, file, group.end - group.start, synced=False))
            return
        last = self.segments[-1]
        try:
            last.file.append(group.buffers)
        except BaseException:  # no memory, say: what is half there must go all the same
            try:
                last.file.truncate(last.size)
            finally:
                last.cut = True
            raise
        last.size += group.end - group.start

    def _new_file(self, name: str) -> File:
        """In the place of what a failed write may have left behind."""
        file = self._next
        if file is not None:
            try:
                self.disk.rename(self._next_name, name)
                self._next, file.name = None, name  # in this order: `prepare` makes the name anew when there is no file
                return file
            except OSError:
                self._next = None
                file.close()
        self.disk.remove(name)
        return self.disk.create(name)

    @property
    def _next_name(self) -> str:
        return f"{self.number}/{NEXT}"

    def wants_next(self) -> bool:
        """Whether it is time to `prepare`; says so once for each segment."""
        if not self.segments or self._next is not None:
            return False
        last = self.segments[-1]
        if last.has_asked or last.size * 2 < self.segment_bytes:
            return False
        last.has_asked = True
        return True

    def prepare(self) -> None:
        """Makes the next segment's file, with room for all of it on the disk. To find blocks for a file that grows the
        file system may have to read where they are free, and meanwhile it holds up everybody who writes to it."""
        if self._next is not None or self.disk.free_bytes() < ROOM_SEGMENTS * self.segment_bytes:
            return
        self.disk.remove(self._next_name)
        file = self.disk.create(self._next_name)
        try:
            file.allocate(self.segment_bytes)
        except OSError:
            file.close()
            self.disk.remove(self._next_name)
            raise
        self._next = file

    def unprepare(self) -> File | None:
        """The next segment is made without that file, which is for `remove_next`. Not beside `prepare` or `write`."""
        file, self._next = self._next, None
        return file

    def remove_next(self, file: File) -> None:
        """Gives its room back. Beside anything but `prepare`."""
        self.disk.remove(self._next_name)
        file.close()

    def sync(self) -> int:
        """Makes everything written before the call durable; returns that end. Raises if the disk says no, and leaves a
        note: another sync would succeed although pages are lost."""
        with noting_unsynced(self.disk, str(self.number)):
            end = self._sync()
        self.synced_file.put(end)
        return end

    def _sync(self) -> int:
        target = self.end
        for segment in list(self.segments):
            size = min(segment.size, target - segment.base)
            if size <= segment.synced_size and not segment.cut:
                continue
            was_cut, segment.cut = segment.cut, False  # before the sync: a write may fail during it
            try:
                segment.file.sync()
            except OSError:
                segment.cut = was_cut
                raise
            if not segment.name_synced:
                self.disk.sync_dir(str(self.number))
                segment.name_synced = True
            segment.synced_size = max(size, segment.synced_size)
        return target

    def rewrite_unsynced(self) -> int:
        """After a failed sync, and while nothing is written: what is not known to be on disk is written into new files,
        which take the place of the old ones; returns the synced end. Raises when that fails too."""
        segments = list(self.segments)
        for segment in segments:
            if segment.synced_size < segment.size or segment.cut:
                checked_from = max(self.synced, segment.base)
                segment.file = write_again(
                    self.disk, self.number, segment.base, segment.file, segment.size, checked_from, self.seed
                )
        self.disk.sync_dir(str(self.number))
        for segment in segments:
            segment.synced_size, segment.name_synced, segment.cut = segment.size, True, False
        self.disk.remove(unsynced_name(str(self.number)))
        self.synced_file.put(self.end)
        return self.end

    # ------------------------------------------------------------------------------------------------ afterwards

    def written(self, group: Group) -> None:
        assert group.start == self.end, (group.start, self.end)
        self.end = group.end

    def begin_segment(self) -> None:
        """With the next group: so those who have files open that were replaced need not look at their names again."""
        self._segment_start = -1

    def synced_to(self, position: int) -> None:
        assert position <= self.end  # invariant 4
        self.synced = max(self.synced, position)
        self.segments.close_some()

    def taken_back(self, group: Group) -> None:
        """The group was not written: its positions, and those staged behind it, are given again."""
        assert group.start == self.end <= group.end  # invariant 4: what was written stays
        self._buffers = []
        self.staged_end = group.start
        # Whether this group was to begin a segment or not, the next one does: nothing is appended to a file that
        # a failed write touched.
        self._segment_start = -1

    def remove_below(self, position: int) -> int:
        """Deletes whole segments below `position` (a checkpointed split position); returns the bytes removed.

        A segment goes only when its successor is on disk, else a power loss could leave a journal without any. One that
        the disk refuses to remove stays, and is tried again when this is called again.
        """
        assert position <= self.synced  # invariant 7: all of it is in synced queue logs
        removed = 0
        while len(self.segments) > 1 and self.segments[1].base <= position and self.segments[1].name_synced:
            self.disk.remove(journal_segment(self.number, self.segments[0].base))
            gone = self.segments.pop(0)
            gone.let_go()
            removed += gone.size
        return removed

    # --------------------------------------------------------------------------------------------------- reading

    def locate(self, position: int) -> tuple[File, int]:
        """The file holding `position`, and the place in it."""
        index = self.segments.index_of(position)
        if index < 0:
            raise Fault(f"journal {self.number} no longer holds position {position}")
        segment = self.segments[index]
        return segment.file, position - segment.base

    def close(self) -> None:
        self.synced_file.close()
        for segment in self.segments:
            segment.close()


def write_again(disk: Disk, number: int, base: int, old: File, size: int, checked_from: int, seed: int) -> File:
    """A synced copy of a segment in its place, open for writing; its name is not synced.

    Entries from position `checked_from` on are checked on their way: of what a failed sync left in the cache, any page
    may have been dropped since, and then reads as it was before.
    """
    name = journal_segment(number, base)
    disk.remove(name + UNFINISHED)
    new = disk.create(name + UNFINISHED)
    at, checked_at, chunk_bytes = 0, checked_from - base, SCAN_BYTES
    while at < min(checked_at, size):
        at += new.append([old.read(at, min(chunk_bytes, checked_at - at, size - at))])
    while at < size:
        view = memoryview(old.read(at, min(chunk_bytes, size - at)))
        end = scan_entries(view, 0, base + at, seed, base + size, len(view))[1]
        if end:
            new.append([view[:end]])
            at += end
        elif len(view) == chunk_bytes:
            chunk_bytes *= 2  # one entry larger than the chunk
        else:
            raise Corrupt(f"{name}: what was written at {at} does not read back after a failed sync")
    new.sync()
    disk.rename(name + UNFINISHED, name)
    return new


# ------------------------------------------------------------------------------------------------------- scanning


class JournalReader:
    """Reads a journal's files entry by entry; the splitter, recovery, dump and verify walk through here."""

    def __init__(self, disk: Disk, number: int) -> None:
        self.disk = disk
        self.number = number
        self.seed: int | None = None
        self._open: dict[int, File] = {}
        self._heads: dict[int, SegmentHead | None] = {}
        self.bases: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        """Looks at the names again, and opens files anew: one may have been written again and replaced. The last one is
        held open, so that `end` can be asked even when the segment is deleted meanwhile."""
        self.bases = numbered(self.disk.list(str(self.number)), JOURNAL_SUFFIX)
        self._heads.clear()
        self.close()
        if self.bases:
            self.file(self.bases[-1])

    def file(self, base: int) -> File:
        file = self._open.get(base)
        if file is None:
            file = self._open[base] = self.disk.open(journal_segment(self.number, base))
            if len(self._open) > OPEN_MAX:
                del self._open[next(one for one in self._open if one != base and one not in self.bases[-1:])]
        return file

    def end(self) -> int:
        return self.bases[-1] + self.file(self.bases[-1]).size() if self.bases else 0

    def read(self, position: int, size: int, split_buffer: SplitBuffer | None = None) -> tuple[memoryview, int]:
        """Bytes from `position` up to `size`, never across a segment's end; and the segment's base."""
        index = bisect_right(self.bases, position) - 1
        if index < 0:
            raise Corrupt(f"journal {self.number}: position {position} lies before the first segment")
        base = self.bases[index]
        if index + 1 < len(self.bases):
            size = min(size, self.bases[index + 1] - position)
        if split_buffer is None:
            return memoryview(self.file(base).read(position - base, size)), base
        view = split_buffer.take(size)
        return view[: self.file(base).read_into(position - base, view)], base

    def find_seed(self) -> int:
        """The CRC seed, from the first segment head that can be read, or from the file `synced`; 0 when there is
        none."""
        if self.seed is None:
            for base in self.bases:
                head = self.head(base)
                if head is not None:
                    self.seed = head.seed
                    return self.seed
            synced = read_synced_end(self.disk, self.number)
            if synced is None:
                return 0
            self.seed = synced.seed
        return self.seed

    def head(self, base: int) -> SegmentHead | None:
        """What the segment that begins at `base` says of itself; None if that does not read back."""
        if base not in self._heads:
            self._heads[base] = read_segment_head(self.file(base).read(0, SEGMENT_ENTRY_SIZE))
        return self._heads[base]

    def head_before(self, position: int) -> SegmentHead | None:
        """That of the segment which holds `position`."""
        index = bisect_right(self.bases, position) - 1
        return self.head(self.bases[index]) if index >= 0 else None

    def synced_end(self) -> int:
        """What the file `synced` knows to have been on disk; 0 if it knows nothing, or of another journal than this."""
        synced = read_synced_end(self.disk, self.number)
        return synced.position if synced is not None and synced.seed == self.find_seed() else 0

    def is_older_than(self, split: int) -> bool:
        """Whether this is an older copy than the checkpoint with that split position: it ends before it, and so does
        all that it knows to have been synced. One that only lost its end still has the newest file `synced`."""
        return bool(self.bases) and self.end() < split and 0 < self.synced_end() < split

    def entries(
        self, position: int, limit: int, chunk_bytes: int = SCAN_BYTES, split_buffer: SplitBuffer | None = None
    ) -> Iterator[Entry]:
        """Whole valid entries from `position` on, up to `limit`; stops silently at the first that is not."""
        seed, size = self.find_seed(), chunk_bytes
        while position < limit:
            view, base = self.read(position, size, split_buffer)
            at = 0
            while True:
                found, at = scan_entries(view, at, position, seed, limit, RUN_ENTRIES)
                yield from found
                if len(found) < RUN_ENTRIES:
                    break
            if read_entry(view, at, position + at, seed) != INCOMPLETE:
                return  # bad, or an entry that ends behind the limit
            position += at
            if at:
                size = chunk_bytes
            elif len(view) < size:
                return  # the file ends inside this entry, or here
            elif not (size := self._whole_size(view, position - base, self.file(base), seed)):
                return

    def is_newer_at(self, position: int) -> bool:
        """Whether an entry of a later version stands where `entries` stopped."""
        if not self.bases or self.bases[0] > position:
            return False
        head, _ = self.read(position, ENTRY_SIZE)
        if not is_newer_head(head) and not has_unknown_flags(head):
            return False
        length = ENTRY_HEAD.unpack_from(head)[3] if len(head) == ENTRY_SIZE else 0
        return is_newer_entry(self.read(position, ENTRY_SIZE + min(length, ENTRY_LENGTH_MAX))[0], self.find_seed())

    def is_flagged_at(self, position: int) -> bool:
        """Whether a whole entry stands there with a flag that must be understood, and is not."""
        return has_unknown_flags(self.read(position, ENTRY_SIZE)[0]) and self.is_newer_at(position)

    def _whole_size(self, view: memoryview, at: int, file: File, seed: int) -> int:
        """The size of the entry that `view` begins with and is too short for; 0 if that is none. A wrong length must
        not make anybody read as much, so of a batch the head is checked first, and a fact in pieces."""
        kind, length = ENTRY_HEAD.unpack_from(view)[2:4]
        crc, end = crc32c(view[: ENTRY_HEAD.size], seed), at + ENTRY_SIZE + length
        at += ENTRY_SIZE
        if kind == BATCH:
            crc, at = crc32c(view[ENTRY_SIZE : ENTRY_SIZE + CRC_START], crc), end
        while at < end and kind == FACT and (data := file.read(at, min(SCAN_BYTES, end - at))):
            crc = crc32c(data, crc)
            at += len(data)
        is_right = at == end and crc == ENTRY_CRC.unpack_from(view, ENTRY_HEAD.size)[0]
        return ENTRY_SIZE + length if is_right else 0

    def segment_end(self, index: int) -> int:
        """The position behind what is there of a segment: a file may be shorter or longer than its part."""
        base = self.bases[index]
        end = base + self.file(base).size()
        return min(end, self.bases[index + 1]) if index + 1 < len(self.bases) else end

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
