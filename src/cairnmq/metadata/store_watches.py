"""Watches of a store's changes, the same for all stores: who is woken, and from where each reads on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from cairnmq.metadata.store import Change, Compacted

Read: TypeAlias = Callable[[int], tuple[Sequence[Change] | Compacted, int]]
"""The changes after a revision, and the one up to which there are no others: all as of one moment."""


class StoreWatches:
    """Those of one store object. `seen`: a revision of which nobody need be told."""

    def __init__(self, read: Read, seen: int) -> None:
        self._read = read
        self._seen = seen
        self._open: list[StoreWatch] = []

    def open(self, after: int, wake: Callable[[], None] | None) -> StoreWatch:
        """For changes with a larger revision. `wake` is called when there may be some."""
        watch = StoreWatch(self._read, after, wake, self._open.remove)
        self._open.append(watch)
        return watch

    def notice(self, revision: int) -> None:
        """The store has come to this revision: all are woken if it is a later one."""
        if revision > self._seen:
            self._seen = revision
            for watch in [*self._open]:
                watch.wake()


class StoreWatch:
    """Reads on from where it last was."""

    def __init__(
        self, read: Read, after: int, wake: Callable[[], None] | None, drop: Callable[[StoreWatch], None]
    ) -> None:
        self._read = read
        self._after = after
        self._wake = wake
        self._drop: Callable[[StoreWatch], None] | None = drop

    def wake(self) -> None:
        """Tell the watcher that there is something to read."""
        if self._wake is not None:
            self._wake()

    def poll(self) -> list[Change] | Compacted:
        """What is new since the last call."""
        changes, revision = self._read(self._after)
        if isinstance(changes, Compacted):
            return changes
        self._after = max(self._after, revision)
        return list(changes)

    def close(self) -> None:
        """Wake nobody any more."""
        drop, self._drop = self._drop, None
        if drop is not None:
            drop(self)
