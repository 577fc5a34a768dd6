"""A copy of a store reads as the store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from cairnmq.errors import Unreachable
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.image import Topic
from cairnmq.metadata.inspection import read_cluster, read_counters, read_queues
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store_copy import copy_store, entries_of
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.broker import BrokerConfig
from cairnmq.testing.memory_store import MemoryState, MemoryStore
from unit.broker.cluster.brokers import Time


@pytest.fixture
def source() -> MemoryStore:
    store = MemoryStore(MemoryState(Time()))
    catalog = Catalog(store)
    catalog.load()
    catalog.name_cluster("the-cluster")
    assert isinstance(catalog.create_topic(CreateTopic(name="t", partitions=3), broker=BrokerConfig(), now_ms=5), Topic)
    for _ in range(4):
        catalog.next_epoch()
    return store


def test_it_reads_as_the_store(source: MemoryStore, tmp_path: Path) -> None:
    path = str(tmp_path / "copy.db")
    copy_store(source, path)
    assert read_cluster(path) == "the-cluster"
    assert [row[1:3] for row in read_queues(path)] == [("t", 0), ("t", 1), ("t", 2)]
    counters = read_counters(path)
    assert (counters.epoch, counters.revision) == (4, source.revision)
    with closing(SqliteStore(path)) as copy:
        assert entries_of(copy) == entries_of(source) and len(entries_of(source)) > 2


def test_of_a_store_that_is_empty(tmp_path: Path) -> None:
    copy_store(MemoryStore(MemoryState(Time())), str(tmp_path / "copy.db"))
    assert read_cluster(str(tmp_path / "copy.db")) == ""


class _Changing(MemoryStore):
    @property
    def revision(self) -> int:
        self.put("k/a", b"")
        return super().revision


def test_not_while_others_change_it(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="stop them first"):
        copy_store(_Changing(MemoryState(Time())), str(tmp_path / "copy.db"))
