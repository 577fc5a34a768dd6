"""Sessions of the SQLite store as rows with deadlines, and the objects for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cairnmq.errors import Corrupt
from cairnmq.metadata.sqlite_file import SqliteFile, row_crc
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Conflict,
    InDoubt,
    Leadership,
    NextEpoch,
    Op,
    Put,
)

if TYPE_CHECKING:
    from cairnmq.metadata.sqlite import SqliteStore


class SessionRows:
    """They count neither in the revision nor in the digest. `clock` is one that all processes of the machine share; it
    begins anew with each boot."""

    def __init__(self, file: SqliteFile, clock: Callable[[], int], boot: int) -> None:
        self.clock = clock
        self.shortest_ms = 0  # the time of the session that has the least
        self._file = file
        self._boot = boot

    def has(self, number: int) -> bool:
        """Whether a session is alive."""
        return bool(self._file.rows("SELECT 1 FROM sessions WHERE id = ?", number))

    def deadline_of(self, key: str) -> int | None:
        """Of the session that a key belongs to."""
        query = "SELECT deadline FROM sessions WHERE id = (SELECT session FROM entries WHERE key = ?)"
        return next((int(deadline_ms) for (deadline_ms,) in self._file.rows(query, key)), None)

    def verify(self) -> None:
        """Every row against its checksum."""
        for _ in self._rows():
            pass

    def must_begin_anew(self, shared: bool) -> bool:
        """At opening: whether there are sessions, and all of them are of processes that are gone."""
        gone = not shared or self._restarted(self.clock())
        return gone and bool(self._file.rows("SELECT 1 FROM sessions LIMIT 1"))

    # -- within a transaction

    def begin_anew(self, shared: bool) -> None:
        """End all, if that is still so. What they registered is then nobody's."""
        if not shared or self._restarted(self.clock()):
            self._file.run("DELETE FROM sessions")
            self._file.set_state("boot", self._boot)

    def pass_time(self) -> list[str]:
        """What every transaction begins with: the keys that are nobody's, when sessions have ended whose time passed.

        Sessions are renewed more often than every half of their time, and each renewal is a write. So after a longer
        silence nobody could write, and a session gets its whole time again.
        """
        self.begin_anew(shared=True)
        now_ms = self.clock()
        silence_ms = now_ms - self._file.state("written")
        self._file.set_state("written", now_ms)
        left: list[int] = []
        for number, deadline_ms, timeout_ms in self._rows():
            if silence_ms > timeout_ms // 2:
                self._set(number, max(deadline_ms, now_ms + timeout_ms), timeout_ms)
            elif deadline_ms <= now_ms:
                self.remove(number)
                continue
            left.append(timeout_ms)
        self.shortest_ms = min(left, default=0)
        return self.orphans()

    def add(self, timeout_ms: int) -> int:
        """A session with a number that none had before."""
        number = self._file.state("session") + 1
        self._file.set_state("session", number)
        self._set(number, self.clock() + timeout_ms, timeout_ms)
        self.shortest_ms = min(timeout_ms, self.shortest_ms or timeout_ms)
        return number

    def put_off(self, number: int, timeout_ms: int) -> bool:
        """False when it has ended."""
        if not self.has(number):
            return False
        self._set(number, self.clock() + timeout_ms, timeout_ms)
        return True

    def remove(self, number: int) -> None:
        """It has ended."""
        self._file.run("DELETE FROM sessions WHERE id = ?", number)

    def orphans(self) -> list[str]:
        """Keys of sessions that have ended."""
        query = "SELECT key FROM entries WHERE session != 0 AND session NOT IN (SELECT id FROM sessions) ORDER BY key"
        return [key for (key,) in self._file.rows(query)]

    def _rows(self) -> Iterator[tuple[int, int, int]]:
        """Number, deadline, time."""
        for number, deadline_ms, timeout_ms, crc in self._file.rows("SELECT id, deadline, timeout, crc FROM sessions"):
            if crc != _session_crc(number, deadline_ms, timeout_ms):
                raise Corrupt(f"{self._file.path}: session {number} is damaged (checksum)")
            yield number, deadline_ms, timeout_ms

    def _set(self, number: int, deadline_ms: int, timeout_ms: int) -> None:
        crc = _session_crc(number, deadline_ms, timeout_ms)
        self._file.run("REPLACE INTO sessions VALUES (?, ?, ?, ?)", number, deadline_ms, timeout_ms, crc)

    def _restarted(self, now_ms: int) -> bool:
        """Whether the machine has, since the file was last written. Not every system has numbers for its boots."""
        return self._file.state("boot") != self._boot or (not self._boot and now_ms < self._file.state("written"))


class SqliteSession:
    """A session of this process."""

    def __init__(self, store: SqliteStore, rows: SessionRows, number: int, timeout_ms: int, confirmed_ms: int) -> None:
        self.confirmed_ms = confirmed_ms
        self._store = store
        self._rows = rows
        self._number = number
        self._timeout_ms = timeout_ms

    @property
    def live(self) -> bool:
        """Whether the store still holds the session for alive."""
        return self._store.is_live(self, self._number)

    @property
    def pace_ms(self) -> int:
        """How often to renew."""
        return min(self._timeout_ms, self._rows.shortest_ms or self._timeout_ms) // 3

    def renew(self) -> bool | Away:
        """Put off its end. A deadline that has passed is final if anybody wrote since."""
        sent_ms = self._rows.clock()
        alive = self._store.renew(self._number, self._timeout_ms)
        if alive is True:
            self.confirmed_ms = sent_ms
        return alive

    def register(
        self, key: str, value: bytes, *, expect: int = ABSENT, also: Sequence[Op | NextEpoch] = ()
    ) -> int | Conflict | Away | InDoubt:
        """Set a key that disappears with the session."""
        return self._store.register(self._number, Put(key, value, expect), also)

    def elect(self, name: str, value: bytes) -> Leadership | Conflict | Away | InDoubt:
        """Become the leader `name` under a new epoch if nobody is."""
        return self._store.elect(self._number, name, value)

    def close(self) -> None:
        """End it now."""
        self._store.end_session(self, self._number)


def _session_crc(number: int, deadline_ms: int, timeout_ms: int) -> int:
    return row_crc(f"session {number}", b"", deadline_ms, timeout_ms)
