"""Metadata files as tests find them: filled, changed behind the store's back, made by the first version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from cairnmq.metadata.sqlite import SqliteStore
from unit.metadata.conformance import done


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


FIRST_VERSION = """
CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, session INTEGER NOT NULL,
                      crc INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO entries VALUES ('ids/next-queue', X'37', 2, 0, 1761422178);
INSERT INTO entries VALUES ('live/1', X'6C656674', 4, 1, 4290603448);
INSERT INTO entries VALUES ('topics/b', X'74776F', 3, 0, 3073826281);
CREATE TABLE history (revision INTEGER NOT NULL, key TEXT NOT NULL, value BLOB, crc INTEGER NOT NULL,
                      PRIMARY KEY (revision, key)) WITHOUT ROWID;
INSERT INTO history VALUES (1, 'topics/a', X'6F6E65', 1648734104);
INSERT INTO history VALUES (2, 'ids/next-queue', X'37', 1761422178);
INSERT INTO history VALUES (3, 'topics/a', NULL, 745592940);
INSERT INTO history VALUES (3, 'topics/b', X'74776F', 3073826281);
INSERT INTO history VALUES (4, 'live/1', X'6C656674', 3469524360);
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO state VALUES ('compacted', 0, 299623482);
INSERT INTO state VALUES ('digest', 544644915, 2951244133);
INSERT INTO state VALUES ('epoch', 5, 1210765174);
INSERT INTO state VALUES ('revision', 4, 2058919506);
PRAGMA application_id = 0x4341524E;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""


def of_first_version(path: Path) -> None:
    """Two topics were made, one was deleted; a session left a key; the last epoch is 5."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(FIRST_VERSION)
