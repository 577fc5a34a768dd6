"""Spark 4.2 with the Kafka connector that it brings, and with ours: the same jobs, the same rows as librdkafka's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker_process import Broker
from interop.clients.contract import Got, Sent
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.process import ClientProcess
from spark.session_process import SPARK_4_2, Connector, start_session

START = 1_700_000_000_000


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProcess]:
    process = start_session(tmp_path_factory.mktemp("spark-4-2"), python=SPARK_4_2)
    assert process.ask("version") == "4.2.0"
    yield process
    process.kill()


@pytest.fixture(params=["kafka", "cairnmq"])
def connector(request: pytest.FixtureRequest, session: ClientProcess, shared_broker: Broker) -> Connector:
    return Connector(session, shared_broker.bootstrap, request.param)


def numbers(*numbers: int) -> list[bytes]:
    return sorted(b"%d" % number for number in numbers)


def test_batch(connector: Connector, kafka: LibrdkafkaClient) -> None:
    topic = f"batch-4-2-{connector.name}"
    kafka.create_topic(topic, partitions=2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        sent = [Sent(b"%s %d" % (codec.encode(), i), b"k", (("h", b"%d" % i),), START + i, i % 2) for i in range(40)]
        kafka.produce(topic, sent, codec=codec)
    kafka.produce(topic, [Sent(None, b"no value"), Sent(b"no key", None, (("h", None),))])
    written = sorted(kafka.read(topic, (0, 1)))
    assert connector.records(subscribe=topic) == written
    ends = {"startingOffsets": f'{{"{topic}":{{"1":-2}}}}', "endingOffsets": f'{{"{topic}":{{"1":57}}}}'}
    some = connector.records(assign=f'{{"{topic}":[1]}}', minPartitions=3, **ends)
    assert some == [row for row in written if row.partition == 1 and row.offset < 57]


def test_times_and_patterns(connector: Connector, kafka: LibrdkafkaClient) -> None:
    for name in ("one", "two", "other"):
        topic = f"{name}-times-{connector.name}"
        kafka.create_topic(topic)
        kafka.produce(topic, [Sent(b"%d" % i, timestamp=START + 10 * i) for i in range(10)])
    both = f"(one|two)-times-{connector.name}"
    assert connector.values(subscribePattern=both) == numbers(*range(10), *range(10))
    since = connector.values(subscribePattern=both, startingTimestamp=START + 61)
    assert since == numbers(7, 8, 9, 7, 8, 9)
    each = f'{{"one-times-{connector.name}":{{"0":{START + 85}}}}}'
    assert connector.values(subscribe=f"one-times-{connector.name}", startingOffsetsByTimestamp=each) == numbers(9)
    until = connector.values(subscribe=f"one-times-{connector.name}", endingTimestamp=START + 20)
    assert until == numbers(0, 1)


def test_aborted_records_are_not_seen(connector: Connector, kafka: LibrdkafkaClient, shared_broker: Broker) -> None:
    topic = f"aborted-4-2-{connector.name}"
    kafka.create_topic(topic)
    producer = Producer({"bootstrap.servers": shared_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    committed = {"kafka.isolation.level": "read_committed"}
    assert connector.values(subscribe=topic, **committed) == numbers(0, 2)


def test_batch_sink(connector: Connector, kafka: LibrdkafkaClient) -> None:
    source, target = f"sink-from-4-2-{connector.name}", f"sink-to-4-2-{connector.name}"
    for topic in (source, target):
        kafka.create_topic(topic, partitions=2)
    kafka.produce(source, [Sent(b"%d" % i, b"k%d" % i, (("n", b"%d" % i),), partition=i % 2) for i in range(1000)])
    sql = f"SELECT '{target}' AS topic, key, value, headers, 1 - partition AS partition FROM source"
    connector.session.ask(
        "copy", source=connector.at(subscribe=source, includeHeaders="true"), sql=sql, sink=connector.at()
    )

    def content(rows: list[Got], turned: bool) -> list[tuple[object, ...]]:
        return sorted((row.partition ^ turned, row.key, row.value, row.headers) for row in rows)

    assert content(kafka.read(target, (0, 1)), False) == content(kafka.read(source, (0, 1)), True)


def test_stream(connector: Connector, kafka: LibrdkafkaClient, tmp_path: Path) -> None:
    """Two runs on one checkpoint: the second goes on where the first ended, with what came meanwhile."""
    source, target = f"stream-from-4-2-{connector.name}", f"stream-to-4-2-{connector.name}"
    for topic in (source, target):
        kafka.create_topic(topic, partitions=2)
    wanted: list[int] = []
    for run in range(2):
        sent = range(100 * run, 100 * run + 100)
        kafka.produce(source, [Sent(b"%d" % i, timestamp=START + i, partition=i % 2) for i in sent])
        connector.session.ask(
            "stream",
            source=connector.at(subscribePattern=f"{source}.*", startingTimestamp=START + 30, maxOffsetsPerTrigger=50),
            sql="SELECT key, value FROM source",
            sink=connector.at(topic=target),
            checkpoint=str(tmp_path),
        )
        wanted += [i for i in sent if i >= 30]
        assert sorted(row.value or b"" for row in kafka.read(target, (0, 1))) == numbers(*wanted)
