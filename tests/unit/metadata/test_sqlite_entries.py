"""Rows of keys and of history: a change behind the store's back is found, history stays small and says so."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from cairnmq.errors import Corrupt
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import Compacted
from unit.metadata.conformance import done
from unit.metadata.metadata_files import filled, tampered


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


def test_history_is_bounded_and_says_so(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "meta.db"), history=16)
    old, new = store.watch(0), store.watch(0)
    for number in range(100):
        done(store.put("k/a", str(number).encode()))
        assert not isinstance(new.poll(), Compacted)
    rows = store._file._db.execute("SELECT count(*) FROM history").fetchone()[0]
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


def test_history_is_cut_under_a_slow_process(tmp_path: Path) -> None:
    """What another process has not read when it is cut is told as Compacted, and the last state is there."""
    path = str(tmp_path / "meta.db")
    with closing(SqliteStore(path, shared=True, history=16)) as fast, closing(SqliteStore(path, shared=True)) as slow:
        watch = slow.watch(slow.revision)
        for number in range(40):
            done(fast.put("k/a", b"%d" % number))
        answer = watch.poll()
        assert isinstance(answer, Compacted)
        watch = slow.watch(slow.revision)
        assert [entry.value for entry in slow.list("k/")] == [b"39"]
        assert watch.poll() == []
