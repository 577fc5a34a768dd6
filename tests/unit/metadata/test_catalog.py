"""The catalog over a real store: what it answers is what it wrote, and what a restart reads."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.errors import Corrupt, ErrorCode, Fault, Refusal
from cairnmq.metadata.catalog import NEXT_PRODUCER, Catalog
from cairnmq.metadata.image import QueueRange, Topic
from cairnmq.metadata.quotas import QuotaChange
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import ABSENT, Away, Change, Compacted, Delete, Entry, InDoubt, Made, Put
from cairnmq.metadata.store_watches import StoreWatch
from cairnmq.metadata.topics import NEXT_QUEUE, CreateTopic, decode_topic, placed
from cairnmq.settings.alteration import ConfigChange
from cairnmq.settings.broker import BrokerConfig
from cairnmq.types import OWN_PRODUCERS_FROM, Counters
from unit.broker.cluster.brokers import Machines
from unit.metadata.conformance import done
from unit.metadata.lost_response import lost_response

BROKER = BrokerConfig()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "meta.db"))
    yield store
    store.close()


@pytest.fixture
def catalog(store: SqliteStore) -> Catalog:
    return loaded(store)


def loaded(store: SqliteStore, journals: Sequence[int] = (0,)) -> Catalog:
    catalog = Catalog(store, journals=journals)
    catalog.load()
    catalog.name_cluster()
    return catalog


def create(catalog: Catalog, name: str, partitions: int = 1) -> Topic:
    topic = catalog.create_topic(CreateTopic(name=name, partitions=partitions), broker=BROKER, now_ms=5)
    assert isinstance(topic, Topic), topic
    return topic


def test_a_created_topic_is_in_the_image_and_in_the_store(store: SqliteStore, catalog: Catalog) -> None:
    topic = create(catalog, "a", 3)
    assert catalog.image.topic("a") == topic and catalog.image.topic_by_id(topic.topic_id) == topic
    assert catalog.image.find_queue(2) == (topic, 1)
    assert catalog.image.next_queue_id == 4
    assert loaded(store).image == catalog.image


def test_validate_only_writes_nothing(store: SqliteStore, catalog: Catalog) -> None:
    create(catalog, "a")
    before, revision = catalog.image, store.revision
    request = CreateTopic(name="b", partitions=2)
    made = catalog.create_topic(request, broker=BROKER, now_ms=5, validate_only=True)
    assert isinstance(made, Topic) and made.count == 2
    grown = catalog.add_partitions("a", 5, validate_only=True)
    assert isinstance(grown, Topic) and grown.count == 5
    change = [ConfigChange("flush.ms", 0, "1")]
    assert isinstance(catalog.alter_configs("a", change, broker=BROKER, validate_only=True), Topic)
    split = [ConfigChange("cairn.split.enable", 0, "false")]
    assert catalog.alter_broker_configs(1, split, broker=BROKER, validate_only=True) == {"cairn.split.enable": "false"}
    assert (catalog.image, store.revision) == (before, revision)


def test_validate_only_still_refuses(catalog: Catalog) -> None:
    create(catalog, "a")
    answer = catalog.create_topic(CreateTopic(name="a"), broker=BROKER, now_ms=5, validate_only=True)
    assert isinstance(answer, Refusal) and answer.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_queue_ids_are_never_used_again(store: SqliteStore, catalog: Catalog) -> None:
    first = create(catalog, "a", 4)
    assert catalog.delete_topic("a", broker=BROKER) == first
    assert catalog.image.topic("a") is None and catalog.image.find_queue(1) is None
    catalog = loaded(store)
    second = create(catalog, "a", 2)
    assert second.partitions == (QueueRange(5, 2, (0,)),)
    assert second.topic_id != first.topic_id


def test_topics_of_an_earlier_version_are_placed_in_one_transaction(store: SqliteStore, catalog: Catalog) -> None:
    """Once, and for good: with another number of journals only new topics go elsewhere."""
    for name, first in (("a", 1), ("b", 4)):
        old = Topic(name, name.encode() * 16, (QueueRange(first, 3),))
        value = msgspec.json.encode(old).replace(b",[]]", b"]")
        assert decode_topic(value) == old and b"[]" not in value
        store.put(f"topics/{name}", value, ABSENT)
    store.put("ids/next-queue", b"7", ABSENT)
    catalog = loaded(store, journals=(0, 1))
    will_be, revision = placed(catalog.image, (0, 1)), store.revision
    assert not any(topic.partitions[0].cycle for topic in catalog.image.topics.values())
    catalog.place_queues()
    assert catalog.image == will_be == loaded(store).image and store.revision == revision + 1
    assert [journal for _, _, journal in catalog.image.topics["b"].places()] == [0, 1, 0]
    again = loaded(store, journals=(0, 1, 2))
    again.place_queues()
    assert again.image == will_be and store.revision == revision + 1
    assert create(again, "c").partitions[0].cycle == (1, 2, 0)


def test_deletion_by_id(catalog: Catalog) -> None:
    topic = create(catalog, "a")
    assert catalog.delete_topic_by_id(topic.topic_id, broker=BROKER) == topic
    again = catalog.delete_topic_by_id(topic.topic_id, broker=BROKER)
    assert isinstance(again, Refusal) and again.code == ErrorCode.UNKNOWN_TOPIC_ID


def test_ids_known_to_journals_are_skipped(store: SqliteStore, catalog: Catalog) -> None:
    create(catalog, "a", 3)
    catalog.raise_to(Counters(next_queue_id=3))
    assert catalog.image.next_queue_id == 4
    catalog.raise_to(Counters(next_queue_id=101))
    assert create(loaded(store), "b").partitions == (QueueRange(101, 1, (0,)),)
    high = OWN_PRODUCERS_FROM + 5000
    catalog.producer_id_block(10)
    catalog.raise_to(Counters(next_producer_id=high))
    catalog.raise_to(Counters(next_producer_id=high - 1))
    assert catalog.producer_id_block(10)[0] == high


def test_counters_tell_what_was_handed_out_and_are_raised(store: SqliteStore, catalog: Catalog) -> None:
    first = catalog.counters()
    create(catalog, "a", 3)
    block = catalog.producer_id_block(10)
    epoch = catalog.next_epoch()
    assert catalog.counters() == Counters(epoch, 4, block[-1] + 1, first.revision + 2)
    catalog.raise_to(catalog.counters())
    assert catalog.counters().revision == first.revision + 2, "nothing to raise, nothing is written"
    catalog.raise_to(Counters(0, 10, block[-1] + 100, 50))
    again = loaded(store)
    assert again.counters() == catalog.counters() == Counters(epoch, 10, block[-1] + 100, 50)
    topic = create(again, "b")
    assert again.counters().revision == 51
    catalog.refresh()
    assert catalog.image.topic("b") == topic


def test_producer_ids_are_given_once(store: SqliteStore, catalog: Catalog) -> None:
    blocks = [catalog.producer_id_block(1000), catalog.producer_id_block(10), loaded(store).producer_id_block(5)]
    assert [len(block) for block in blocks] == [1000, 10, 5]
    assert len(set(itertools.chain(*blocks))) == 1015


def test_the_cluster_id_is_made_once_and_looks_like_kafkas(store: SqliteStore, catalog: Catalog) -> None:
    assert len(catalog.cluster_id) == 22 and "=" not in catalog.cluster_id
    assert loaded(store).cluster_id == catalog.cluster_id


def test_new_metadata_take_the_cluster_id_that_others_know(store: SqliteStore) -> None:
    catalog = Catalog(store)
    catalog.load()
    assert catalog.cluster_id == "" and catalog.counters().revision == 0, "to read them is no change"
    catalog.name_cluster("known")
    catalog.name_cluster("another")
    assert catalog.cluster_id == loaded(store).cluster_id == "known"


def test_random_ids_avoid_what_kafka_reserves(store: SqliteStore) -> None:
    """All zeros, the one that ends with 1, and ids whose text begins with '-' and would be read as an option."""
    poor = iter([bytes(16), bytes(15) + b"\x01", b"\xf8" + b"\x01" * 15, b"\x05" * 16])
    catalog = Catalog(store, random_bytes=lambda size: next(poor))
    catalog.load()
    assert create(catalog, "a").topic_id == b"\x05" * 16


def test_run_time_settings_of_brokers(store: SqliteStore, catalog: Catalog) -> None:
    assert catalog.broker_config(BROKER) == BROKER
    for node, text in ((None, "11"), (1, "22"), (2, "33")):
        change = [ConfigChange("max.connections", 0, text)]
        assert catalog.alter_broker_configs(node, change, broker=BROKER) == {"max.connections": text}
    config = loaded(store).broker_config(BROKER)
    assert isinstance(config, BrokerConfig) and config.max_connections == 22
    catalog.alter_broker_configs(1, [ConfigChange("max.connections", 1)], broker=BROKER)
    config = catalog.broker_config(BROKER)
    assert isinstance(config, BrokerConfig) and config.max_connections == 11


def test_epochs_grow_over_restarts(store: SqliteStore, catalog: Catalog) -> None:
    assert [catalog.next_epoch(), catalog.next_epoch(), loaded(store).next_epoch()] == [1, 2, 3]


def test_two_brokers_share_one_store(store: SqliteStore) -> None:
    """Each decides on what it knows; the slower one must notice, learn and decide again."""
    one, two = loaded(store), loaded(store)
    made = [create(catalog, f"t{number}", 2) for number, catalog in enumerate([one, two, two, one])]
    ids = [queue for topic in made for _, queue in topic.queues()]
    assert ids == list(range(1, 9))
    taken = two.create_topic(CreateTopic(name="t3"), broker=BROKER, now_ms=5)
    assert isinstance(taken, Refusal) and taken.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert isinstance(one.create_topic(CreateTopic(name="x.y"), broker=BROKER, now_ms=5), Topic)
    collides = two.create_topic(CreateTopic(name="x_y"), broker=BROKER, now_ms=5)
    assert isinstance(collides, Refusal) and collides.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert isinstance(one.delete_topic("t0", broker=BROKER), Topic)
    assert isinstance(two.alter_configs("t0", [ConfigChange("flush.ms", 0, "1")], broker=BROKER), Refusal)
    assert isinstance(one.alter_configs("t1", [ConfigChange("flush.ms", 0, "1")], broker=BROKER), Topic)
    assert isinstance(two.alter_configs("t1", [ConfigChange("flush.messages", 0, "2")], broker=BROKER), Topic)
    one.refresh()
    assert one.image == two.image == loaded(store).image
    topic = one.image.topic("t1")
    assert topic is not None and topic.configs == {"flush.ms": "1", "flush.messages": "2"}


def test_a_long_absence_ends_in_a_full_load(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "meta.db"), history=8)
    one, two = loaded(store), loaded(store)
    for number in range(30):
        create(one, f"t{number}")
    one.delete_topic("t3", broker=BROKER)
    two.refresh()
    assert two.image == one.image
    store.close()


class LateStore(SqliteStore):
    """Tells its watchers one transaction at a time, as a store in the network may."""

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> StoreWatch:
        return LateWatch(self.changes, from_revision, wake, lambda watch: None)


class LateWatch(StoreWatch):
    def poll(self) -> list[Change] | Compacted:
        changes = super().poll()
        if isinstance(changes, list) and changes:
            self._after = changes[0].revision
            return [change for change in changes if change.revision == self._after]
        return changes


def test_old_news_changes_nothing(tmp_path: Path) -> None:
    """A watch repeats our own changes, perhaps late: a deleted topic must not come back for a moment."""
    store = LateStore(str(tmp_path / "meta.db"))
    catalog = loaded(store)
    for _ in range(2):
        create(catalog, "a")
        catalog.delete_topic("a", broker=BROKER)
    create(catalog, "b", 3)
    catalog.add_partitions("b", 5)
    image = catalog.image
    assert set(image.topics) == {"b"}
    for _ in range(10):
        catalog.refresh()
        assert catalog.image == image
    assert loaded(store).image == image
    store.close()


def test_a_change_in_doubt_that_was_made_is_answered_as_made(store: SqliteStore, catalog: Catalog) -> None:
    with lost_response(store, made=True):
        topic = create(catalog, "a")
        ids = catalog.producer_id_block(10)
    assert catalog.image.topic("a") == topic
    assert catalog.producer_id_block(10).start == ids.stop
    assert loaded(store).image == catalog.image


def test_a_change_that_stays_in_doubt_is_said_and_seen_later(tmp_path: Path) -> None:
    class Unanswering(SqliteStore):
        def resolve(self, doubt: InDoubt) -> Made | Away | InDoubt:
            return doubt

    with closing(Unanswering(str(tmp_path / "meta.db"))) as store:
        catalog = loaded(store)
        with lost_response(store, made=True), pytest.raises(Fault, match="whether the change was made will be seen"):
            create(catalog, "a")
        create(catalog, "b")
        assert sorted(catalog.image.topics) == ["a", "b"]
        assert loaded(store).image == catalog.image


def test_a_change_that_was_not_made_is_a_fault_and_can_be_made_again(store: SqliteStore, catalog: Catalog) -> None:
    before = catalog.image
    with lost_response(store, made=False), pytest.raises(Fault, match="disk I/O error"):
        create(catalog, "a")
    assert catalog.image == before
    create(catalog, "a")
    assert loaded(store).image == catalog.image


def test_a_store_that_is_away_is_a_fault_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    store = SqliteStore(str(path))
    new, catalog = Catalog(store), loaded(store)
    new.load()
    new.cluster_id = ""
    path.rename(tmp_path / "elsewhere.db")
    for work in (
        lambda: create(catalog, "a"),
        lambda: catalog.producer_id_block(10),
        lambda: catalog.next_epoch(),
        lambda: catalog.raise_to(Counters(revision=1000)),
        new.name_cluster,
    ):
        with pytest.raises(Fault, match="was moved or replaced"):
            work()
    assert catalog.image.topics == {}
    (tmp_path / "elsewhere.db").rename(path)
    create(catalog, "a")
    store.close()


@pytest.mark.parametrize(
    ("key", "value"),
    [("topics/a", b"{"), ("topics/a", b'{"name":1}'), (NEXT_QUEUE, b"x"), ("configs/1", b"[]")],
)
def test_a_value_that_is_none_is_corrupt(store: SqliteStore, key: str, value: bytes) -> None:
    done(store.transact([Put(key, value)]))
    with pytest.raises(Corrupt, match=key):
        loaded(store)


def test_a_damaged_producer_counter_is_corrupt(store: SqliteStore, catalog: Catalog) -> None:
    done(store.transact([Put(NEXT_PRODUCER, b"-x")]))
    with pytest.raises(Corrupt, match=NEXT_PRODUCER):
        catalog.producer_id_block(1)


def test_a_topic_costs_one_key(store: SqliteStore, catalog: Catalog) -> None:
    for number in range(100):
        create(catalog, f"t{number}", 1000)
    assert len(store.list("topics/")) == 100
    assert sum(len(entry.value) for entry in store.list("topics/")) < 20_000
    assert catalog.image.find_queue(100_000) == (catalog.image.topic("t99"), 999)


NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "c", "c.d.e", "c_d.e", ".", "x y"])
CHANGES = st.lists(
    st.builds(
        ConfigChange,
        st.sampled_from(["flush.ms", "retention.ms", "cleanup.policy", "cairn.flush", "no.such"]),
        st.integers(0, 3),
        st.sampled_from([None, "1", "1000", "delete", "none", "commit", "x"]),
    ),
    max_size=3,
)
BROKER_CHANGES = st.lists(
    st.builds(
        ConfigChange,
        st.sampled_from(["max.connections", "log.retention.ms", "num.partitions"]),
        st.integers(0, 1),
        st.sampled_from(["1", "1000", "x"]),
    ),
    max_size=2,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(-1, 5)),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("grow"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("alter"), NAMES, CHANGES),
        st.tuples(st.just("broker"), st.sampled_from([None, 1, 2]), BROKER_CHANGES),
        st.tuples(st.just("reserve"), st.integers(0, 40)),
        st.tuples(st.just("foreign"), NAMES),
        st.tuples(
            st.just("reload"),
        ),
    ),
    max_size=30,
)


@settings(max_examples=150)
@given(STEPS)
def test_a_reloaded_catalog_is_the_same(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/meta.db"
        store = SqliteStore(path, history=8)
        catalog, other = loaded(store), loaded(store)
        given_out: set[int] = set()
        for step in steps:
            if step[0] == "reload":
                image = catalog.image
                store.close()
                store = SqliteStore(path, history=8)
                catalog, other = loaded(store), loaded(store)
                assert catalog.image == image
                continue
            before = {queue for topic in catalog.image.topics.values() for _, queue in topic.queues()}
            perform(other if step[0] == "foreign" else catalog, step)
            catalog.refresh()
            after = {queue for topic in catalog.image.topics.values() for _, queue in topic.queues()}
            assert not (after - before) & given_out, "a queue id was used twice"
            given_out |= after
            assert all(queue < catalog.image.next_queue_id for queue in after)
        other.refresh()
        assert loaded(store).image == catalog.image == other.image
        for topic in catalog.image.topics.values():
            for partition, queue in topic.queues():
                assert catalog.image.find_queue(queue) == (topic, partition)
                assert topic.queue_id(partition) == queue
        store.close()


def perform(catalog: Catalog, step: tuple[object, ...]) -> None:
    match step:
        case ("create", str(name), int(partitions)):
            catalog.create_topic(CreateTopic(name=name, partitions=partitions), broker=BROKER, now_ms=5)
        case ("foreign", str(name)):
            catalog.create_topic(CreateTopic(name=name, partitions=2), broker=BROKER, now_ms=6)
        case ("delete", str(name)):
            catalog.delete_topic(name, broker=BROKER)
        case ("grow", str(name), int(count)):
            catalog.add_partitions(name, count)
        case ("alter", str(name), list(changes)):
            catalog.alter_configs(name, changes, broker=BROKER)
        case ("broker", int() | None as node, list(changes)):
            catalog.alter_broker_configs(node, changes, broker=BROKER)
        case ("reserve", int(queue)):
            catalog.raise_to(Counters(next_queue_id=queue + 1))
        case _:
            raise AssertionError(step)


def test_entries_of_unknown_kinds_are_left_alone(store: SqliteStore, catalog: Catalog) -> None:
    """A newer version may keep more under its own prefixes."""
    done(store.transact([Put("journals/1", b"?"), Delete("none/at-all")]))
    create(catalog, "a")
    catalog.refresh()
    assert loaded(store).image == catalog.image


def test_quotas_and_group_settings_are_what_a_restart_and_another_broker_read(
    store: SqliteStore, catalog: Catalog
) -> None:
    other = loaded(store)
    alice = (("user", "a/b"),)
    assert catalog.alter_quotas([QuotaChange(alice, (("request_percentage", 2.5),))]) == [None]
    assert catalog.alter_group_configs("g/1", [ConfigChange("consumer.session.timeout.ms", 0, "50000")]) is None
    assert catalog.image.quotas == {alice: {"request_percentage": 2.5}}
    assert catalog.image.group_configs == {"g/1": {"consumer.session.timeout.ms": "50000"}}
    other.refresh()
    assert loaded(store).image == catalog.image == other.image
    assert other.alter_quotas([QuotaChange(alice, (("request_percentage", None),))]) == [None]
    assert other.alter_group_configs("g/1", [], whole=True) is None
    assert (other.image.quotas, other.image.group_configs) == ({}, {})
    # Decided on an old image: learns what the other did, and decides again.
    assert catalog.alter_quotas([QuotaChange(alice, (("producer_byte_rate", 1.0),))]) == [None]
    assert catalog.image.quotas == {alice: {"producer_byte_rate": 1.0}} and catalog.image.group_configs == {}
    assert loaded(store).image == catalog.image


def test_validating_quotas_and_group_settings_writes_nothing(store: SqliteStore, catalog: Catalog) -> None:
    before, revision = catalog.image, store.revision
    wanted = [QuotaChange((("user", "a"),), (("producer_byte_rate", 1.0),)), QuotaChange((), ())]
    first, second = catalog.alter_quotas(wanted, validate_only=True)
    assert first is None and isinstance(second, Refusal)
    change = [ConfigChange("consumer.session.timeout.ms", 0, "50000")]
    assert catalog.alter_group_configs("g", change, validate_only=True) is None
    assert (catalog.image, store.revision) == (before, revision)


def test_slots_are_made_once(store: SqliteStore, catalog: Catalog) -> None:
    """In one transaction with their ids, which no topic gets."""
    before = store.revision
    made = catalog.make_slots((0, 1))
    assert (made.first, made.count, made.cycle) == (1, 24, (0, 1)) and store.revision == before + 1
    assert catalog.image.next_queue_id == 25
    other = loaded(store)
    assert other.image.slots == made and other.make_slots((5,)) == made
    topic = catalog.create_topic(CreateTopic(name="a", partitions=2), broker=BROKER, now_ms=1)
    assert isinstance(topic, Topic) and topic.partitions[0].first == 25 and catalog.image.slots == made


def test_slots_of_two_brokers_at_once(store: SqliteStore) -> None:
    one, other = loaded(store), loaded(store)
    assert one.make_slots((0,)) == other.make_slots((1,)) == loaded(store).image.slots


def test_what_is_loaded_is_of_one_revision() -> None:
    """Topics are listed, then another broker makes one with its journals, then journals are listed."""
    machines = Machines()
    two, store = machines.broker(2), machines.store()
    list_below = store.list

    def meanwhile(prefix: str) -> list[Entry]:
        if prefix == "journals/" and two.catalog.image.topic("a") is None:
            two.made("a", factor=1)
        return list_below(prefix)

    store.list = meanwhile  # type: ignore[method-assign]
    catalog = Catalog(store, in_cluster=True)
    catalog.load()
    assert catalog.image == two.catalog.image and catalog.cluster == two.catalog.cluster
    assert catalog.image.topic("a") is not None


def test_changes_that_are_no_longer_kept() -> None:
    """All is read anew, and who compares images is told of all topics."""
    machines = Machines()
    machines.state._history = 3
    one, two = machines.broker(1), machines.broker(2)
    two.made("a", factor=1)
    one.catalog.refresh()
    one.catalog.touched.clear()
    for number in range(9):
        two.made(f"t{number}", factor=1)
    two.catalog.delete_topic("a", broker=BROKER)
    one.catalog.refresh()
    assert one.catalog.image == two.catalog.image and one.catalog.cluster == two.catalog.cluster
    assert one.catalog.touched == {"a", *(f"t{number}" for number in range(9))}
