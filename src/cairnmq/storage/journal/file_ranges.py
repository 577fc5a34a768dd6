"""Bytes of a journal as they lie in its files: what a leader sends to a follower, and where each epoch begins."""

from __future__ import annotations

from itertools import islice

from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.files.disk import File
from cairnmq.storage.journal.journal import Journal, JournalReader

FILES_MAX = 8  # that the bytes for one follower come from
FIRST_ENTRY_BYTES = 4096  # read of a file to learn the epoch of its first entry


class FileRange(Struct, frozen=True):
    """Bytes of an open file. `file` holds it open as long as this is there, whatever becomes of its name. `fd` is -1 on
    a simulated disk."""

    fd: int
    offset: int
    size: int
    file: File | None = None

    def content(self) -> memoryview:
        """For who cannot have it by its number."""
        assert self.file is not None
        return memoryview(self.file.read(self.offset, self.size))


def file_ranges(journal: Journal, position: int, max_bytes: int) -> list[FileRange]:
    """The bytes from `position` on, below the written end, across some segments: each is a file that is held open. They
    never change while this broker leads."""
    ranges: list[FileRange] = []
    end = min(journal.end, position + max_bytes)
    if position >= end:
        return ranges
    journal.locate(position)  # a Fault, if it was removed
    for segment in islice(journal.segments, journal.segments.index_of(position), None):
        if position >= end or len(ranges) == FILES_MAX:
            break
        file, size = segment.file, min(segment.end, end) - position
        ranges.append(FileRange(file.fileno(), position - segment.base, size, file))
        position += size
    return ranges


def epoch_starts(journal: Journal) -> list[tuple[int, int]]:
    """Each epoch with its first position, both ascending. Blocks. A file has entries of one epoch; one that a follower
    began after a start or a cut may go on with that of the file before."""
    reader = JournalReader(journal.disk, journal.number)
    reader.seed = journal.seed
    starts: list[tuple[int, int]] = []
    try:
        for segment in journal.segments:
            if segment.base >= journal.end:
                break
            first = next(reader.entries(segment.base, segment.end, FIRST_ENTRY_BYTES), None)
            if first is None:
                raise Corrupt(f"journal {journal.number}: position {segment.base} was written and cannot be read")
            if not starts or starts[-1][0] != first.epoch:
                starts.append((first.epoch, segment.base))
    finally:
        reader.close()
    return starts
