"""Streaming queries: all records once, over restarts, limits, new partitions and topics that are not what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from broker_process import wait_until
from cairnmq.spark.progress import lag
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient

ReadStream = Callable[..., DataStreamReader]
SECONDS = 60.0


def send(kafka: LibrdkafkaClient, topic: str, first: int, last: int, partitions: int = 2) -> None:
    kafka.produce(topic, [Sent(b"%d" % i, partition=i % partitions) for i in range(first, last)])


def run(frame: DataFrame, place: Path) -> StreamingQuery:
    """Takes in what there is, and ends."""
    query = start(frame, place, availableNow=True)
    query.awaitTermination()
    return query


def start(frame: DataFrame, place: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(place / "out"))
    return writer.option("checkpointLocation", str(place / "checkpoint")).trigger(**trigger).start()


def numbers(spark: SparkSession, place: Path) -> list[int]:
    return sorted(int(row.value) for row in spark.read.schema("value binary").parquet(str(place / "out")).collect())


def test_available_now_and_what_comes_later(
    spark: SparkSession, read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path
) -> None:
    """Limits, the lag of the last progress, a group that shows it, and partitions that are added."""
    kafka.create_topic("stream-now", partitions=2)
    send(kafka, "stream-now", 0, 100)
    frame = read_stream(subscribe="stream-now", startingOffsets="earliest", maxOffsetsPerTrigger=30, group="now").load()
    query = run(frame, tmp_path)
    counts = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(counts) == 100 and len([count for count in counts if count]) == 4, counts
    assert lag(query.recentProgress[0]["sources"][0]) == {"stream-now": {0: 35, 1: 35}}
    assert numbers(spark, tmp_path) == list(range(100))
    assert [kafka.committed("now", "stream-now", index) for index in (0, 1)] == [50, 50]
    kafka.add_partitions("stream-now", 5)
    send(kafka, "stream-now", 100, 150, 5)
    run(frame, tmp_path)
    assert numbers(spark, tmp_path) == list(range(150))
    assert kafka.committed("now", "stream-now", 4) == 10


def test_a_running_query_sees_new_records_partitions_and_topics(
    spark: SparkSession, read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path
) -> None:
    kafka.create_topic("live-a", partitions=2)
    send(kafka, "live-a", 0, 10)
    options = {"startingOffsets": "earliest", "group": "live", "includeHeaders": "true"}
    query = start(read_stream(subscribePattern="live-.", **options).load(), tmp_path, processingTime="0 seconds")
    try:
        seen = Counter[int]()

        def has(count: int) -> bool:
            if query.exception():
                raise AssertionError(str(query.exception()))
            seen.clear()
            seen.update(numbers(spark, tmp_path) if (tmp_path / "out" / "_spark_metadata").exists() else [])
            return seen.total() >= count

        wait_until(lambda: has(10), SECONDS, "the first records")
        kafka.add_partitions("live-a", 3)
        send(kafka, "live-a", 10, 40, 3)
        kafka.create_topic("live-b")
        send(kafka, "live-b", 40, 50, 1)
        wait_until(lambda: has(50), SECONDS, "records of new partitions and topics")
        assert seen == Counter(range(50))
        wait_until(lambda: kafka.committed("live", "live-b", 0) == 10, SECONDS, "the last batch in the group")
    finally:
        query.stop()


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_gone_ends_the_query(
    read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path, again: bool
) -> None:
    name = f"stream-gone-{again}"
    kafka.create_topic(name)
    send(kafka, name, 0, 10, 1)
    frame = read_stream(subscribe=name, startingOffsets="earliest").load()
    run(frame, tmp_path)
    kafka.delete_topic(name)
    if again:
        kafka.create_topic(name)
        send(kafka, name, 100, 120, 1)
    with pytest.raises(StreamingQueryException, match="created again" if again else "was deleted while"):
        run(frame, tmp_path)


def test_what_was_aged_out_ends_the_query_or_is_left_out(
    spark: SparkSession, read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path
) -> None:
    kafka.create_topic("stream-aged")
    send(kafka, "stream-aged", 0, 10, 1)
    run(read_stream(subscribe="stream-aged", startingOffsets="earliest").load(), tmp_path)
    send(kafka, "stream-aged", 10, 30, 1)
    kafka.delete_records("stream-aged", 0, 25)
    with pytest.raises(StreamingQueryException, match="from offset 10 on are gone: the partition now begins at 25"):
        run(read_stream(subscribe="stream-aged").load(), tmp_path)
    run(read_stream(subscribe="stream-aged", failOnDataLoss="false").load(), tmp_path)
    assert numbers(spark, tmp_path) == [*range(10), *range(25, 30)]
