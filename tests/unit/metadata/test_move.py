"""From one node to a cluster: metadata move once, whole, into an empty store, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cairnmq.errors import Fault
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.image import QueueRange, Topic
from cairnmq.metadata.move import move_metadata
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import MetadataStore
from cairnmq.metadata.topics import CreateTopic
from cairnmq.replication.records import JournalRecord, Member
from cairnmq.settings.alteration import ConfigChange
from cairnmq.settings.broker import BrokerConfig
from cairnmq.testing.memory_store import MemoryState, MemoryStore
from unit.broker.cluster.brokers import CONFIG, OneBroker, Time

NODE = 4
ALONE = BrokerConfig()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqliteStore]:
    """A node's, with all kinds of keys."""
    store = SqliteStore(str(tmp_path / "meta.db"))
    catalog = Catalog(store, node_id=NODE, journals=(0, 1))
    catalog.load()
    catalog.name_cluster("the-cluster")
    catalog.make_slots((0, 1))
    for name in ("a", "b"):
        assert isinstance(catalog.create_topic(CreateTopic(name=name, partitions=3), broker=ALONE, now_ms=5), Topic)
    catalog.alter_configs("a", [ConfigChange("retention.ms", 0, "7")], broker=ALONE)
    catalog.alter_broker_configs(NODE, [ConfigChange("log.retention.ms", 0, "8")], broker=ALONE)
    catalog.alter_group_configs("g", [ConfigChange("consumer.session.timeout.ms", 0, "50000")])
    catalog.producer_id_block(100)
    for _ in range(9):
        catalog.next_epoch()
    yield store
    store.close()


@pytest.fixture
def target() -> MemoryStore:
    return MemoryStore(MemoryState(Time()))


def loaded(store: MetadataStore, *, in_cluster: bool = False) -> Catalog:
    catalog = Catalog(store, node_id=NODE, in_cluster=in_cluster)
    catalog.load()
    return catalog


def test_everything_moves(source: SqliteStore, target: MemoryStore) -> None:
    before = loaded(source)
    assert move_metadata(source, target, NODE, [0, 1, 5])
    after = loaded(target, in_cluster=True)
    assert after.image == before.image and after.cluster_id == "the-cluster"
    old, new = before.counters(), after.counters()
    assert new.epoch > old.epoch and new.revision > old.revision and new.next_producer_id == old.next_producer_id
    assert after.cluster is not None and after.cluster.next_journal == 6
    journals = after.cluster.view.journals
    assert {number: kept.record for number, kept in journals.items()} == {
        number: JournalRecord(number, (NODE,), None, new.epoch, (Member(NODE, 0),)) for number in (0, 1, 5)
    }


def test_a_move_that_was_made_is_not_made_again(source: SqliteStore, target: MemoryStore) -> None:
    """A start was stopped before it could put the file aside."""
    assert move_metadata(source, target, NODE, [0])
    revision = target.revision
    assert not move_metadata(source, target, NODE, [0]) and target.revision == revision


def test_a_move_that_was_stopped_is_made_again(source: SqliteStore, target: MemoryStore) -> None:
    target.next_epoch(source.epoch)
    target.raise_revision(source.revision)
    assert move_metadata(source, target, NODE, [0])


def test_a_store_that_is_not_empty(source: SqliteStore, target: MemoryStore) -> None:
    OneBroker(1, target, Time()).register()
    with pytest.raises(
        Fault, match="of cluster the-cluster, .* are those of a cluster that has no id yet: only an empt"
    ):
        move_metadata(source, target, NODE, [0])
    catalog = loaded(target)
    catalog.name_cluster("another")
    revision = target.revision
    with pytest.raises(Fault, match="of cluster the-cluster, .* are those of cluster another: only an empty store"):
        move_metadata(source, target, NODE, [0])
    assert target.revision == revision


def test_topics_of_an_earlier_version(source: SqliteStore, target: MemoryStore) -> None:
    source.put("topics/old", msgspec.json.encode(Topic("old", b"o" * 16, (QueueRange(900, 2),))))
    with pytest.raises(Fault, match="topic old is of an earlier version: start this node once by itself"):
        move_metadata(source, target, NODE, [0])
    assert not target.list("topics/") and target.get("ids/cluster") is None


def test_metadata_that_name_no_cluster(tmp_path: Path, target: MemoryStore) -> None:
    source = SqliteStore(str(tmp_path / "new.db"))
    with pytest.raises(Fault, match="name no cluster"):
        move_metadata(source, target, NODE, [0])
    source.close()


@pytest.mark.parametrize("made", [True, False])
def test_a_move_in_doubt(source: SqliteStore, target: MemoryStore, made: bool) -> None:
    transact = target.transact

    def lost(ops: object) -> object:
        target.loses = made
        try:
            return transact(ops)  # type: ignore[arg-type]
        finally:
            target.loses = None

    target.transact = lost  # type: ignore[method-assign, assignment]
    if made:
        assert move_metadata(source, target, NODE, [0])
        return
    with pytest.raises(Fault):
        move_metadata(source, target, NODE, [0])
    target.transact = transact  # type: ignore[method-assign]
    assert move_metadata(source, target, NODE, [0])


def test_a_store_that_is_away(source: SqliteStore, target: MemoryStore) -> None:
    target.away = True
    with pytest.raises(Fault, match="does not respond"):
        move_metadata(source, target, NODE, [0])


def test_the_node_goes_on_with_factor_one_and_others_join(source: SqliteStore, target: MemoryStore) -> None:
    move_metadata(source, target, NODE, [0, 1])
    brokers = [OneBroker(number, MemoryStore(target.state), Time()) for number in (NODE, 5)]
    for one in brokers:
        one.register()
    cluster = brokers[0].catalog.cluster
    assert isinstance(brokers[0].catalog.add_partitions("a", 5, broker=CONFIG), Topic)
    made = brokers[1].made("c", partitions=4, factor=2)
    assert cluster is not None and min(made.partitions[0].cycle) > 1
