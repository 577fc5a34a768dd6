"""Batch queries give what an ordinary client reads, on every kind of topic."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from broker_process import Broker, wait_until
from cairnmq.codec.compression import CODEC_NAMES
from cairnmq.spark import topic
from cairnmq.spark.errors import DataLoss
from cairnmq.spark.source import CairnSource
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.transactors import Transactor
from spark.records import mixed, rows

Read = Callable[..., DataFrameReader]


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_records_of_any_codec(read: Read, kafka: LibrdkafkaClient, codec: str) -> None:
    name = f"batch-{codec}"
    kafka.create_topic(name, partitions=3)
    kafka.produce(name, mixed(600, 3), codec=codec)
    found = rows(read(subscribe=name, includeHeaders="true").load())
    assert found == sorted(kafka.read(name, range(3)))
    assert len(found) == 600


def test_times_given_by_the_broker(read: Read, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("batch-append", configs={"message.timestamp.type": "LogAppendTime"})
    kafka.produce("batch-append", mixed(10))
    found = rows(read(subscribe="batch-append", includeHeaders="true").load())
    assert found == kafka.read("batch-append")
    assert all(row.append_time for row in found)


def test_aborted_records_are_unseen(read: Read, kafka: LibrdkafkaClient, shared_broker: Broker) -> None:
    kafka.create_topic("batch-txn")
    producer = Transactor("librdkafka", shared_broker.bootstrap).producer("batch-txn-id")
    for number in range(6):
        producer.send("batch-txn", 0, f"{number}a", f"{number}b")
        producer.end(commit=number % 2 == 0)
    committed = read(subscribe="batch-txn", includeHeaders="true")
    assert rows(committed.load()) == kafka.read("batch-txn")
    assert [row.value for row in rows(committed.load())] == [b"0a", b"0b", b"2a", b"2b", b"4a", b"4b"]
    pieces = read(subscribe="batch-txn", includeHeaders="true", minPartitions=9).load()
    assert rows(pieces) == kafka.read("batch-txn"), "tasks that begin in the middle of a transaction"
    assert read(subscribe="batch-txn", isolation="read_uncommitted").load().count() == 12
    producer.send("batch-txn", 0, "open")
    assert committed.load().count() == 6
    producer.end(commit=True)
    assert committed.load().count() == 7
    producer.close()


def test_a_compacted_topic(read: Read, make_broker: Callable[..., Broker]) -> None:
    quick = {"log.retention.check.interval.ms": "300", "cairn.checkpoint.interval.ms": "300"}
    broker = make_broker(settings=quick).start()
    kafka = LibrdkafkaClient(broker.bootstrap)
    configs = {"cleanup.policy": "compact", "internal.segment.bytes": "100000", "min.cleanable.dirty.ratio": "0.01"}
    kafka.create_topic("table", configs={**configs, "cairn.model": "dedicated"})
    for _ in range(8):
        kafka.produce("table", [Sent(b"%100d" % i, b"key-%d" % (i % 50)) for i in range(500)])
    wait_until(lambda: len(kafka.read("table")) < 4000, 60, "compaction")
    before = kafka.read("table")
    found = rows(read(subscribe="table", includeHeaders="true", **{"kafka.bootstrap.servers": broker.bootstrap}).load())
    # It may go on between the reads, and only takes away; what is newest of each key stays.
    assert set(kafka.read("table")) <= set(found) <= set(before)
    assert len({row.key for row in found}) == 50
    kafka.close()


def test_a_compacted_topic_with_transactions(read: Read, make_broker: Callable[..., Broker]) -> None:
    """What was aborted stays unseen, whatever compaction has left of it and of its markers."""
    quick = {"log.retention.check.interval.ms": "300", "cairn.checkpoint.interval.ms": "300"}
    broker = make_broker(settings=quick).start()
    kafka = LibrdkafkaClient(broker.bootstrap)
    configs = {"cleanup.policy": "compact", "internal.segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
    kafka.create_topic("table", configs={**configs, "cairn.model": "dedicated"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "table"})
    producer.init_transactions(20)
    for number in range(16):
        producer.begin_transaction()
        for i in range(100):
            producer.produce("table", b"%s %90d" % (b"aborted" if number % 2 else b"kept", i), b"key-%d" % (i % 20))
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    wait_until(lambda: len(kafka.read("table")) < 800, 60, "compaction")
    before = kafka.read("table")
    found = rows(read(subscribe="table", includeHeaders="true", **{"kafka.bootstrap.servers": broker.bootstrap}).load())
    assert set(kafka.read("table")) <= set(found) <= set(before)
    assert len({row.key for row in found}) == 20
    assert all((row.value or b"").startswith(b"kept") for row in found)
    kafka.close()


def test_large_values(read: Read, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("batch-large", configs={"max.message.bytes": "3000000"})
    sizes = [1_000_000, 1, 2_500_000, 0, 1_048_576] * 2
    kafka.produce("batch-large", [Sent(bytes([i]) * size) for i, size in enumerate(sizes)], size_max=2_900_000)
    found = rows(read(subscribe="batch-large", includeHeaders="true").load())
    assert found == kafka.read("batch-large", size_max=3_000_000)


def test_a_thousand_partitions(read: Read, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("batch-wide", partitions=1000)
    kafka.produce("batch-wide", [Sent(b"%d" % i, partition=i % 1000) for i in range(3000)])
    frame = read(subscribe="batch-wide", includeHeaders="true").load()
    assert rows(frame) == sorted(kafka.read("batch-wide", range(1000)))
    assert frame.rdd.getNumPartitions() == 1, "short ranges share a task"


def test_ranges(read: Read, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("batch-range", partitions=2)
    kafka.produce("batch-range", [Sent(b"%d" % i, timestamp=1000 + i, partition=i % 2) for i in range(100)])

    def values(**options: object) -> list[int]:
        return sorted(int(row.value) for row in read(subscribe="batch-range", **options).load().collect())

    every = list(range(100))
    offsets = {
        "startingOffsets": '{"batch-range": {"0": 10, "1": -2}}',
        "endingOffsets": '{"batch-range": {"0": 12, "1": 3}}',
    }
    assert values(**offsets) == [1, 3, 5, 20, 22]
    assert values(startingTimestamp=1090) == every[90:]
    assert values(startingTimestamp=1010, endingTimestamp=1020) == every[10:20]
    by_time = '{"batch-range": {"0": 1098, "1": 1001}}'
    assert values(startingOffsetsByTimestamp=by_time) == [*range(1, 98, 2), 98, 99]
    assert values(startingTimestamp=5000, startingOffsetsByTimestampStrategy="latest") == []
    assert values(endingTimestamp=5000) == every
    pieces = read(subscribe="batch-range", minPartitions=7).load()
    assert pieces.rdd.getNumPartitions() == 7
    assert sorted(int(row.value) for row in pieces.collect()) == every
    assert read(subscribe="batch-range", maxRecordsPerPartition=30).load().rdd.getNumPartitions() == 4
    assert read(assign='{"batch-range": [1]}').load().count() == 50


def test_a_pattern(read: Read, kafka: LibrdkafkaClient) -> None:
    for name in ("pattern-a", "pattern-b", "other-pattern-c"):
        kafka.create_topic(name)
        kafka.produce(name, [Sent(name.encode())])
    found = read(subscribePattern="pattern-[a-z]").load().collect()
    assert sorted((row.topic, bytes(row.value)) for row in found) == [
        (n, n.encode()) for n in ("pattern-a", "pattern-b")
    ]
    assert read(subscribe="pattern-a,other-pattern-c").load().count() == 2


def test_one_dataframe_filtered_in_several_ways(read: Read, kafka: LibrdkafkaClient) -> None:
    """Spark 4.3.0 loses rows here for sources that take filters."""
    kafka.create_topic("batch-filter")
    kafka.produce("batch-filter", [Sent(b"%d" % i) for i in range(100)])
    frame = read(subscribe="batch-filter").load()
    assert frame.filter("offset >= 90").count() == 10
    assert frame.count() == 100
    assert frame.filter("offset >= 90").union(frame.filter("offset < 5")).count() == 15
    assert frame.select("offset").agg({"offset": "sum"}).collect()[0][0] == 4950


def test_a_topic_that_is_made_again_while_a_query_reads_it(
    read: Read, kafka: LibrdkafkaClient, shared_broker: Broker
) -> None:
    """What was planned for the old topic is never read from the new one."""
    kafka.create_topic("batch-remade")
    kafka.produce("batch-remade", [Sent(b"old")] * 10)
    frame = read(subscribe="batch-remade").load()
    assert frame.count() == 10
    source = CairnSource({"kafka.bootstrap.servers": shared_broker.bootstrap, "subscribe": "batch-remade"})
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(task)) == 10
    kafka.delete_topic("batch-remade")
    kafka.create_topic("batch-remade")
    kafka.produce("batch-remade", [Sent(b"new")] * 20)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        list(reader.read(task))
    with pytest.raises(PySparkException, match="was deleted and created again"):
        frame.count()
    assert read(subscribe="batch-remade").load().count() == 20


def test_columns_sql_and_a_schema_of_one_s_own(
    read: Read, kafka: LibrdkafkaClient, spark: SparkSession, shared_broker: Broker
) -> None:
    kafka.create_topic("batch-sql")
    kafka.produce("batch-sql", [Sent(b"v", b"k", timestamp=1_700_000_000_123)])
    assert read(subscribe="batch-sql", columns="offset,value").load().collect() == [(0, bytearray(b"v"))]
    assert read(subscribe="batch-sql").schema("value binary, partition int").load().collect() == [(bytearray(b"v"), 0)]
    options = f"OPTIONS ('kafka.bootstrap.servers' '{shared_broker.bootstrap}', subscribe 'batch-sql')"
    spark.sql(f"CREATE TEMPORARY VIEW batch_view USING cairnmq {options}")
    time = datetime(2023, 11, 14, 22, 13, 20, 123000, UTC).timestamp()
    (row,) = spark.sql("SELECT string(key) AS key, timestamp FROM batch_view WHERE offset = 0").collect()
    assert (row.key, row.timestamp.timestamp()) == ("k", time)


def test_a_topic_in_one_call(spark: SparkSession, kafka: LibrdkafkaClient, shared_broker: Broker) -> None:
    kafka.create_topic("batch-call")
    kafka.produce("batch-call", [Sent(b"%d" % i, timestamp=1000 + i) for i in range(10)])

    def values(**arguments: Any) -> list[int]:
        found = topic(spark, "batch-call", bootstrap=shared_broker.bootstrap, columns=["value"], **arguments).collect()
        return [int(value) for (value,) in found]

    assert values() == list(range(10))
    assert values(since=1004, until=1007) == [4, 5, 6]
    assert values(since=1010) == []
    assert values(offsets=('{"batch-call": {"0": 8}}', "latest")) == [8, 9]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "batch-missing"}, "topic batch-missing does not exist"),
        ({"subscribe": "x", "startingofset": "earliest"}, "unknown option startingofset; did you mean startingOffsets"),
        ({"subscribe": "x", "kafka.bootstrap.servers": "127.0.0.1:1"}, "cannot reach 127.0.0.1:1"),
        (
            {"subscribe": "errors", "startingOffsets": '{"errors": {"0": 2}}'},
            "records of errors-0 from offset 2 on are gone",
        ),
        (
            {"subscribe": "errors", "endingOffsets": '{"errors": {"0": 99}}'},
            "asks for errors-0 at offset 99, but the partition ends at 10",
        ),
        ({"assign": '{"errors": [4]}'}, "partition 4 does not exist"),
    ],
)
def test_errors(read: Read, kafka: LibrdkafkaClient, options: dict[str, str], sentence: str) -> None:
    if kafka.partitions("errors") == 0:
        kafka.create_topic("errors")
        kafka.produce("errors", [Sent(b"%d" % i) for i in range(10)])
        kafka.delete_records("errors", 0, 5)
    with pytest.raises(PySparkException) as told:
        read(**options).load().count()
    assert sentence in str(told.value)


def test_what_is_gone_is_left_out_on_request(read: Read, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("batch-gone")
    kafka.produce("batch-gone", [Sent(b"%d" % i) for i in range(10)])
    kafka.delete_records("batch-gone", 0, 5)
    wide = {"startingOffsets": '{"batch-gone": {"0": 2}}', "endingOffsets": '{"batch-gone": {"0": 99}}'}
    assert read(subscribe="batch-gone", failOnDataLoss="false", **wide).load().count() == 5
