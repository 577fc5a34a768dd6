"""The threads that do a journal's I/O. A journal has its own, or a broker's journals share a few when they are many."""

from __future__ import annotations

from collections.abc import Callable

from cairnmq.broker.runtime import Executor

OWN_MAX = 3  # journals that have threads of their own
SHARED_SYNCS = 4  # syncs of different journals may go on at the same time


class JournalThreads:
    """Made by `own` or `shared`."""

    def __init__(self, write: Executor, sync: Executor, prepare: Executor) -> None:
        self.write = write
        self.sync = sync
        self.prepare = prepare

    @classmethod
    def own(cls, number: int, executor: Callable[[str, int], Executor]) -> JournalThreads:
        return cls(
            executor(f"journal-{number}-write", 1),
            executor(f"journal-{number}-sync", 1),
            executor(f"journal-{number}-prepare", 1),
        )

    @classmethod
    def shared(cls, executor: Callable[[str, int], Executor]) -> JournalThreads:
        return cls(
            executor("journals-write", 1),
            executor("journals-sync", SHARED_SYNCS),
            executor("journals-prepare", 1),
        )

    def close(self) -> None:
        """Waits for what is under way; may be called again."""
        for thread in (self.prepare, self.write, self.sync):
            thread.shutdown()
