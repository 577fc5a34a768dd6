"""A follower's journal is cut where it parts from its leader's."""

from __future__ import annotations

from itertools import pairwise

from cairnmq.storage.files.failed_sync import noting_unsynced
from cairnmq.storage.files.format import journal_segment
from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.journal.segment_files import Segment


def truncate(journal: Journal, position: int) -> None:
    """Cuts everything from `position` on, durably; blocks. Only while nothing is staged, written or synced.

    A power loss in the middle leaves a beginning of the old journal, never two parts with a gap between them: files go
    latest first, each for good before the next. What the file `synced` says is lowered before that.
    """
    assert position <= journal.end == journal.staged_end
    directory = str(journal.number)
    synced = min(journal.synced, position)
    journal.synced_file.lower(synced)
    with noting_unsynced(journal.disk, directory):
        _settle_failed_writes(journal, position)
        while journal.segments and journal.segments[-1].base >= position:
            last = journal.segments.pop()
            last.removed()
            journal.end = journal.staged_end = last.base
            journal.disk.remove(journal_segment(journal.number, last.base))
            journal.disk.sync_dir(directory)
        if journal.segments and (journal.segments[-1].end > position or journal.segments[-1].cut):
            last = journal.segments[-1]
            _cut_file(journal, last, position - last.base)
            if not last.name_synced:
                journal.disk.sync_dir(directory)
                last.name_synced = True
    journal.end = journal.staged_end = position
    journal.synced = synced
    journal.durable_end = min(journal.durable_end, position)
    journal.begin_segment()  # nothing is appended to a file that was cut


def _settle_failed_writes(journal: Journal, position: int) -> None:
    """What a failed write left at the end of a file may come back after a power loss. Beside the next file it is not
    read, so it goes before that one is removed."""
    for segment, following in pairwise(journal.segments):
        if segment.cut and following.base >= position:
            _cut_file(journal, segment, segment.size)


def _cut_file(journal: Journal, segment: Segment, size: int) -> None:
    file = journal.disk.open(journal_segment(journal.number, segment.base), write=True)
    segment.file, segment.size = file, size
    file.truncate(size)
    file.sync()
    segment.synced_size, segment.cut = size, False
