"""Bytes of a damaged journal that is cut there, because other replicas have them: kept for people to look at (R6)."""

from __future__ import annotations

import logging

from cairnmq.os_errors import text_of
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import journal_segment
from cairnmq.storage.files.set_aside import LOST, copy_aside, put_aside
from cairnmq.storage.journal.journal import JournalReader

log = logging.getLogger(__name__)


def keep_aside(disk: Disk, reader: JournalReader, end: int, epoch: int) -> None:
    """All from position `end` on, before it is cut. A disk that has no room for it must not keep the broker from being
    mended: then it is only said."""
    number, size = reader.number, max(0, reader.end() - end)
    if not size:
        return
    try:
        _keep_aside(disk, reader, end, epoch)
    except OSError as error:
        log.error(
            "journal %d: %d bytes from position %d on are damaged, and could not be kept: %s; other replicas have them",
            number,
            size,
            end,
            text_of(error),
        )
        return
    log.warning(
        "journal %d: %d bytes from position %d on are damaged, and kept in %s/%d; they are copied again from other "
        "replicas",
        number,
        size,
        end,
        LOST,
        epoch,
    )


def _keep_aside(disk: Disk, reader: JournalReader, end: int, epoch: int) -> None:
    number = reader.number
    behind = [base for base in reader.bases if base >= end]
    before = [base for base in reader.bases if base < end]
    if before:
        base = before[-1]
        file, at = reader.file(base), end - base
        if file.size() > at:
            copy_aside(disk, file, at, f"{journal_segment(number, base)}.{at}", epoch)
    put_aside(disk, [journal_segment(number, base) for base in behind], epoch)
    reader.refresh()
