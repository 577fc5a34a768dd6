"""Bytes of a damaged journal that is cut there, because other replicas have them: kept for people to look at (R6)."""

from __future__ import annotations

import logging
from contextlib import suppress

from cairnmq.os_errors import text_of
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import TO_CUT, journal_segment
from cairnmq.storage.files.reserve import FULL
from cairnmq.storage.files.set_aside import LOST, copy_aside, put_aside
from cairnmq.storage.journal.journal import JournalReader

log = logging.getLogger(__name__)


def will_cut(disk: Disk, number: int) -> None:
    """Durably noted before anything says that the bytes do not count: a start that is stopped after that finds a torn
    tail, and keeps it all the same (`is_being_cut`)."""
    with suppress(OSError):  # then only such a start would not keep them
        disk.replace(_note_name(number), b"")


def is_being_cut(disk: Disk, number: int) -> bool:
    """Whether a start before this one was stopped while it cut the journal."""
    return disk.exists(_note_name(number))


def _note_name(number: int) -> str:
    return f"{number}/{TO_CUT}"


def keep_aside(disk: Disk, reader: JournalReader, end: int, epoch: int) -> None:
    """All from position `end` on that can be read, before it is cut. A disk that has no room for it, or fails, must not
    keep the broker from being mended: then it is only said."""
    _keep_aside(disk, reader, end, epoch)
    with suppress(OSError):  # the cut removes it, too
        disk.remove(_note_name(reader.number))


def _keep_aside(disk: Disk, reader: JournalReader, end: int, epoch: int) -> None:
    number, size = reader.number, max(0, reader.end() - end)
    if not size:
        return
    behind = [base for base in reader.bases if base >= end]
    unread = 0
    try:
        try:
            _copy_end(disk, reader, end, epoch)
        except OSError as error:
            # Files that are put aside take room, and what is copied again needs it.
            if error.errno in FULL or not behind:
                raise
            unread = behind[0] - end
            _tell_unkept(number, unread, end, error)
        put_aside(disk, [journal_segment(number, base) for base in behind], epoch)
        reader.refresh()
    except OSError as error:
        _tell_unkept(number, size - unread, end + unread, error)
        return
    log.warning(
        "journal %d: %d bytes from position %d on are damaged, and kept in %s/%d; they are copied again from other "
        "replicas",
        number,
        size - unread,
        end + unread,
        LOST,
        epoch,
    )


def _copy_end(disk: Disk, reader: JournalReader, end: int, epoch: int) -> None:
    """Of the file that is cut and goes on being used."""
    before = [base for base in reader.bases if base < end]
    if before:
        base = before[-1]
        file, at = reader.file(base), end - base
        if file.size() > at:
            copy_aside(disk, file, at, f"{journal_segment(reader.number, base)}.{at}", epoch)


def _tell_unkept(number: int, size: int, position: int, error: OSError) -> None:
    log.error(
        "journal %d: %d bytes from position %d on are damaged, and could not be kept: %s; other replicas have them",
        number,
        size,
        position,
        text_of(error),
    )
