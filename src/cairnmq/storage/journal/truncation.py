"""A follower's journal is cut where it parts from its leader's."""

from __future__ import annotations

from cairnmq.storage.files.failed_sync import noting_unsynced
from cairnmq.storage.files.format import journal_segment
from cairnmq.storage.journal.journal import Journal


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
        while journal.segments and journal.segments[-1].base >= position:
            last = journal.segments.pop()
            last.let_go()
            journal.end = journal.staged_end = last.base
            journal.disk.remove(journal_segment(journal.number, last.base))
            journal.disk.sync_dir(directory)
        if journal.segments and (journal.segments[-1].end > position or journal.segments[-1].cut):
            last = journal.segments[-1]
            file = journal.disk.open(journal_segment(journal.number, last.base), write=True)
            last.file, last.size = file, position - last.base
            file.truncate(last.size)
            file.sync()
            last.synced_size, last.cut = last.size, False
            if not last.name_synced:
                journal.disk.sync_dir(directory)
                last.name_synced = True
    journal.end = journal.staged_end = position
    journal.synced = synced
    journal.durable_end = min(journal.durable_end, position)
    journal.begin_segment()  # nothing is appended to a file that was cut
