"""The file itself: formats, locks, and transactions that cannot be made or may have been."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from cairnmq.errors import Corrupt, Fault, Locked
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import Away, Compacted, InDoubt, Made, Put
from unit.metadata.conformance import TIMEOUT_MS, done, given
from unit.metadata.metadata_files import filled, of_first_version


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


def test_a_file_of_the_first_version_opens_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    of_first_version(path)
    for shared in (False, True, False):
        with closing(SqliteStore(str(path), shared=shared)) as store:
            assert (store.revision, store.epoch) == (4, 5)
            assert [entry.key for prefix in ("topics/", "ids/", "live/") for entry in store.list(prefix)] == [
                "topics/b",
                "ids/next-queue",
            ]
            changes = store.watch(0).poll()
            assert not isinstance(changes, Compacted)
            assert [change.revision for change in changes] == [1, 2, 3, 3, 4]
    with closing(SqliteStore(str(path))) as store:
        session = store.session(TIMEOUT_MS)
        assert not isinstance(session, Away)
        assert store.get("live/1") is None, "a new session has the number of one that an earlier version gave"
        done(session.register("live/1", b"here"))


def test_a_start_that_fails_in_the_upgrade_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    of_first_version(path)
    before = path.read_bytes()
    child = subprocess.run([sys.executable, "-c", _FULL_DISK, str(path), str(len(before))], text=True, check=True,
                           stdout=subprocess.PIPE)  # fmt: skip
    assert str(path) in child.stdout
    assert path.read_bytes() == before
    with closing(SqliteStore(str(path))) as store:
        assert (store.revision, len(store.list("topics/"))) == (4, 1)


_FULL_DISK = """
import resource, sys
from cairnmq.errors import Fault
from cairnmq.metadata.sqlite import SqliteStore
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, -1))
try:
    SqliteStore(sys.argv[1])
except Fault as fault:
    print(fault)
