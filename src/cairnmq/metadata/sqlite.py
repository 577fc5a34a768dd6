"""The metadata store in one SQLite file, for one process.

Durable by WAL with synchronous=FULL. Every row carries a CRC-32C, and the XOR of all of them is stored beside the
revision, so that a changed row and a lost row are both found on open.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import Corrupt, Fault, Locked
from cairnmq.metadata.sqlite_session import SqliteSession, SqliteWatch
from cairnmq.metadata.store import (
    ABSENT,
    Change,
    Check,
    Compacted,
    Conflict,
    Delete,
    Entry,
    Leadership,
    Op,
    Put,
    leader_key,
)
from cairnmq.types import Epoch

FORMAT = 1
_APPLICATION_ID = 0x4341524E  # "CARN", shown by file(1)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT)
_SCHEMA = """
CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, session INTEGER NOT NULL,
                      crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE history (revision INTEGER NOT NULL, key TEXT NOT NULL, value BLOB, crc INTEGER NOT NULL,
                      PRIMARY KEY (revision, key)) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
"""


class SqliteStore:
    """Keeps the last `history` revisions for watchers. Holds the file exclusively: a second opener gets Locked."""

    def __init__(self, path: str, *, history: int = 1024) -> None:
        self.path = path
        self._history = history
        self._sessions: dict[int, SqliteSession] = {}
        self._next_session = 1
        self._ended: set[str] = set()  # keys that sessions of an earlier process had registered
        self._revision = self._digest = 0
        self._written: list[tuple[int, int]] = []  # revision and digest of the open transaction
        self._watches: list[SqliteWatch] = []
        with self._faults():
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        return self._revision

    def get(self, key: str) -> Entry | None:
        """One entry."""
        with self._faults():
            row = self._db.execute("SELECT value, revision, session, crc FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None or key in self._ended else self._checked(key, *row)

    def list(self, prefix: str) -> list[Entry]:
        """The entries directly below `prefix`, by key."""
        assert prefix.endswith("/"), prefix
        query = "SELECT key, value, revision, session, crc FROM entries WHERE key > ? AND key < ? ORDER BY key"
        with self._faults():
            rows = self._db.execute(query, (prefix, prefix[:-1] + "0")).fetchall()  # "0" follows "/"
        return [self._checked(*row) for row in rows if "/" not in row[0][len(prefix) :] and row[0] not in self._ended]

    def put(self, key: str, value: bytes, expect: int | None = None) -> int | Conflict:
        """Set one key; its new revision."""
        return self.transact([Put(key, value, expect)])

    def transact(self, ops: Sequence[Op]) -> int | Conflict:
        """All or nothing; the revision that all changed keys now have."""
        return self._commit(ops, session=0)

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> SqliteWatch:
        """Changes with a larger revision."""
        watch = SqliteWatch(self, from_revision, wake)
        self._watches.append(watch)
        return watch

    def session(self, now_ms: int, timeout_ms: int) -> SqliteSession:
        """A new session that ends when it is not renewed in time."""
        number, self._next_session = self._next_session, self._next_session + 1
        session = self._sessions[number] = SqliteSession(self, number, now_ms, timeout_ms)
        return session

    def expire(self, now_ms: int) -> int:
        """End the sessions whose time has passed; how many did."""
        late = [session for session in self._sessions.values() if session.deadline_ms <= now_ms]
        for session in late:
            session.close()
        return len(late)

    @property
    def epoch(self) -> Epoch:
        """The last epoch that was given, 0 if none was."""
        with self._faults():
            return Epoch(self._state("epoch"))

    def next_epoch(self, above: int = 0) -> Epoch:
        """One more than any epoch before, and than `above`."""
        with self._faults(), self._writing():
            return self._raise_epoch(above)

    def raise_revision(self, revision: int) -> None:
        """No later change has this revision or a lower one."""
        if revision > self._revision:
            with self._faults(), self._writing():
                self._apply([], 0)
                self._set_state("revision", revision)
                self._written.append((revision, self._written[-1][1] if self._written else self._digest))

    def close(self) -> None:
        """End this process's sessions and give the file back."""
        for session in list(self._sessions.values()):
            session.close()
        with self._faults():
            self._db.close()

    # -- opening

    def _open(self) -> None:
        db = self._db
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        fresh = db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None
        if not fresh and db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise Corrupt(f"{self.path}: not a CairnMQ metadata file")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = ON")  # Apple's fsync does not reach the disk without it
        if fresh:
            with self._writing():
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {FORMAT}")
                for name in ("revision", "digest", "epoch", "compacted"):
                    self._set_state(name, 0)
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found != FORMAT:
            raise Fault(f"{self.path}: metadata format {found}; this version reads {FORMAT}")
        _sync_directory(self.path)
        self._revision = self._state("revision")
        self._verify()
        # They go with the first change: to open the file must not be one, because of what `revision` is compared with.
        self._ended = {key for (key,) in db.execute("SELECT key FROM entries WHERE session != 0")}

    def _verify(self) -> None:
        """Every row against its checksum, and all of them against the stored sum."""
        total = 0
        for key, value, revision, session, crc in self._db.execute(
            "SELECT key, value, revision, session, crc FROM entries"
        ):
            self._checked(key, value, revision, session, crc)
            if revision > self._revision:
                raise Corrupt(f"{self.path}: key {key} has revision {revision}, beyond the last one, {self._revision}")
            total ^= crc
        self._digest = self._state("digest")
        if total != self._digest:
            raise Corrupt(f"{self.path}: rows of table entries are missing or duplicated")

    # -- reading and writing rows

    def _checked(self, key: str, value: bytes, revision: int, session: int, crc: int) -> Entry:
        if not isinstance(key, str) or not isinstance(value, bytes) or crc != _row_crc(key, value, revision, session):
            raise Corrupt(f"{self.path}: key {key} is damaged (checksum)")
        return Entry(key, value, revision)

    def _state(self, name: str) -> int:
        row = self._db.execute("SELECT value, crc FROM state WHERE name = ?", (name,)).fetchone()
        if row is None or row[1] != _row_crc(name, b"", row[0], 0):
            raise Corrupt(f"{self.path}: state {name} is damaged (checksum)")
        value: int = row[0]
        return value

    def _set_state(self, name: str, value: int) -> None:
        self._db.execute("REPLACE INTO state VALUES (?, ?, ?)", (name, value, _row_crc(name, b"", value, 0)))

    def _raise_epoch(self, above: int = 0) -> Epoch:
        epoch = max(self._state("epoch"), above) + 1
        self._set_state("epoch", epoch)
        return Epoch(epoch)

    def _commit(self, ops: Sequence[Op], session: int) -> int | Conflict:
        with self._faults(), self._writing():
            conflict = self._conflict(ops)
            if conflict is not None:
                return conflict
            return self._apply(ops, session)

    def _conflict(self, ops: Sequence[Op]) -> Conflict | None:
        assert len({op.key for op in ops}) == len(ops), "a key occurs twice in one transaction"
        for op in ops:
            if op.expect is None:
                continue
            entry = self.get(op.key)
            actual = ABSENT if entry is None else entry.revision
            if actual != op.expect:
                return Conflict(op.key, op.expect, actual)
        return None

    def _apply(self, ops: Sequence[Op], session: int) -> int:
        """Write the operations under one new revision; none when they change nothing."""
        revision, digest, changed = self._revision + 1, self._digest, False
        named = {op.key for op in ops if not isinstance(op, Check)}
        for op in [*ops, *(Delete(key) for key in sorted(self._ended - named))]:
            if isinstance(op, Check):
                continue
            old = self._db.execute("SELECT crc FROM entries WHERE key = ?", (op.key,)).fetchone()
            if old is not None:
                digest ^= old[0]
            elif isinstance(op, Delete):
                continue
            changed = True
            if isinstance(op, Put):
                crc = _row_crc(op.key, op.value, revision, session)
                digest ^= crc
                self._db.execute(
                    "REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", (op.key, op.value, revision, session, crc)
                )
                self._remember(revision, op.key, op.value)
            else:
                self._db.execute("DELETE FROM entries WHERE key = ?", (op.key,))
                self._remember(revision, op.key, None)
        if not changed:
            return self._revision
        self._set_state("revision", revision)
        self._set_state("digest", digest)
        self._forget(revision)
        self._written.append((revision, digest))
        return revision

    def _remember(self, revision: int, key: str, value: bytes | None) -> None:
        crc = _row_crc(key, value or b"", revision, int(value is None))
        self._db.execute("INSERT INTO history VALUES (?, ?, ?, ?)", (revision, key, value, crc))

    def _forget(self, revision: int) -> None:
        """Keep history bounded. Done in steps, so that not every commit pays for it."""
        floor = revision - self._history
        if floor > 0 and floor % max(1, self._history // 8) == 0:
            self._db.execute("DELETE FROM history WHERE revision <= ?", (floor,))
            self._set_state("compacted", floor)

    def _drop(self, session_rows: Sequence[tuple[str]]) -> None:
        """Remove what ended sessions had registered."""
        if session_rows:
            self._commit([Delete(key) for (key,) in session_rows], session=0)

    # -- for the session and watch objects

    def end_session(self, number: int) -> None:
        """Forget a session and what it registered."""
        if self._sessions.pop(number, None) is not None:
            with self._faults():
                rows = self._db.execute("SELECT key FROM entries WHERE session = ?", (number,)).fetchall()
            self._drop(rows)

    def register(self, number: int, key: str, value: bytes) -> int | Conflict:
        """Set a session's key."""
        if number not in self._sessions:
            return Conflict(key, ABSENT, ABSENT)
        return self._commit([Put(key, value, ABSENT)], session=number)

    def elect(self, number: int, name: str, value: bytes) -> Leadership | Conflict:
        """Take the leader's key and a new epoch together."""
        key = leader_key(name)
        if number not in self._sessions:
            return Conflict(key, ABSENT, ABSENT)
        with self._faults(), self._writing():
            ops = [Put(key, value, ABSENT)]
            conflict = self._conflict(ops)
            if conflict is not None:
                return conflict
            epoch = self._raise_epoch()
            return Leadership(name, key, self._apply(ops, number), epoch)

    def changes(self, after: int) -> Sequence[Change] | Compacted:
        """History after a revision."""
        with self._faults():
            oldest = self._state("compacted")
            if after < oldest:
                return Compacted(oldest)
            rows = self._db.execute(
                "SELECT revision, key, value, crc FROM history WHERE revision > ? ORDER BY revision, key", (after,)
            ).fetchall()
        for revision, key, value, crc in rows:
            if crc != _row_crc(key, value or b"", revision, int(value is None)):
                raise Corrupt(f"{self.path}: history of key {key} is damaged (checksum)")
        return [Change(key, value, revision) for revision, key, value, _ in rows]

    def drop_watch(self, watch: SqliteWatch) -> None:
        """Wake it no more."""
        if watch in self._watches:
            self._watches.remove(watch)

    # -- transactions and faults

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One SQLite transaction. What is kept in memory follows only after the commit returned."""
        self._written.clear()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        if self._written:
            self._revision, self._digest = self._written[-1]
            self._ended.clear()
            for watch in list(self._watches):
                watch.wake()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """SQLite's errors in our words."""
        try:
            yield
        except sqlite3.Error as error:
            # Errors that the driver raises itself (text that is not UTF-8) have no code: the row is damaged.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Locked(f"{self.path}: in use by another process") from error
            if code in _DAMAGE:
                raise Corrupt(f"{self.path}: {error}") from error
            if code == sqlite3.SQLITE_FULL:
                raise Fault(f"{self.path}: the disk is full; free some space and try again") from error
            raise Fault(f"{self.path}: {error}") from error


def _row_crc(key: str, value: bytes, number: int, other: int) -> int:
    """A checksum over all of a row; lengths are in it, so that no two rows run into one another."""
    raw = key.encode()
    head = f"{len(raw)} {len(value)} {number} {other} ".encode()
    return crc32c(value, crc32c(head + raw))


def _sync_directory(path: str) -> None:
    """A new file is safe only when its directory entry is."""
    directory = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
