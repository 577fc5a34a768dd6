"""The SQLite file of the metadata: opened by one process or shared by those of one machine, its tables, short
transactions, and what became of them.

Nothing else in the process may open this file meanwhile: POSIX takes all of a process's locks away when it closes it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import Corrupt, Fault, Locked, Unreachable
from cairnmq.metadata.store import Away, Conflict, InDoubt, Made
from cairnmq.types import Epoch

FORMAT = 1
_APPLICATION_ID = 0x4341524E  # "CARN", shown by file(1)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)  # the last: many at the same moment
_SCHEMA = """
CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, session INTEGER NOT NULL,
                      crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE history (revision INTEGER NOT NULL, key TEXT NOT NULL, value BLOB, crc INTEGER NOT NULL,
                      PRIMARY KEY (revision, key)) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
"""
# Later than the rest. A version that knows none of it reads the file, alone, and is right to take no session for alive.
_SHARING = """
CREATE TABLE sessions (id INTEGER PRIMARY KEY, deadline INTEGER NOT NULL, timeout INTEGER NOT NULL,
                       crc INTEGER NOT NULL);
CREATE TABLE writers (writer INTEGER PRIMARY KEY, number INTEGER NOT NULL, revision INTEGER NOT NULL,
                      epoch INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE INDEX held ON entries (session) WHERE session != 0;
"""
_WRITERS_KEPT = 100
_RETRY_SECONDS = 0.001
"""SQLite itself would soon look only every 100 ms, and never find the lock free while another process makes one change
after the other."""

T = TypeVar("T")


class SqliteFile:
    """`wait_ms`: how long to wait for the lock that another process holds."""

    def __init__(self, path: str, *, shared: bool, wait_ms: int) -> None:
        self.path = path
        self._shared = shared
        self._wait = wait_ms / 1000
        self._writer = int.from_bytes(os.urandom(8), "big") >> 1
        self._number = 0  # of this writer's last transaction
        self._doubts: set[int] = set()
        self._made: dict[int, Made] = {}  # of those that were in doubt
        self._data_version = 0
        self.signed_revision = 0  # at the end of this writer's last transaction
        self._db = self._patiently(self._connected)  # a file is not always waited for that becomes one with a WAL
        self._identity = _identity(path)

    def close(self) -> None:
        """Give the file back."""
        with self.faults():
            self._db.close()

    # -- opening

    def _connected(self) -> sqlite3.Connection:
        with self.faults(busy=Locked):
            db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=self._wait)
            try:
                self._set_up(db)
            except BaseException:
                db.close()
                raise
            return db

    def _set_up(self, db: sqlite3.Connection) -> None:
        if not self._shared:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
        fresh = _is_empty(db)
        if not fresh and _pragma(db, "application_id") != _APPLICATION_ID:
            raise Corrupt(f"{self.path}: not a CairnMQ metadata file")
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = ON")  # Apple's fsync does not reach the disk without it
        if fresh:
            self._create(db)
        found = _pragma(db, "user_version")
        if found != FORMAT:
            raise Fault(f"{self.path}: metadata format {found}; this version reads {FORMAT}")
        if not _can_be_shared(db):
            self._add_sharing(db)
        _sync_directory(self.path)

    def _create(self, db: sqlite3.Connection) -> None:
        with _transaction(db):
            if not _is_empty(db):
                return  # another process was faster
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
            for name in ("revision", "digest", "epoch", "compacted"):
                _set_state(db, name, 0)

    def _add_sharing(self, db: sqlite3.Connection) -> None:
        with _transaction(db):
            if _can_be_shared(db):
                return
            for statement in _SHARING.split(";"):
                db.execute(statement)
            last_session = db.execute("SELECT max(session) FROM entries").fetchone()[0] or 0
            for name, value in (("session", last_session), ("written", 0), ("boot", 0)):
                _set_state(db, name, value)

    # -- rows

    def rows(self, query: str, *values: object) -> list[Any]:
        """What a query finds."""
        return self._db.execute(query, values).fetchall()

    def run(self, statement: str, *values: object) -> int:
        """Change rows; how many. Only within `write`."""
        return self._db.execute(statement, values).rowcount

    def state(self, name: str) -> int:
        """One of the numbers that the store as a whole has."""
        row = self._db.execute("SELECT value, crc FROM state WHERE name = ?", (name,)).fetchone()
        if row is None or row[1] != row_crc(name, b"", row[0], 0):
            raise Corrupt(f"{self.path}: state {name} is damaged (checksum)")
        value: int = row[0]
        return value

    def set_state(self, name: str, value: int) -> None:
        """Only within `write`."""
        _set_state(self._db, name, value)

    # -- transactions

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All queries within see one state, whatever other processes write meanwhile."""
        with self.faults():
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._roll_back()

    def write(self, work: Callable[[], T]) -> T | Away | InDoubt:
        """One transaction. It leaves this writer's number in the file, by which its outcome is known afterwards."""
        try:
            self._begin()
            answer = work()
            self._sign()
        except (sqlite3.Error, Unreachable) as error:
            self._roll_back()
            return Away(str(self._fault(error)))
        except BaseException:
            self._roll_back()
            raise
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            reason = str(self._fault(error))
            if _code(error) == sqlite3.SQLITE_FULL or isinstance(answer, Conflict):
                return Away(reason)  # the end of the transaction found no room; or there was nothing to be done
            self._doubts.add(self._number)
            return InDoubt(reason, self._number)
        self._doubts.clear()  # those that are not found made have been written over
        return answer

    def in_doubt(self, token: int) -> bool:
        """Whether nobody knows yet. The next transaction that is made settles it."""
        return token in self._doubts

    def outcome(self, doubt: InDoubt) -> Made | Away | InDoubt:
        """What is known by now."""
        if doubt.token in self._doubts:
            return doubt
        return self._made.get(doubt.token) or Away(doubt.reason)

    def changed(self) -> bool:
        """Whether another process has written since the last call."""
        with self.faults():
            known, self._data_version = self._data_version, _pragma(self._db, "data_version")
        return known != self._data_version

    def _begin(self) -> None:
        if _identity(self.path) != self._identity:
            raise Unreachable(f"{self.path}: the file was moved or replaced; put it back, or restart")
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")  # it could not be done before
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            self._patiently(lambda: self._db.execute("BEGIN IMMEDIATE"))
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {int(self._wait * 1000)}")
        if self._doubts:
            for number, revision, epoch in self._signed():
                if number in self._doubts:
                    self._doubts.remove(number)
                    self._made[number] = Made(revision, Epoch(epoch))

    def _patiently(self, work: Callable[[], T]) -> T:
        """Wait for other processes, but not for ever."""
        limit = time.monotonic() + self._wait
        while True:
            try:
                return work()
            except (sqlite3.OperationalError, Locked) as error:
                if time.monotonic() >= limit or (not isinstance(error, Locked) and not _is_busy(error)):
                    raise
                time.sleep(_RETRY_SECONDS)

    def _signed(self) -> Iterator[tuple[int, int, int]]:
        """This writer's last transaction that was made."""
        query = "SELECT number, revision, epoch, crc FROM writers WHERE writer = ?"
        for number, revision, epoch, crc in self._db.execute(query, (self._writer,)):
            if crc != _writer_crc(self._writer, number, revision, epoch):
                raise Corrupt(f"{self.path}: table writers is damaged (checksum)")
            yield number, revision, epoch

    def _sign(self) -> None:
        if not self._number:  # those of processes that are gone
            last = "SELECT writer FROM writers ORDER BY revision DESC LIMIT ?"
            self.run(f"DELETE FROM writers WHERE writer NOT IN ({last})", _WRITERS_KEPT if self._shared else 0)
        self._number += 1
        self.signed_revision = self.state("revision")
        signature = (self._writer, self._number, self.signed_revision, self.state("epoch"))
        self.run("REPLACE INTO writers VALUES (?, ?, ?, ?, ?)", *signature, _writer_crc(*signature))

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # after some errors SQLite has done it by itself
            self._db.execute("ROLLBACK")

    # -- errors

    @contextmanager
    def faults(self, busy: type[Fault] = Unreachable) -> Iterator[None]:
        """SQLite's errors in our words."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._fault(error, busy) from error

    def _fault(self, error: Exception, busy: type[Fault] = Unreachable) -> Fault:
        """Damage is raised: no caller may take it for anything else."""
        if isinstance(error, Fault):
            return error
        code = _code(error)
        if code in _DAMAGE:
            raise Corrupt(f"{self.path}: {error}") from error
        if _is_busy(error):
            return busy(f"{self.path}: in use by another process")
        if code == sqlite3.SQLITE_FULL:
            return Unreachable(f"{self.path}: the disk is full; free some space and try again")
        return Unreachable(f"{self.path}: {error}")


def row_crc(key: str, value: bytes, number: int, other: int) -> int:
    """A checksum over all of a row; lengths are in it, so that no two rows run into one another."""
    raw = key.encode()
    head = f"{len(raw)} {len(value)} {number} {other} ".encode()
    return crc32c(value, crc32c(head + raw))


def _writer_crc(writer: int, number: int, revision: int, epoch: int) -> int:
    return row_crc(f"{writer} {number}", b"", revision, epoch)


def _set_state(db: sqlite3.Connection, name: str, value: int) -> None:
    db.execute("REPLACE INTO state VALUES (?, ?, ?)", (name, value, row_crc(name, b"", value, 0)))


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """While a file is made; later ones go through `write`."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _is_empty(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None


def _can_be_shared(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sessions'").fetchone() is not None


def _pragma(db: sqlite3.Connection, name: str) -> int:
    value: int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _code(error: Exception) -> int:
    """Errors that the driver raises itself (text that is not UTF-8) have no code: the row is damaged."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF


def _is_busy(error: Exception) -> bool:
    return _code(error) in _BUSY


def _identity(path: str) -> tuple[int, int] | None:
    """Which file has this name."""
    with suppress(OSError):
        stat = os.stat(path)
        return stat.st_dev, stat.st_ino
    return None


def _sync_directory(path: str) -> None:
    """A new file is safe only when its directory entry is."""
    directory = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