"""


def test_an_earlier_version_would_find_what_it_knows(tmp_path: Path) -> None:
    """The format number stays: its tables and its sums are those of the first version, whatever else is there."""
    path = tmp_path / "meta.db"
    with closing(SqliteStore(str(path), shared=True)) as store:
        session = store.session(TIMEOUT_MS)
        assert not isinstance(session, Away)
        done(session.register("live/1", b"here"))
        done(store.put("topics/a", b"1"))
        assert session.renew() is True
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA user_version").fetchone() == (1,)
            assert db.execute("SELECT count(*) FROM pragma_table_info('entries')").fetchone() == (5,)
            digest = 0
            for (crc,) in db.execute("SELECT crc FROM entries"):
                digest ^= crc
            assert db.execute("SELECT value FROM state WHERE name = 'digest'").fetchone() == (digest,)


def test_a_second_opener_is_refused(tmp_path: Path) -> None:
    first = SqliteStore(str(tmp_path / "meta.db"))
    with pytest.raises(Locked):
        SqliteStore(str(tmp_path / "meta.db"))
    done(first.put("k/a", b"still mine"))
    first.close()
    SqliteStore(str(tmp_path / "meta.db")).close()


def test_whoever_has_it_alone_keeps_the_others_out(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.db")
    alone = SqliteStore(path)
    with pytest.raises(Locked, match="in use by another process"):
        SqliteStore(path, shared=True, wait_ms=50)
    alone.close()
    with closing(SqliteStore(path, shared=True)) as shared:
        with pytest.raises(Locked):
            SqliteStore(path)
        with closing(SqliteStore(path, shared=True)) as other:
            done(other.put("k/a", b"1"))
        assert shared.get("k/a") is not None
    SqliteStore(path).close()


def test_several_processes_make_one_file(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    children = [subprocess.Popen([sys.executable, "-c", _MAKER, str(path), str(n)]) for n in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    with closing(SqliteStore(str(path))) as store:
        assert len(store.list("k/")) == 4 and store.revision == store.epoch == 4


_MAKER = """
import sys
from cairnmq.metadata.sqlite import SqliteStore
store = SqliteStore(sys.argv[1], shared=True, wait_ms=30_000)
assert isinstance(store.put("k/" + sys.argv[2], b""), int)
assert isinstance(store.next_epoch(), int)
store.close()
"""


@pytest.mark.parametrize("shared", [False, True])
def test_a_commit_survives_power_loss(tmp_path: Path, shared: bool) -> None:
    """FULL (2) syncs the WAL on every commit; NORMAL (1) would lose the last ones."""
    store = SqliteStore(str(tmp_path / "meta.db"), shared=shared)
    assert store._file._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._file._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_the_wait_for_the_lock_is_bounded(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.db")
    with (
        closing(SqliteStore(path, shared=True)) as holder,
        closing(SqliteStore(path, shared=True, wait_ms=200)) as other,
    ):
        holder._file._db.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        answer = other.put("k/a", b"1")
        assert 0.1 < time.monotonic() - began
        assert answer == Away(f"{path}: in use by another process")
        assert other.get("k/a") is None and other.revision == 0, "who reads does not wait"
        release = threading.Timer(0.05, lambda: holder._file._db.execute("ROLLBACK"))
        release.start()
        for _ in range(100):
            if not isinstance(other.put("k/a", b"1"), Away):
                break
        release.join()
        assert other.get("k/a") is not None


def test_a_failed_commit_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """A full disk: the store must not believe what it could not write."""
    store = SqliteStore(str(tmp_path / "meta.db"))
    done(store.put("k/a", b"1"))
    before, listed = store.revision, store.list("k/")
    pages = store._file._db.execute("PRAGMA page_count").fetchone()[0]
    store._file._db.execute(f"PRAGMA max_page_count = {pages}")
    answer = store.put("k/b", b"x" * 1_000_000)
    assert isinstance(answer, Away) and "the disk is full" in answer.reason
    assert (store.revision, store.list("k/")) == (before, listed)
    store._file._db.execute("PRAGMA max_page_count = 1000000")
    done(store.put("k/b", b"2"))
    store.close()
    again = SqliteStore(str(tmp_path / "meta.db"))
    assert [entry.key for entry in again.list("k/")] == ["k/a", "k/b"]
    again.close()


@pytest.mark.parametrize("shared", [False, True])
def test_a_file_that_was_replaced_is_not_written(tmp_path: Path, shared: bool) -> None:
    """Two brokers would each go on with a file of their own."""
    path = tmp_path / "meta.db"
    store = SqliteStore(str(path), shared=shared)
    done(store.put("k/a", b"1"))
    path.rename(tmp_path / "moved.db")
    path.write_bytes(b"")
    answer = store.put("k/a", b"2")
    assert isinstance(answer, Away) and "was moved or replaced" in answer.reason
    path.unlink()
    (tmp_path / "moved.db").rename(path)
    done(store.put("k/a", b"3"))
    store.close()


def test_a_write_error_in_the_commit_is_a_doubt_that_ends(tmp_path: Path) -> None:
    """A real one: the file may not grow while the transaction is written down."""
    store = SqliteStore(str(tmp_path / "meta.db"))
    done(store.put("k/a", b"1"))
    size = os.stat(f"{store.path}-wal").st_size
    was, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, was[1]))
    try:
        doubt = store.put("k/b", b"2")
        assert isinstance(doubt, InDoubt) and store.path in doubt.reason
        assert store.resolve(doubt) == doubt
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)
        signal.signal(signal.SIGXFSZ, handler)
    assert isinstance(store.resolve(doubt), Away)
    assert store.get("k/b") is None
    done(store.put("k/b", b"3"))
    store.close()
    with closing(SqliteStore(store.path)) as again:
        assert [entry.value for entry in again.list("k/")] == [b"1", b"3"]


def test_rows_of_writers_that_are_gone_do_not_gather(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.db")
    for shared, kept in ((True, 3), (True, 4), (False, 1)):
        for number in range(3 if kept == 3 else 1):
            with closing(SqliteStore(path, shared=shared)) as store:
                done(store.put("k/a", b"%d" % number))
                rows = store._file.rows("SELECT 1 FROM writers")
        assert len(rows) == kept


def test_a_damaged_row_of_a_writer_is_found(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "meta.db"))
    done(store.put("k/a", b"1"))
    store._file._db.execute("UPDATE writers SET revision = revision + 1")
    store._file._doubts.add(1)
    with pytest.raises(Corrupt, match="writers"):
        store.resolve(InDoubt("", 1))
    store.close()


def test_what_a_transaction_leaves_behind_is_its_own(tmp_path: Path) -> None:
    """Two writers have numbers of their own: one's transaction is never taken for the other's."""
    path = str(tmp_path / "meta.db")
    with closing(SqliteStore(path, shared=True)) as one, closing(SqliteStore(path, shared=True)) as two:
        first = done(one.transact([Put("k/a", b"1")]))
        done(two.transact([Put("k/b", b"1")]))
        one._file._doubts.add(1)
        two._file._doubts.add(2)
        assert one.resolve(InDoubt("", 1)) == Made(first, one.epoch)
        assert isinstance(two.resolve(InDoubt("", 2)), Away)
        assert given(one.next_epoch()) == 1
