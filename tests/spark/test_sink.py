"""What Spark writes, as an ordinary client reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader

from broker_process import Broker
from cairnmq.codec.partitioner import partition_for
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from spark.records import producers

Read = Callable[..., DataFrameReader]
ReadStream = Callable[..., DataStreamReader]


def save(frame: DataFrame, broker: Broker, **options: str) -> None:
    writer = frame.write.format("cairnmq").mode("append").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).save()


def run(frame: DataFrame, broker: Broker, place: Path, **options: str) -> None:
    writer = frame.writeStream.format("cairnmq").option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.options(**options).option("checkpointLocation", str(place))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_every_column(spark: SparkSession, shared_broker: Broker, kafka: LibrdkafkaClient, delivery: str) -> None:
    name = f"sink-{delivery}"
    kafka.create_topic(name, partitions=3)
    columns = "key string, value binary, topic string, partition int, timestamp timestamp, "
    columns += "headers array<struct<key: string, value: binary>>"
    moment = spark.sql("SELECT timestamp_millis(1700000000123) AS at").collect()[0].at
    rows: list[tuple[Any, ...]] = [
        ("k", b"all of them", name, 2, moment, [("h", b"x"), ("h", None)]),
        (None, None, name, 1, None, []),
        ("k", b"by its key", name, None, None, None),
    ]
    save(spark.createDataFrame(rows, columns), shared_broker, delivery=delivery)
    found = {row.value: row for row in kafka.read(name, range(3))}
    whole = found[b"all of them"]
    assert (whole.partition, whole.key, whole.timestamp) == (2, b"k", 1_700_000_000_123)
    assert whole.headers == (("h", b"x"), ("h", None))
    assert (found[None].partition, found[None].key, found[None].headers) == (1, None, ())
    assert found[b"by its key"].partition == partition_for(b"k", 3)
    assert len(found) == 3


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_many_partitions(spark: SparkSession, shared_broker: Broker, kafka: LibrdkafkaClient, delivery: str) -> None:
    name = f"sink-wide-{delivery}"
    kafka.create_topic(name, partitions=500)
    frame = spark.range(0, 2000, numPartitions=2).selectExpr("string(id) AS value", "int(id % 500) AS partition")
    save(frame, shared_broker, topic=name, delivery=delivery)
    found = sorted((int(row.value or b""), row.partition) for row in kafka.read(name, range(500)))
    assert found == [(number, number % 500) for number in range(2000)]


def test_a_topic_that_takes_small_batches_only(
    spark: SparkSession, shared_broker: Broker, kafka: LibrdkafkaClient
) -> None:
    kafka.create_topic("sink-small", configs={"max.message.bytes": "20000"})
    frame = spark.range(0, 1000, numPartitions=1).selectExpr("repeat(string(id % 10), 100) AS value")
    with pytest.raises(PySparkException, match=r"the option kafka\.max\.request\.size makes batches smaller"):
        save(frame, shared_broker, topic="sink-small")
    save(frame, shared_broker, topic="sink-small", **{"kafka.max.request.size": "20000"})
    assert sorted(row.value for row in kafka.read("sink-small")) == sorted(b"%d" % (i % 10) * 100 for i in range(1000))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_was_read_is_written_as_it_is(
    read: Read, shared_broker: Broker, kafka: LibrdkafkaClient, codec: str
) -> None:
    kafka.create_topic(f"copy-from-{codec}", partitions=2)
    kafka.create_topic(f"copy-to-{codec}", partitions=2)
    sent = [Sent(b"%d" % i * 500, b"k%d" % i, (("n", b"%d" % i),), 1_700_000_000_000 + i, i % 2) for i in range(2000)]
    kafka.produce(f"copy-from-{codec}", sent)
    frame = read(subscribe=f"copy-from-{codec}", includeHeaders="true").load()
    save(frame, shared_broker, topic=f"copy-to-{codec}", **{"kafka.compression.type": codec})
    assert sorted(kafka.read(f"copy-to-{codec}", (0, 1))) == sorted(kafka.read(f"copy-from-{codec}", (0, 1)))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_stream(
    read_stream: ReadStream, shared_broker: Broker, kafka: LibrdkafkaClient, tmp_path: Path, delivery: str
) -> None:
    source, target = f"stream-from-{delivery}", f"stream-to-{delivery}"
    kafka.create_topic(source, partitions=2)
    kafka.create_topic(target, partitions=2)
    frame = read_stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=40).load()
    frame = frame.selectExpr("key", "value", "partition").repartition(2)
    for part in range(2):
        kafka.produce(source, [Sent(b"%d" % i, partition=i % 2) for i in range(100 * part, 100 * part + 100)])
        run(frame, shared_broker, tmp_path, topic=target, delivery=delivery)
        found = [int(row.value or b"") for row in kafka.read(target, (0, 1))]
        assert sorted(found) == list(range(100 * part + 100))
    if delivery == "at_least_once":  # a producer id for each worker process; with transactions for each run besides
        tasks = producers(shared_broker.bootstrap, target)
        assert len(tasks) == 12 and len(set(tasks)) <= 6, "a worker process lost what it had kept for its next task"


@pytest.mark.parametrize(
    ("query", "options", "sentence"),
    [
        ("SELECT 'a' AS key", {"topic": "t"}, "column value is missing"),
        ("SELECT 1 AS value", {"topic": "t"}, "column value must be string or binary, not int"),
        ("SELECT 'a' AS value", {}, "set option topic or add a column topic"),
        ("SELECT 'a' AS value", {"topic": "t", "kafka.ack": "1"}, "unknown option kafka.ack; did you mean kafka.acks"),
        ("SELECT 'a' AS value, 7 AS partition", {"topic": "sink-errors"}, "topic sink-errors: a row has partition 7"),
        ("SELECT 'a' AS value, string(NULL) AS topic", {}, "a row has no target topic"),
        ("SELECT 'a' AS value", {"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}, "cannot reach 127.0.0.1:1"),
    ],
)
def test_errors(spark: SparkSession, shared_broker: Broker, query: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PySparkException) as told:
        save(spark.sql(query), shared_broker, **options)
    assert sentence in str(told.value)
