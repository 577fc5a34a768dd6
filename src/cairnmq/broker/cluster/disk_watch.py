"""Whether the disk under a journal that is led here does its work (R13)."""

from __future__ import annotations

from cairnmq.storage.api.serving import WritePath

REFUSES_SECONDS = 1.0  # a disk that refuses for so long costs the leadership


class DiskWatch:
    """Of one journal, looked at now and then. A disk that refuses says so; one that hangs says nothing, and somebody
    waits meanwhile for a write or a sync that gets nowhere."""

    def __init__(self, hangs_seconds: float) -> None:
        self._hangs_seconds = hangs_seconds
        self._seen: tuple[bool, int, int] | None = None
        self._since = 0.0

    def fails(self, path: WritePath, now: float) -> bool:
        """Too long for a leader, if another member can lead."""
        journal = path.journal
        waits = journal.staged_end > journal.end or path.lines.durable_wanted > journal.synced
        if path.stopped is None and not waits:
            self.rests()
            return False
        seen = path.stopped is not None, journal.end, journal.synced
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= (REFUSES_SECONDS if path.stopped is not None else self._hangs_seconds)

    def rests(self) -> None:
        """Nobody waits for it."""
        self._seen = None
