"""The loops of all journals of one store, and the threads that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cairnmq.broker.runtime import Runtime
from cairnmq.broker.storage_loop.journal_threads import OWN_MAX, JournalThreads
from cairnmq.broker.storage_loop.replica_loop import JournalObserver, ReplicaLoop
from cairnmq.storage.api.serving import Engine, Queue


class JournalLoops(dict[int, ReplicaLoop]):
    """By journal. `parts`: what each loop tells (`JournalLoop`)."""

    def __init__(
        self,
        engine: Engine,
        runtime: Runtime,
        on_advance: Callable[[Iterable[Queue]], None],
        on_synced: Callable[[], None],
        on_stopped: Callable[[], None],
    ) -> None:
        super().__init__()
        self._engine = engine
        self._parts = (runtime, on_advance, on_synced, on_stopped)
        # In a cluster there may be many at any time.
        is_shared = engine.hosting is not None or len(engine.paths) > OWN_MAX
        self._threads = JournalThreads.shared(runtime.executor) if is_shared else None
        self._observer: JournalObserver | None = None
        for number in engine.paths:
            self.make(number)

    def make(self, number: int) -> ReplicaLoop:
        loop = self[number] = ReplicaLoop(self._engine.paths[number], *self._parts, self._threads)
        loop.observer = self._observer
        return loop

    def observe(self, observer: JournalObserver) -> None:
        """Those of now and those that are made later."""
        self._observer = observer
        for loop in self.values():
            loop.observer = observer

    def close(self) -> None:
        for loop in self.values():
            loop.halt()
        for loop in self.values():
            loop.close()
