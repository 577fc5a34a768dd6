"""One journal: staged entries -> gathered writes -> synced end. Positions are bytes since the journal began.

States of a byte: staged (has a position) -> written (page cache) -> synced (disk). `stage_*`, `take`, `written` and
`taken_back` run on the thread that owns the journal; `write`, `sync` and `prepare` do I/O and may run on others, each
one at a time, `mend` alone. With one replica the high watermark is the written end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from msgspec import Struct

from cairnmq.errors import Corrupt, Fault
from cairnmq.kernels import pick
from cairnmq.storage import entries
from cairnmq.storage.chunks import Slab
from cairnmq.storage.disk import Disk, File
from cairnmq.storage.doubt import doubt_name, noting_doubt
from cairnmq.storage.format import (
    ENTRY_SIZE,
    FACT,
    INCOMPLETE,
    JOURNAL_SUFFIX,
    SEGMENT,
    SEGMENT_ENTRY_SIZE,
    SEGMENT_HEAD,
    Entry,
    Fact,
    encode_fact,
    journal_segment,
    numbered,
    read_entry,
    segment_entry,
    whole_frame,
)
from cairnmq.storage.reserve import Reserve
from cairnmq.types import Buffer

seal_batch = pick(entries.seal_batch)
scan_entries = pick(entries.scan_entries)

SCAN_BYTES = 4 << 20
UNFINISHED = ".new"
NEXT = "next" + UNFINISHED
ROOM_SEGMENTS = 4  # a disk with less room than for so many does not get files that are only to be filled
RUN_ENTRIES = 256  # scanned at a time: whoever stops early has not paid for a whole chunk


class Segment:
    """One file of the journal. Only the last one grows."""

    __slots__ = ("base", "size", "file", "synced_size", "name_synced", "cut")

    def __init__(self, base: int, file: File, size: int, *, synced: bool) -> None:
        self.base = base
        self.file = file
        self.size = size
        self.synced_size = size if synced else 0
        self.name_synced = synced
        self.cut = False  # a failed write was cut off, and that is not synced

    @property
    def end(self) -> int:
        return self.base + self.size


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
        seed: int,
        segments: list[Segment],
        end: int,
        segment_bytes: int,
    ) -> None:
        """`segments` are what recovery kept, all synced; the first group begins a new one, so each has one epoch."""
        self.disk = disk
        self.number = number
        self.epoch = epoch
        self.seed = seed
        self.segments = segments
        self.segment_bytes = segment_bytes
        self.reserve = Reserve(disk, str(number))
        self.end = end
        self.synced = self.end
        self.staged_end = self.end
        self._buffers: list[Buffer] = []
        self._staged_from = self.end
        self._rolls = False
        self._segment_start = -1
        self._next: File | None = None
        self._asked_at = -1  # the last segment behind which one was asked for

    @property
    def high_watermark(self) -> int:
        return self.end

    @property
    def start(self) -> int:
        return self.segments[0].base if self.segments else self.end

    # ------------------------------------------------------------------------------------------------- staging

    def stage_batch(self, queue_id: int, batch: memoryview, offset: int, now_ms: int) -> int:
        """Patches offset and epoch into the batch and queues it for the next group; returns the position of its own
        bytes."""
        buffers = self._buffers
        if not buffers:
            self._begin(now_ms)
        buffers.append(seal_batch(batch, offset, self.epoch, queue_id, self.synced, self.seed))
        buffers.append(batch)
        position = self.staged_end + ENTRY_SIZE
        self.staged_end = position + len(batch)
        return position

    def stage_facts(self, queue_id: int, facts: Iterable[Fact], now_ms: int) -> int:
        """Queues facts, all of them or, if it raises, none; returns the position behind them."""
        framed = [
            whole_frame(FACT, self.epoch, queue_id, self.synced, payload, self.seed) + payload
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
            self._buffers.append(segment_entry(self.number, self.seed, self.epoch, self.synced, now_ms))
            self._segment_start = self.staged_end
            self.staged_end += SEGMENT_ENTRY_SIZE

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
                file.append(group.buffers)
            except BaseException:
                file.close()
                self.disk.remove(name)
                raise
            self.segments.append(Segment(group.start, file, group.end - group.start, synced=False))
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
        if last.base == self._asked_at or last.size * 2 < self.segment_bytes:
            return False
        self._asked_at = last.base
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
        with noting_doubt(self.disk, str(self.number)):
            return self._sync()

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

    def mend(self) -> int:
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
        self.disk.remove(doubt_name(str(self.number)))
        return self.end

    # ------------------------------------------------------------------------------------------------ afterwards

    def written(self, group: Group) -> None:
        assert group.start == self.end, (group.start, self.end)
        self.end = group.end

    def mended(self) -> None:
        """The next group begins a segment: those who have the old files open need not look at their names again."""
        self._segment_start = -1

    def synced_to(self, position: int) -> None:
        assert position <= self.end
        self.synced = max(self.synced, position)

    def taken_back(self, group: Group) -> None:
        """The group was not written: its positions, and those staged behind it, are given again."""
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
        removed = 0
        while len(self.segments) > 1 and self.segments[1].base <= position and self.segments[1].name_synced:
            self.disk.remove(journal_segment(self.number, self.segments[0].base))
            removed += self.segments.pop(0).size
        return removed

    # --------------------------------------------------------------------------------------------------- reading

    def locate(self, position: int) -> tuple[File, int]:
        """The file holding `position`, and the place in it."""
        index = bisect_right(self.segments, position, key=_base) - 1
        if index < 0:
            raise Fault(f"journal {self.number} no longer holds position {position}")
        segment = self.segments[index]
        return segment.file, position - segment.base

    def close(self) -> None:
        for segment in self.segments:
            segment.file.close()


def _is_own(entry: Entry, seed: int) -> bool:
    """Of a segment's head the CRC is unseeded, and anybody could write one; but it holds the seed."""
    if entry.kind != SEGMENT:
        return True
    return len(entry.payload) == SEGMENT_HEAD.size and SEGMENT_HEAD.unpack(entry.payload)[1] == seed


