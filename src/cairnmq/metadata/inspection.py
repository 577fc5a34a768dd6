"""A metadata file seen from outside, for dump and verify: a copy is opened, so that the file itself never changes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from cairnmq.errors import Corrupt, Fault, Locked
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import Compacted
from cairnmq.metadata.topics import TOPICS, decode_topic
from cairnmq.types import Counters

TABLES = ("state", "entries", "history", "sessions", "writers")
_SQLITE_MAGIC = b"SQLite format 3\0"
_SUFFIXES = ("", "-wal")
_ATTEMPTS = 20


def is_metadata(path: str) -> bool:
    """Whether a file is an SQLite database, by its first bytes."""
    with open(path, "rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def read_queues(path: str) -> list[tuple[int, str, int, str]]:
    """(queue id, topic, partition, topic id as hex) of every queue there is; Corrupt when a checksum differs."""
    queues: list[tuple[int, str, int, str]] = []
    with _copy(path) as copy:
        try:
            with closing(sqlite3.connect(copy)) as db:
                # Row checksums do not cover SQLite's own tree.
                problem = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise Corrupt(problem)
            with closing(SqliteStore(copy)) as store:
                for entry in store.list(TOPICS):
                    topic = decode_topic(entry.value)
                    queues += [(q, topic.name, partition, topic.topic_id.hex()) for partition, q in topic.queues()]
                _read_history(store)
        except (sqlite3.Error, msgspec.DecodeError, Fault) as error:
            raise Corrupt(str(error).replace(f"{copy}: ", "")) from error
    return queues


def read_counters(path: str) -> Counters:
    """What was handed out so far."""
    with copied_catalog(path) as (_, counters):
        return counters


def read_cluster(path: str) -> str:
    """Whose metadata they are; empty if they are new."""
    with copied_catalog(path) as (catalog, _):
        return catalog.cluster_id


@contextmanager
def copied_catalog(path: str) -> Iterator[tuple[Catalog, Counters]]:
    """The catalog of a copy, and what was handed out so far."""
    with _copy(path) as copy:
        try:
            with closing(SqliteStore(copy)) as store, closing(Catalog(store)) as catalog:
                catalog.load()
                yield catalog, catalog.counters()
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise Corrupt(f"{path}: {error}") from error


def _read_history(store: SqliteStore) -> None:
    """Its rows are checked as they are read."""
    changes, _ = store.changes(0)
    if isinstance(changes, Compacted):
        store.changes(changes.oldest)


def dump_metadata(path: str) -> Iterator[str]:
    """Every row as a line; what cannot be read is a line too."""
    try:
        with _copy(path) as copy, closing(sqlite3.connect(copy)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
            there = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            for table in (name for name in TABLES if name in there):  # the first version had only three
                yield f"table {table}"
                cursor = db.execute(f"SELECT * FROM {table}")
                columns = [column[0] for column in cursor.description]
                for row in cursor:
                    yield "  " + " ".join(f"{name}={value!r}" for name, value in zip(columns, row, strict=True))
    except (sqlite3.Error, Fault) as error:
        yield f"BAD: {error}"
    try:
        yield f"checksums ok, {len(read_queues(path))} queues"
    except Fault as error:
        yield f"BAD: {error}"


@contextmanager
def _copy(path: str) -> Iterator[str]:
    """The file and its write-ahead log, copied byte by byte: SQLite itself would leave files beside the original."""
    with tempfile.TemporaryDirectory(prefix="cairn-") as directory:
        copy = str(Path(directory) / "meta.db")
        for _ in range(_ATTEMPTS):
            before = _state(path)
            for suffix in _SUFFIXES:
                Path(copy + suffix).unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    shutil.copyfile(path + suffix, copy + suffix)
            if _state(path) == before:
                break
        else:
            raise Locked("another process keeps changing it")
        yield copy


def _state(path: str) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for suffix in _SUFFIXES:
        try:
            stat = os.stat(path + suffix)
            found.append((stat.st_size, stat.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found
