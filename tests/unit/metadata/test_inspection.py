"""meta.db seen from outside: by whoever dumps or verifies it, also while brokers have it open."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from cairnmq.errors import Corrupt, Refusal
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.inspection import copied_catalog, dump_metadata, is_metadata, read_counters, read_queues
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import Away
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.broker import BrokerConfig
from unit.metadata.conformance import TIMEOUT_MS, done
from unit.metadata.metadata_files import of_first_version, tampered


def with_topics(store: SqliteStore) -> None:
    catalog = Catalog(store)
    catalog.load()
    for name, partitions in (("a", 2), ("b", 1)):
        made = catalog.create_topic(CreateTopic(name=name, partitions=partitions), broker=BrokerConfig(), now_ms=5)
        assert not isinstance(made, Refusal)


def test_a_shared_file_is_read_while_it_is_open(tmp_path: Path) -> None:
    """From a copy: SQLite's files are what they were, and the sessions go on."""
    path = tmp_path / "meta.db"
    with closing(SqliteStore(str(path), shared=True)) as store:
        with_topics(store)
        session = store.session(TIMEOUT_MS)
        assert not isinstance(session, Away)
        done(session.register("live/1", b"here"))
        copies = [tmp_path / f"copy.db{suffix}" for suffix in ("", "-wal")]
        for suffix, copy in zip(("", "-wal"), copies, strict=True):
            # By another process: this one would lose its locks if it opened the file once more.
            subprocess.run(["cp", f"{path}{suffix}", str(copy)], check=True)
        before = [copy.read_bytes() for copy in copies]
        found = str(tmp_path / "copy.db")
        assert is_metadata(found)
        assert [row[:3] for row in read_queues(found)] == [(1, "a", 0), (2, "a", 1), (3, "b", 0)]
        lines = list(dump_metadata(found))
        counters = read_counters(found)
        with copied_catalog(found) as (catalog, same):
            assert sorted(catalog.image.topics) == ["a", "b"] and same == counters
        assert [copy.read_bytes() for copy in copies] == before
        assert (counters.revision, counters.next_queue_id) == (store.revision, 4)
    assert [line for line in lines if line.startswith("table")] == [
        "table state",
        "table entries",
        "table history",
        "table sessions",
        "table writers",
    ]
    assert any("deadline=" in line for line in lines) and lines[-1] == "checksums ok, 3 queues"


def test_a_file_of_the_first_version_is_dumped(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    of_first_version(path)
    lines = list(dump_metadata(str(path)))
    assert [line for line in lines if line.startswith("table")] == ["table state", "table entries", "table history"]
    assert not any(line.startswith("BAD: no such table") for line in lines)


def test_damage_is_a_line_of_the_dump(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    with closing(SqliteStore(str(path))) as store:
        with_topics(store)
    tampered(path, "UPDATE entries SET crc = crc + 1 WHERE key = 'topics/a'")
    with pytest.raises(Corrupt, match="topics/a"):
        read_queues(str(path))
    assert list(dump_metadata(str(path)))[-1].startswith("BAD: ")


def test_what_is_no_database_is_none(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.write_bytes(b"SQLite format 2\0")
    assert not is_metadata(str(path))
