"""Bytes of a journal as they lie in its files: what a leader sends to a follower, and where each epoch begins."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.errors import Corrupt
from cairnmq.storage.files.disk import File
from cairnmq.storage.files.format import ENTRY_HEAD, ENTRY_SIZE
from cairnmq.storage.journal.journal import Journal, JournalReader

FIRST_ENTRY_BYTES = 4096  # read of a file to learn the epoch of its first entry


class FileRange(Struct, frozen=True):
    """Bytes of an open file. `file` holds it open as long as this is there, whatever becomes of its name. `fd` is -1 on
    a simulated disk."""

    fd: int
    offset: int
    size: int
    file: File | None = None


def file_ranges(journal: Journal, position: int, max_bytes: int, entry_bytes_max: int = 0) -> list[FileRange]:
    """The bytes from `position` on, where an entry begins, across segments, below the written end. They never change
    while this broker leads. So many at most; but an entry that is larger goes whole, up to `entry_bytes_max`: with a
    part of it nobody can go on."""
    ranges: list[FileRange] = []
    end = position + max_bytes
    if end < journal.end and max_bytes < entry_bytes_max:
        end = max(end, position + min(_entry_bytes(journal, position), entry_bytes_max))
    end = min(journal.end, end)
    for segment in journal.segments:
        if segment.end <= position:
            continue
        if position >= end:
            break
        file, at = journal.locate(position)
        size = min(segment.end, end) - position
        ranges.append(FileRange(file.fileno(), at, size, file))
        position += size
    return ranges


def _entry_bytes(journal: Journal, position: int) -> int:
    file, at = journal.locate(position)
    _, _, _, length, *_ = ENTRY_HEAD.unpack(file.read(at, ENTRY_HEAD.size))
    return ENTRY_SIZE + int(length)


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
