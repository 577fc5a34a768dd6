"""SQLite passes the conformance suite; beyond it: damage is found, kills lose nothing, history stays small."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.errors import Corrupt, Fault, Locked
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.sqlite_session import SqliteSession
from cairnmq.metadata.store import Compacted, Delete, Put
from unit.metadata.conformance import TIMEOUT_MS, StoreConformance, done


class SqliteHarness:
    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._now_ms = 1_000_000
        self._live: list[SqliteSession] = []
        self._store: SqliteStore | None = None

    def open(self) -> SqliteStore:
        self._store = SqliteStore(self._path)
        return self._store

    def reopen(self, store: SqliteStore) -> SqliteStore:
        """A killed process: nothing is closed in order, the lock alone goes."""
        image = f"{self._path}.image"
        for suffix in ("", "-wal"):
            if os.path.exists(self._path + suffix):
                shutil.copyfile(self._path + suffix, image + suffix)
        store.close()
        self._path = image
        return self.open()

    def session(self, store: SqliteStore) -> SqliteSession:
        session = store.session(self._now_ms, TIMEOUT_MS)
        self._live.append(session)
        return session

    def lapse(self, store: SqliteStore, session: SqliteSession) -> None:
        self._now_ms += TIMEOUT_MS - 1
        assert store.expire(self._now_ms) == 0
        for other in self._live:
            if other is not session:
                other.renew(self._now_ms)
        self._now_ms += 1
        assert store.expire(self._now_ms) == 1

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "meta.db")
    yield harness
    harness.close()


class TestSqlite(StoreConformance):
    """The suite."""


def filled(path: Path) -> None:
    store = SqliteStore(str(path))
    for number in range(50):
        done(store.put(f"topics/t{number:02}", f"value {number}".encode()))
    store.close()


def tampered(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    assert db.execute(statement).rowcount == 1
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE entries SET value = CAST('value 8' AS BLOB) WHERE key = 'topics/t07'", "topics/t07"),
        ("UPDATE entries SET value = 'text' WHERE key = 'topics/t07'", "topics/t07"),
        ("UPDATE entries SET revision = revision - 1 WHERE key = 'topics/t07'", "topics/t07"),
        ("UPDATE entries SET session = 1 WHERE key = 'topics/t07'", "topics/t07"),
        ("UPDATE entries SET crc = crc + 1 WHERE key = 'topics/t07'", "topics/t07"),
        ("UPDATE entries SET key = 'topics/t99' WHERE key = 'topics/t07'", "topics/t99"),
        ("DELETE FROM entries WHERE key = 'topics/t07'", "missing"),
        ("INSERT INTO entries SELECT 'topics/x', value, revision, session, crc FROM entries LIMIT 1", "topics/x"),
        ("UPDATE state SET value = value + 1 WHERE name = 'epoch'", "epoch"),
        ("UPDATE state SET value = value - 1 WHERE name = 'revision'", "revision"),
        ("DELETE FROM state WHERE name = 'digest'", "digest"),
    ],
)
def test_a_changed_row_is_found_on_open(tmp_path: Path, statement: str, named: str) -> None:
    path = tmp_path / "meta.db"
    filled(path)
    tampered(path, statement)
    with pytest.raises(Corrupt, match=named) as caught:
        store = SqliteStore(str(path))
        store.next_epoch()
    assert str(path) in str(caught.value)


def test_every_flipped_byte_of_a_value_is_found(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    filled(path)
    clean = path.read_bytes()
    place = clean.index(b"value 33")
    for step in range(8):
        damaged = bytearray(clean)
        damaged[place + step] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(Corrupt, match="topics/t33"):
            SqliteStore(str(path))


@pytest.mark.parametrize("damage", ["cut", "header", "zeros"])
def test_a_broken_file_is_corrupt_and_not_made_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "meta.db"
    filled(path)
    clean = path.read_bytes()
    broken = {
        "cut": clean[: len(clean) // 2],
        "header": b"no" + clean[2:],
        "zeros": clean[:4096] + bytes(len(clean) - 4096),
    }
    path.write_bytes(broken[damage])
    with pytest.raises(Corrupt, match="meta.db"):
        SqliteStore(str(path))


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE other (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="not a CairnMQ"):
        SqliteStore(str(path))
    assert path.read_bytes() == before


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    filled(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(Fault, match="format 2"):
        SqliteStore(str(path))


def test_a_second_opener_is_refused(tmp_path: Path) -> None:
    first = SqliteStore(str(tmp_path / "meta.db"))
    with pytest.raises(Locked):
        SqliteStore(str(tmp_path / "meta.db"))
    done(first.put("k/a", b"still mine"))
    first.close()
    SqliteStore(str(tmp_path / "meta.db")).close()


def test_a_commit_survives_power_loss(tmp_path: Path) -> None:
    """FULL (2) syncs the WAL on every commit; NORMAL (1) would lose the last ones."""
    store = SqliteStore(str(tmp_path / "meta.db"))
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_every_prefix_of_the_wal_is_a_past_state(tmp_path: Path) -> None:
    """Power may fail while a commit is on its way to the disk: what opens then is the state after some commit."""
    path = tmp_path / "meta.db"
    store = SqliteStore(str(path))
    states = {store.revision: store.list("k/")}
    for number in range(12):
        ops = [Put(f"k/{number}", b"x" * number), Put("k/last", str(number).encode())]
        done(store.transact([*ops, Delete(f"k/{number - 3}")]))
        states[store.revision] = store.list("k/")
    database, wal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    store.close()
    seen = set()
    for size in range(0, len(wal) + 1, 1031):
        crashed = tmp_path / f"cut-{size}.db"
        crashed.write_bytes(database)
        Path(f"{crashed}-wal").write_bytes(wal[:size])
        again = SqliteStore(str(crashed))
        assert again.list("k/") == states[again.revision]
        seen.add(again.revision)
        again.close()
    assert len(seen) > 6


def test_kill_9_loses_no_commit(tmp_path: Path) -> None:
    """The child names each revision after its commit returned; all that were named must be there."""
    path = tmp_path / "meta.db"
    child = subprocess.Popen([sys.executable, "-c", _CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 200:
            child.send_signal(signal.SIGKILL)
            break
    rest = child.stdout.read().split()
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    told = max([200, *(int(number) for number in rest)])
    store = SqliteStore(str(path))
    assert len(store.list("k/")) >= told
    assert store.revision >= told
    assert store.next_epoch() > told
    store.close()


_CHILD = """
import sys
from cairnmq.metadata.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
number = 0
while True:
    number += 1
    store.put(f"k/{number}", b"value")
    store.next_epoch()
    print(number, flush=True)
