"""What leading a journal and following it have in common: its file work, when it must be synced, what is durable."""

from __future__ import annotations

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.live.queue import Queue, Waiting, show_durable


class JournalPath:
    """Owned by one thread, except `sync`, `rewrite_unsynced` and `probe`, which only touch files."""

    leads: bool

    def __init__(self, journal: Journal, waiting: Waiting | None = None) -> None:
        self.journal = journal
        self.waiting = Waiting() if waiting is None else waiting  # what is replicated and must be durable to be seen
        self.stopped: str | None = None  # why this journal takes no writes
        self.stop_code = ErrorCode.KAFKA_STORAGE_ERROR  # what clients are told then
        self.unsplit_entries = 0
        self.sync_by_ms: int | None = None  # when the oldest written byte that is not synced must be

    def sync(self) -> int:
        end = self.journal.sync()
        reach("journal-sync")
        return end

    def rewrite_unsynced(self) -> int:
        """Instead of another `sync` after one that failed, and while nothing is being written."""
        return self.journal.rewrite_unsynced()

    def probe(self, size: int) -> None:
        """Whether `size` bytes could be written beside the reserve; raises what the disk says."""
        self.journal.reserve.hold(size)

    def sync_begins(self) -> None:
        """Call before `sync`: what is written from now on needs another one."""
        self.sync_by_ms = None

    def refuse(self, reason: str) -> None:
        """Nothing more is taken until `resume`. What is written already may still be synced."""
        self.stopped = reason

    def resume(self) -> None:
        """The disk works again."""
        self.stopped = None

    def splittable(self) -> int:
        """How far the splitter may go. What is durable can be cut by no election, but for an unclean one."""
        return min(self.journal.synced, self.journal.durable_end)

    def _refusal(self) -> Refusal:
        assert self.stopped is not None
        return Refusal(self.stop_code, self.stopped)

    def _sync_due(self, by_ms: int | None) -> None:
        if by_ms is not None and (self.sync_by_ms is None or by_ms < self.sync_by_ms):
            self.sync_by_ms = by_ms

    def _show_durable(self, position: int) -> list[Queue]:
        """Every in-sync replica has synced everything before `position`. Returns queues that have more to show."""
        journal = self.journal
        assert position <= journal.replicated_end
        journal.durable_end = max(journal.durable_end, position)
        return show_durable(self.waiting, position)
