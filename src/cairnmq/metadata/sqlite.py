"""The metadata store in one SQLite file: for one process, or shared by the processes of one machine.

Durable by WAL with synchronous=FULL. Every row carries a CRC-32C, and the XOR of those of all entries is stored beside
the revision, so that a changed row and a lost row are both found on open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cairnmq.errors import Unreachable
from cairnmq.metadata.machine_clock import boot_ms, boot_number
from cairnmq.metadata.sqlite_entries import EntryRows
from cairnmq.metadata.sqlite_file import SqliteFile
from cairnmq.metadata.sqlite_session import SessionRows, SqliteSession
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Change,
    Compacted,
    Conflict,
    Delete,
    Entry,
    InDoubt,
    Leadership,
    Made,
    NextEpoch,
    Op,
    Put,
    leader_key,
)
from cairnmq.metadata.store_watches import StoreWatch, StoreWatches
from cairnmq.types import Epoch

WAIT_MS = 1000

T = TypeVar("T")


class SqliteStore:
    """Keeps the last `history` revisions for watchers.

    Not `shared`: holds the file exclusively, a second opener gets Locked, and sessions of earlier processes have ended.
    `shared`: others may have it open too; one that keeps it from being written for `wait_ms` makes the store Away.
    `clock` and `boot` must be the same for all of them.
    """

    def __init__(
        self,
        path: str,
        *,
        shared: bool = False,
        history: int = 1024,
        wait_ms: int = WAIT_MS,
        clock: Callable[[], int] = boot_ms,
        boot: int | None = None,
    ) -> None:
        self.path = path
        self._own: list[SqliteSession] = []
        self._file = SqliteFile(path, shared=shared, wait_ms=wait_ms if shared else 0)
        self._entries = EntryRows(self._file, history)
        self._sessions = SessionRows(self._file, clock, boot_number() if boot is None else boot)
        try:
            self._watches = StoreWatches(self.changes, self._open(shared))
        except BaseException:
            self._file.close()
            raise

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        with self._file.faults():
            return self._file.state("revision")

    def get(self, key: str) -> Entry | None:
        """One entry."""
        with self._file.faults():
            return self._entries.get(key)

    def list(self, prefix: str) -> list[Entry]:
        """The entries directly below `prefix`, by key."""
        with self._file.faults():
            return self._entries.below(prefix)

    def put(self, key: str, value: bytes, expect: int | None = None) -> int | Conflict | Away | InDoubt:
        """Set one key; its new revision."""
        return self.transact([Put(key, value, expect)])

    def transact(self, ops: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        """All or nothing; the revision that all changed keys now have."""
        return self._write(lambda: self._entries.change(ops, {}))

    def resolve(self, doubt: InDoubt) -> Made | Away | InDoubt:
        """What became of a change. A transaction settles it for ever: it takes the place of one that was not made."""
        if self._file.in_doubt(doubt.token):
            self._write(lambda: None)
        return self._file.outcome(doubt)

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> StoreWatch:
        """Changes with a larger revision."""
        return self._watches.open(from_revision, wake)

    def look(self) -> None:
        """Wake watches if another process changed something."""
        if self._file.changed():
            self._watches.notice(self.revision)

    def session(self, timeout_ms: int) -> SqliteSession | Away:
        """A new session that ends when it is not renewed in time."""
        sent_ms = self._sessions.clock()
        number = self._write(lambda: self._sessions.add(timeout_ms))
        if isinstance(number, Away | InDoubt):
            return Away(number.reason)  # a row that nobody knows ends when its time has passed
        session = SqliteSession(self, self._sessions, number, timeout_ms, sent_ms)
        self._own.append(session)
        return session

    def held_until_ms(self, key: str) -> int | None:
        """When the session ends that a key belongs to."""
        with self._file.faults():
            return self._sessions.deadline_of(key)

    @property
    def epoch(self) -> Epoch:
        """The last epoch that was given, 0 if none was."""
        with self._file.faults():
            return Epoch(self._file.state("epoch"))

    def next_epoch(self, above: int = 0) -> Epoch | Away:
        """One more than any epoch before, and than `above`."""
        epoch = self._write(lambda: self._entries.raise_epoch(above))
        return Away(epoch.reason) if isinstance(epoch, InDoubt) else epoch

    def raise_revision(self, revision: int) -> Away | None:
        """No later change has this revision or a lower one."""
        if revision <= self.revision:
            return None

        def work() -> None:
            if revision > self._file.state("revision"):
                self._file.set_state("revision", revision)

        answer = self._write(work)
        return None if answer is None else Away(answer.reason)

    def close(self) -> None:
        """End this process's sessions and give the file back."""
        try:
            for session in list(self._own):
                session.close()
        finally:
            self._file.close()

    def _open(self, shared: bool) -> int:
        """Keys of sessions that ended go with the first change, not now: `revision` is compared with what storage knows
        of the metadata, so to open the file must not change it."""
        with self._file.snapshot():
            self._entries.verify()
            self._sessions.verify()
            begin_anew = self._sessions.must_begin_anew(shared)
        if begin_anew:
            answer = self._file.write(lambda: self._sessions.begin_anew(shared))
            if answer is not None:
                raise Unreachable(answer.reason)
        self._file.changed()
        return self.revision

    def _write(self, work: Callable[[], T]) -> T | Away | InDoubt:
        """A transaction, before which sessions end whose time has passed. Whoever watches is woken after it."""

        def transaction() -> T:
            gone = self._sessions.pass_time()
            self._entries.apply([Delete(key) for key in gone], {})
            return work()

        answer = self._file.write(transaction)
        if not isinstance(answer, Away | InDoubt):
            self._watches.notice(self._file.signed_revision)
        return answer

    def changes(self, after: int) -> tuple[Sequence[Change] | Compacted, int]:
        """History after a revision, and up to which."""
        with self._file.snapshot():
            return self._entries.changes(after), self._file.state("revision")

    # -- for the session objects

    def is_live(self, session: SqliteSession, number: int) -> bool:
        """Whether the store holds a session of this process for alive."""
        with self._file.faults():
            return session in self._own and self._sessions.has(number)

    def renew(self, number: int, timeout_ms: int) -> bool | Away:
        """Put off a session's end."""
        alive = self._write(lambda: self._sessions.put_off(number, timeout_ms))
        return Away(alive.reason) if isinstance(alive, InDoubt) else alive

    def end_session(self, session: SqliteSession, number: int) -> None:
        """Now, with what it registered; later by itself if the store is away."""

        def work() -> None:
            self._sessions.remove(number)
            self._entries.apply([Delete(key) for key in self._sessions.orphans()], {})

        if session in self._own:
            self._own.remove(session)
            self._write(work)

    def register(self, number: int, put: Put, also: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        """Set a session's key."""

        def work() -> int | Conflict:
            if not self._sessions.has(number):
                return Conflict(put.key, ABSENT, ABSENT)
            return self._entries.change([put, *also], {put.key: number})

        return self._write(work)

    def elect(self, number: int, name: str, value: bytes) -> Leadership | Conflict | Away | InDoubt:
        """Take the leader's key and a new epoch together."""
        key = leader_key(name)

        def work() -> Leadership | Conflict:
            if not self._sessions.has(number):
                return Conflict(key, ABSENT, ABSENT)
            done = self._entries.change([Put(key, value, ABSENT)], {key: number})
            return done if isinstance(done, Conflict) else Leadership(name, key, done, self._entries.raise_epoch())

        return self._write(work)