"""


def test_history_is_bounded_and_says_so(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "meta.db"), history=16)
    old, new = store.watch(0), store.watch(0)
    for number in range(100):
        done(store.put("k/a", str(number).encode()))
        assert not isinstance(new.poll(), Compacted)
    rows = store._db.execute("SELECT count(*) FROM history").fetchone()[0]
    assert 16 <= rows <= 18
    answer = old.poll()
    assert isinstance(answer, Compacted) and answer.oldest >= 82
    changes = store.watch(answer.oldest).poll()
    assert not isinstance(changes, Compacted) and changes[-1].value == b"99"
    store.close()


def test_a_damaged_history_row_is_found(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    filled(path)
    tampered(path, "UPDATE history SET value = x'00' WHERE key = 'topics/t07'")
    store = SqliteStore(str(path))
    with pytest.raises(Corrupt, match="topics/t07"):
        store.watch(0).poll()
    store.close()


def test_a_failed_commit_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """A full disk: the store must not believe what it could not write."""
    store = SqliteStore(str(tmp_path / "meta.db"))
    done(store.put("k/a", b"1"))
    before, listed = store.revision, store.list("k/")
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Fault, match="full"):
        store.put("k/b", b"x" * 1_000_000)
    assert (store.revision, store.list("k/")) == (before, listed)
    store._db.execute("PRAGMA max_page_count = 1000000")
    done(store.put("k/b", b"2"))
    store.close()
    again = SqliteStore(str(tmp_path / "meta.db"))
    assert [entry.key for entry in again.list("k/")] == ["k/a", "k/b"]
    again.close()