def _base(segment: Segment) -> int:
    return segment.base


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
        self.bases: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        """Looks at the names again, and opens files anew: one may have been written again and replaced. The last one is
        held open, so that `end` can be asked even when the segment is deleted meanwhile."""
        self.bases = numbered(self.disk.list(str(self.number)), JOURNAL_SUFFIX)
        self.close()
        if self.bases:
            self.file(self.bases[-1])

    def file(self, base: int) -> File:
        if base not in self._open:
            self._open[base] = self.disk.open(journal_segment(self.number, base))
        return self._open[base]

    def end(self) -> int:
        return self.bases[-1] + self.file(self.bases[-1]).size() if self.bases else 0

    def read(self, position: int, size: int, slab: Slab | None = None) -> tuple[memoryview, int]:
        """Bytes from `position` up to `size`, never across a segment's end; and the segment's base."""
        index = bisect_right(self.bases, position) - 1
        if index < 0:
            raise Corrupt(f"journal {self.number}: position {position} lies before the first segment")
        base = self.bases[index]
        if index + 1 < len(self.bases):
            size = min(size, self.bases[index + 1] - position)
        if slab is None:
            return memoryview(self.file(base).read(position - base, size)), base
        view = slab.take(size)
        return view[: self.file(base).read_into(position - base, view)], base

    def find_seed(self) -> int:
        """The CRC seed, from the first segment head that can be read; 0 when there is none."""
        if self.seed is None:
            for base in self.bases:
                entry = read_entry(memoryview(self.file(base).read(0, SEGMENT_ENTRY_SIZE)), 0, base, 0)
                if isinstance(entry, Entry) and entry.kind == SEGMENT:
                    self.seed = SEGMENT_HEAD.unpack(entry.payload)[1]
                    return self.seed
            return 0
        return self.seed

    def entries(
        self, position: int, limit: int, chunk_bytes: int = SCAN_BYTES, slab: Slab | None = None
    ) -> Iterator[Entry]:
        """Whole valid entries from `position` on, up to `limit`; stops silently at the first that is not."""
        seed = self.find_seed()
        while position < limit:
            view, _ = self.read(position, chunk_bytes, slab)
            at = 0
            while True:
                found, at = scan_entries(view, at, position, seed, limit, RUN_ENTRIES)
                yield from found
                if len(found) < RUN_ENTRIES:
                    break
            if read_entry(view, at, position + at, seed) != INCOMPLETE:
                return  # bad, or an entry that ends behind the limit
            position += at
            if at == 0:
                if len(view) < chunk_bytes:
                    return  # the file ends inside this entry, or here
                chunk_bytes *= 2  # one entry larger than the chunk

    def claims_behind(self, position: int) -> int:
        """The largest synced end claimed by any whole entry behind `position`: what the leader knew to be on disk.

        Entries are looked for byte by byte, since nothing behind damage is aligned. The seed keeps clients from
        planting such entries inside their messages.
        """
        claim = 0
        seed = self.find_seed()
        for index, base in enumerate(self.bases):
            file = self.file(base)
            end = self.bases[index + 1] if index + 1 < len(self.bases) else base + file.size()
            if end <= position:
                continue
            start = max(base, position + 1) if position >= base else base
            data = memoryview(file.read(start - base, end - start))
            raw = bytes(data)
            at = raw.find(b"\xca\x1a")
            while at >= 0:
                entry = read_entry(data, at, start + at, seed)
                if isinstance(entry, Entry) and _is_own(entry, seed):
                    claim = max(claim, entry.synced)
                    at = raw.find(b"\xca\x1a", at + ENTRY_SIZE + len(entry.payload))
                else:
                    at = raw.find(b"\xca\x1a", at + 1)
        return claim

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
