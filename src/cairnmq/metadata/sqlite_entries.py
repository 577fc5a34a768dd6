"""Keys of the SQLite store: their rows, checked, and the history of what changed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from cairnmq.errors import Corrupt
from cairnmq.metadata.expectations import agreed
from cairnmq.metadata.sqlite_file import SqliteFile, row_crc
from cairnmq.metadata.store import ABSENT, Change, Check, Compacted, Conflict, Delete, Entry, NextEpoch, Op, Put
from cairnmq.types import Epoch

_ALIVE = "(session = 0 OR session IN (SELECT id FROM sessions))"


class EntryRows:
    """Keeps the last `history` revisions. What a session registered is not to be seen when its row is gone."""

    def __init__(self, file: SqliteFile, history: int) -> None:
        self._file = file
        self._history = history

    def get(self, key: str) -> Entry | None:
        """One entry."""
        query = f"SELECT key, value, revision, session, crc FROM entries WHERE key = ? AND {_ALIVE}"
        return next((self._checked(*row) for row in self._file.rows(query, key)), None)

    def below(self, prefix: str) -> list[Entry]:
        """The entries directly below `prefix`, by key."""
        assert prefix.endswith("/"), prefix
        query = f"""SELECT key, value, revision, session, crc FROM entries
                    WHERE key > ? AND key < ? AND {_ALIVE} ORDER BY key"""
        rows = self._file.rows(query, prefix, prefix[:-1] + "0")  # "0" follows "/"
        return [self._checked(*row) for row in rows if "/" not in row[0][len(prefix) :]]

    def changes(self, after: int) -> list[Change] | Compacted:
        """History after a revision."""
        oldest = self._file.state("compacted")
        if after < oldest:
            return Compacted(oldest)
        rows = self._file.rows(
            "SELECT revision, key, value, crc FROM history WHERE revision > ? ORDER BY revision, key", after
        )
        for revision, key, value, crc in rows:
            if crc != row_crc(key, value or b"", revision, int(value is None)):
                raise Corrupt(f"{self._file.path}: history of key {key} is damaged (checksum)")
        return [Change(key, value, revision) for revision, key, value, _ in rows]

    def verify(self) -> None:
        """Every row against its checksum, and all of them against the stored sum."""
        last, total = self._file.state("revision"), 0
        for row in self._file.rows("SELECT key, value, revision, session, crc FROM entries"):
            entry = self._checked(*row)
            if entry.revision > last:
                raise Corrupt(
                    f"{self._file.path}: key {entry.key} has revision {entry.revision}, beyond the last one, {last}"
                )
            total ^= row[-1]
        if total != self._file.state("digest"):
            raise Corrupt(f"{self._file.path}: rows of table entries are missing or duplicated")

    # -- within a transaction

    def change(self, ops: Sequence[Op | NextEpoch], held: Mapping[str, int]) -> int | Conflict:
        """All or nothing. `held`: the sessions of keys that are to have one."""
        found = agreed(ops, self._revision, partial(self._file.state, "epoch"))
        if isinstance(found, Conflict):
            return found
        keyed, epoch = found
        if epoch is not None:
            self._file.set_state("epoch", epoch)
        return self.apply(keyed, held)

    def raise_epoch(self, above: int = 0) -> Epoch:
        """One more than any before, and than `above`."""
        epoch = max(self._file.state("epoch"), above) + 1
        self._file.set_state("epoch", epoch)
        return Epoch(epoch)

    def apply(self, ops: Sequence[Op], held: Mapping[str, int]) -> int:
        """Write the operations under one new revision; none when they change nothing."""
        last = self._file.state("revision")
        revision, digest, changed = last + 1, self._file.state("digest"), False
        for op in ops:
            if isinstance(op, Check):
                continue
            rows = self._file.rows("SELECT crc, session FROM entries WHERE key = ?", op.key)
            old_crc, session = rows[0] if rows else (0, 0)
            if isinstance(op, Delete) and not rows:
                continue
            changed = True
            digest ^= old_crc
            if isinstance(op, Put):
                session = held.get(op.key, session)
                crc = row_crc(op.key, op.value, revision, session)
                digest ^= crc
                self._file.run("REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", op.key, op.value, revision, session, crc)
                self._remember(revision, op.key, op.value)
            else:
                self._file.run("DELETE FROM entries WHERE key = ?", op.key)
                self._remember(revision, op.key, None)
        if not changed:
            return last
        self._file.set_state("revision", revision)
        self._file.set_state("digest", digest)
        self._forget(revision)
        return revision

    def _revision(self, key: str) -> int:
        entry = self.get(key)
        return ABSENT if entry is None else entry.revision

    def _remember(self, revision: int, key: str, value: bytes | None) -> None:
        crc = row_crc(key, value or b"", revision, int(value is None))
        self._file.run("INSERT INTO history VALUES (?, ?, ?, ?)", revision, key, value, crc)

    def _forget(self, revision: int) -> None:
        """Keep history bounded. Done in steps, so that not every commit pays for it."""
        floor = revision - self._history
        if floor > 0 and floor % max(1, self._history // 8) == 0:
            self._file.run("DELETE FROM history WHERE revision <= ?", floor)
            self._file.set_state("compacted", floor)

    def _checked(self, key: str, value: bytes, revision: int, session: int, crc: int) -> Entry:
        if not isinstance(key, str) or not isinstance(value, bytes) or crc != row_crc(key, value, revision, session):
            raise Corrupt(f"{self._file.path}: key {key} is damaged (checksum)")
        return Entry(key, value, revision)
