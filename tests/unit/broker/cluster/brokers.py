"""Brokers of one cluster as tests need them: stores that share a state, catalogs over them, registered or not."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cairnmq.broker.cluster.cluster_store import ClusterStore
from cairnmq.errors import Refusal
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.cluster_records import BrokerEntry, put_journal
from cairnmq.metadata.image import Topic
from cairnmq.metadata.store import MetadataStore
from cairnmq.metadata.topics import CreateTopic
from cairnmq.replication.lives import Lacking
from cairnmq.replication.records import BrokerRecord, JournalRecord, Member, Proposal
from cairnmq.settings.broker import BrokerConfig, broker_config
from cairnmq.testing.memory_store import MemoryState, MemoryStore

SESSION_MS = 6000


def made_config(static: dict[str, str] | None = None) -> BrokerConfig:
    config = broker_config(static or {}, in_cluster=True)
    assert isinstance(config, BrokerConfig), config
    return config


CONFIG = made_config()
NOTHING = Lacking()


def entry(broker: int, directory_id: str = "", rack: str | None = None) -> BrokerEntry:
    record = BrokerRecord(broker, 0)
    return BrokerEntry(
        record, "127.0.0.1", 9000 + broker, "127.0.0.1", 9100 + broker, rack, directory_id or f"d{broker}"
    )


class Time:
    """Virtual: sleeping passes it."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms

    def sleep(self, seconds: float) -> None:
        self.now_ms += max(1, int(seconds * 1000))


class OneBroker:
    """A process: its store, its catalog, its part of the cluster."""

    def __init__(self, number: int, store: MetadataStore, time: Time, proof: bytes = b"") -> None:
        self.number = number
        self.store = store
        self.catalog = Catalog(store, node_id=number, in_cluster=True)
        self.catalog.load()
        self.cluster = ClusterStore(
            store, number, SESSION_MS, catalog=self.catalog, clock=time, sleep=time.sleep, proof=proof
        )

    def register(self, stopped_as: int = 0, lacking: Lacking = NOTHING, directory_id: str = "") -> Member:
        return self.cluster.register(entry(self.number, directory_id), stopped_as, lacking)

    def create(self, name: str, partitions: int = 1, factor: int = -1, **fields: object) -> Topic | Refusal:
        request = CreateTopic(name=name, partitions=partitions, replication_factor=factor, **fields)  # type: ignore[arg-type]
        return self.catalog.create_topic(request, broker=CONFIG, now_ms=5)

    def made(self, name: str, partitions: int = 1, factor: int = -1) -> Topic:
        topic = self.create(name, partitions, factor)
        assert isinstance(topic, Topic), topic
        return topic

    def record(self, journal: int) -> JournalRecord:
        self.cluster.poll()
        return self.cluster.cluster.view.journals[journal].record


class SomeJournals:
    """A broker that has these journals, or all that there are."""

    def __init__(self, journals: set[int] | None = None) -> None:
        self.journals = journals
        self.told: list[tuple[object, ...]] = []
        self.heard: Callable[[], tuple[object, ...]] = tuple

    def hosts(self, journal: int) -> bool:
        return self.journals is None or journal in self.journals

    async def host(self, cluster: ClusterImage) -> None:
        self.told.append(("host", frozenset(cluster.view.journals), *self.heard()))

    def knows_queues(self, next_queue: int) -> None:
        self.told.append(("knows", next_queue, *self.heard()))


class Machines:
    """Brokers over one state in memory, by number."""

    def __init__(self) -> None:
        self.time = Time()
        self.state = MemoryState(self.time)
        self.stores: dict[int, MemoryStore] = {}

    def store(self) -> MemoryStore:
        """One more process."""
        return MemoryStore(self.state)

    def broker(self, number: int, *, registered: bool = True, proof: bytes = b"") -> OneBroker:
        """A new process."""
        store = self.stores[number] = MemoryStore(self.state)
        one = OneBroker(number, store, self.time, proof)
        if registered:
            one.register()
        return one

    def pass_ms(self, ms: int, *renewing: OneBroker) -> None:
        """Time goes by; these renew their sessions."""
        until = self.time.now_ms + ms
        while self.time.now_ms < until:
            self.time.now_ms = min(until, self.time.now_ms + SESSION_MS // 3)
            for one in renewing:
                assert one.cluster.renew() is True


def registered(one: OneBroker, broker: int | None = None) -> BrokerEntry:
    one.cluster.poll()
    return one.cluster.cluster.brokers[broker or one.number]


def journal(one: OneBroker, *members: Member, epoch: int = 0) -> Proposal:
    """A journal in the store, and a proposal that its first member leads it."""
    record = JournalRecord(7, tuple(each.broker for each in members), None, epoch, members)
    answer = one.catalog.transact([put_journal(record)])
    assert isinstance(answer, int)
    one.cluster.poll()
    new_epoch = one.store.epoch + 1
    return Proposal(replace(record, leader=members[0], epoch=new_epoch), answer, (members[0],), new_epoch)
