"""Consumers that name their rack read from the replica there, whatever happens to it (KIP-392)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPlace
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPlace

from broker_process import wait_until
from cluster.brokers import SYNC_SECONDS, Cluster, rack_of
from crash.ledger import Place
from interop.clients.java import JavaClient

RECORDS = 200
VALUE = 500  # bytes
SHORT_LAG_MS = 1500
GAVE, SENT_BACK, SENT_ON = (f"cairn_follower_reads_{name}_total" for name in ("bytes", "sent_back", "sent_on"))


def value_of(number: int) -> bytes:
    return b"%d " % number + b"." * VALUE


class Records:
    """One partition, which a producer fills; `near` follows its leader."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        done = cluster.cairn("topic", "create", "t", "-p", "1", "-r", "3", "-b", cluster.bootstrap)
        assert done.returncode == 0, done.stderr
        cluster.wait_in_sync()
        self.place = Place("t", 0)
        self.leader = cluster.leader(self.place)
        self.near = next(node for node in cluster.brokers if node != self.leader)
        self.count = 0

    def produce(self, count: int = RECORDS) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        for number in range(self.count, self.count + count):
            producer.produce("t", value_of(number), partition=0)
        assert producer.flush(SYNC_SECONDS) == 0
        self.count += count

    def is_known_near(self) -> bool:
        """The follower has had all by then."""
        return self.cluster.metric(self.leader, "cairn_out_of_sync_replicas") == 0


class Rdk:
    """librdkafka, which reads on."""

    def __init__(self, cluster: Cluster, rack: str) -> None:
        self.values: list[bytes] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "client.rack": rack,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "socket.timeout.ms": 5_000,
            }
        )
        self._consumer.assign([TopicPartition("t", 0, 0)])

    def read(self, count: int) -> None:
        """Until it has so many in all."""

        def has() -> bool:
            for message in self._consumer.consume(500, 0.2):
                error = message.error()
                assert error is None or error.retriable() or error.code() < 0, error
                if error is None:
                    self.values.append(message.value() or b"")
            return len(self.values) >= count

        wait_until(has, SYNC_SECONDS, f"{count} records, of which there are {len(self.values)}")
        assert self.values == [value_of(number) for number in range(len(self.values))]

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def rdk(records: Records) -> Iterator[Rdk]:
    one = Rdk(records.cluster, rack_of(records.near))
    try:
        yield one
    finally:
        one.close()


def by_librdkafka(records: Records) -> list[bytes]:
    with rdk(records) as one:
        one.read(records.count)
        return one.values


def by_aiokafka(records: Records) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=records.cluster.bootstrap, client_rack=rack_of(records.near), auto_offset_reset="none"
        )
        await consumer.start()
        try:
            consumer.assign([AioPlace("t", 0)])
            consumer.seek(AioPlace("t", 0), 0)
            found: list[bytes] = []
            while len(found) < records.count:
                got = await consumer.getmany(timeout_ms=200)
                found += [each.value or b"" for batch in got.values() for each in batch]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), SYNC_SECONDS))


def by_kafka_python(records: Records) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=records.cluster.bootstrap,
        client_rack=rack_of(records.near),
        auto_offset_reset="none",
        group_id=None,
    )
    consumer.assign([PythonPlace("t", 0)])
    consumer.seek(PythonPlace("t", 0), 0)
    found: list[bytes] = []
    deadline = time.monotonic() + SYNC_SECONDS
    while len(found) < records.count and time.monotonic() < deadline:
        found += [each.value for batch in consumer.poll(timeout_ms=200).values() for each in batch]
    consumer.close()
    return found


def by_java(records: Records) -> list[bytes]:
    client = JavaClient(records.cluster.bootstrap)
    client.ask(
        "reader.open",
        reader="near",
        topic="t",
        partition=0,
        start=0,
        wait_ms=100,
        rack=rack_of(records.near),
    )
    taken = client.ask("reader.take", reader="near", count=records.count, seconds=SYNC_SECONDS)
    client.ask("reader.close", reader="near")
    from interop.clients.process import got

    return [got(line).value or b"" for line in taken]


CLIENTS = {"librdkafka": by_librdkafka, "aiokafka": by_aiokafka, "kafka-python": by_kafka_python}
JAVA = [pytest.param(by_java, id="java", marks=pytest.mark.long)]


@pytest.mark.parametrize("read", [*(pytest.param(read, id=name) for name, read in CLIENTS.items()), *JAVA])
def test_a_consumer_reads_from_its_rack(
    read: Callable[[Records], list[bytes]], make_cluster: Callable[..., Cluster]
) -> None:
    cluster = make_cluster(direct=True, http=True)
    records = Records(cluster)
    records.produce()
    assert read(records) == [value_of(number) for number in range(RECORDS)]
    assert cluster.metric(records.near, GAVE) >= RECORDS * VALUE
    assert cluster.metric(records.leader, SENT_ON) > 0
    assert cluster.metric(records.leader, "cairn_topic_bytes_out_total") == 0, "none of it came from the leader"


def test_without_a_rack_it_reads_from_the_leader(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(direct=True, http=True)
    records = Records(cluster)
    records.produce()
    one = Rdk(cluster, "")
    one.read(records.count)
    one.close()
    assert cluster.metric(records.leader, "cairn_topic_bytes_out_total") >= RECORDS * VALUE
    assert all(cluster.metric(node, GAVE) == 0 for node in cluster.brokers)


def test_a_follower_that_is_late_sends_its_readers_back(make_cluster: Callable[..., Cluster]) -> None:
    """It hears nothing of its leader. The consumer goes on, and reads in its rack again when that is over."""
    settings = {"cairn.follower.read.max.lag.ms": str(SHORT_LAG_MS)}
    cluster = make_cluster(http=True, settings=settings)
    records = Records(cluster)
    records.produce()
    with rdk(records) as one:
        one.read(records.count)
        assert cluster.metric(records.near, GAVE) > 0
        cluster.links.isolate(records.near)
        records.produce()
        one.read(records.count)
        assert cluster.metric(records.near, SENT_BACK) > 0
        assert cluster.metric(records.leader, "cairn_topic_bytes_out_total") > 0
        cluster.links.heal()
        cluster.wait_in_sync()
    gave = cluster.metric(records.near, GAVE)
    assert by_librdkafka(records) == [value_of(number) for number in range(records.count)]
    assert cluster.metric(records.near, GAVE) >= gave + records.count * VALUE


def test_a_follower_dies_under_its_readers(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(direct=True, http=True)
    records = Records(cluster)
    records.produce()
    with rdk(records) as one:
        one.read(records.count)
        assert cluster.metric(records.near, GAVE) > 0
        cluster.kill(records.near)
        records.produce()
        one.read(records.count)
        cluster.revive(records.near)
        cluster.wait_in_sync()
        records.produce()
        one.read(records.count)


def test_the_leader_dies_and_readers_stay_where_they_are(make_cluster: Callable[..., Cluster]) -> None:
    """Or go where the next leader sends them; they miss nothing, and read nothing twice."""
    cluster = make_cluster(direct=True, http=True)
    records = Records(cluster)
    records.produce()
    with rdk(records) as one:
        one.read(records.count)
        cluster.kill(records.leader)
        records.produce()
        one.read(records.count)
        cluster.revive(records.leader)
        cluster.wait_in_sync()
        records.produce()
        one.read(records.count)
