"""The threads that do a journal's I/O. A journal has its own, or a broker's journals share a few when they are many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

OWN_MAX = 3  # journals that have threads of their own
SHARED_SYNCS = 4  # syncs of different journals may go on at the same time


class JournalThreads:
    """Made by `own` or `shared`."""

    def __init__(self, write: ThreadPoolExecutor, sync: ThreadPoolExecutor, prepare: ThreadPoolExecutor) -> None:
        self.write = write
        self.sync = sync
        self.prepare = prepare

    @classmethod
    def own(cls, number: int) -> JournalThreads:
        return cls(
            ThreadPoolExecutor(1, f"journal-{number}-write"),
            ThreadPoolExecutor(1, f"journal-{number}-sync"),
            ThreadPoolExecutor(1, f"journal-{number}-prepare"),
        )

    @classmethod
    def shared(cls) -> JournalThreads:
        return cls(
            ThreadPoolExecutor(1, "journals-write"),
            ThreadPoolExecutor(SHARED_SYNCS, "journals-sync"),
            ThreadPoolExecutor(1, "journals-prepare"),
        )

    def close(self) -> None:
        """Waits for what is under way; may be called again."""
        for thread in (self.prepare, self.write, self.sync):
            thread.shutdown()
