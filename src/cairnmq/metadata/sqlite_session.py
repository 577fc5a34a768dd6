"""Sessions and watches of the SQLite store: objects of the one process that has the file open."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cairnmq.metadata.store import Change, Compacted, Conflict, Leadership

if TYPE_CHECKING:
    from cairnmq.metadata.sqlite import SqliteStore


class SqliteSession:
    """A session of this process: an object with a deadline."""

    def __init__(self, store: SqliteStore, number: int, now_ms: int, timeout_ms: int) -> None:
        self._store = store
        self._number = number
        self._timeout_ms = timeout_ms
        self.deadline_ms = now_ms + timeout_ms
        self._live = True

    @property
    def live(self) -> bool:
        """Whether the store still holds the session for alive."""
        return self._live

    def renew(self, now_ms: int) -> bool:
        """Put off its end. A deadline that has passed is final even if nobody called `expire` yet."""
        if self._live and now_ms >= self.deadline_ms:
            self.close()
        if self._live:
            self.deadline_ms = now_ms + self._timeout_ms
        return self._live

    def register(self, key: str, value: bytes) -> int | Conflict:
        """Set a key that disappears with the session."""
        return self._store.register(self._number, key, value)

    def elect(self, name: str, value: bytes) -> Leadership | Conflict:
        """Become the leader `name` under a new epoch if nobody is."""
        return self._store.elect(self._number, name, value)

    def close(self) -> None:
        """End it now."""
        self._live = False
        self._store.end_session(self._number)


class SqliteWatch:
    """Reads the stored history from where it last was."""

    def __init__(self, store: SqliteStore, after: int, wake: Callable[[], None] | None) -> None:
        self._store = store
        self._after = after
        self._wake = wake

    def wake(self) -> None:
        """Tell the watcher that there is something to read."""
        if self._wake is not None:
            self._wake()

    def poll(self) -> list[Change] | Compacted:
        """What is new since the last call."""
        changes = self._store.changes(self._after)
        if isinstance(changes, Compacted):
            return changes
        if changes:
            self._after = changes[-1].revision
        return list(changes)

    def close(self) -> None:
        """Wake nobody any more."""
        self._store.drop_watch(self)
