"""Streaming queries: all records once, over restarts, limits, new partitions and topics that are not what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from broker_process import Broker, wait_until
from cairnmq.codec.compression import CODEC_NAMES
from cairnmq.spark.progress import Progress, TopicProgress, lag
from cairnmq.spark.source import CairnSource
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.transactors import Transactor
from spark.records import mixed, rows

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
    """What was written, if anything was."""
    if not (place / "out" / "_spark_metadata").exists():
        return []
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


def test_a_stream_gives_what_a_client_reads(
    spark: SparkSession, read_stream: ReadStream, kafka: LibrdkafkaClient, shared_broker: Broker, tmp_path: Path
) -> None:
    """All codecs, nulls, headers, aborted transactions, a thousand partitions: in one query of several batches."""
    partitions = {"same-codecs": 3, "same-aborted": 1, "same-wide": 1000}
    for name, count in partitions.items():
        kafka.create_topic(name, partitions=count)
    for codec in CODEC_NAMES:
        kafka.produce("same-codecs", mixed(120, 3), codec=codec)
    producer = Transactor("librdkafka", shared_broker.bootstrap).producer("same-id")
    for number in range(6):
        producer.send("same-aborted", 0, f"{number}a", f"{number}b")
        producer.end(commit=number % 2 == 0)
    producer.close()
    kafka.produce("same-wide", [Sent(b"%d" % i, partition=i % 1000) for i in range(3000)])
    options = {"subscribePattern": "same-.*", "startingOffsets": "earliest", "includeHeaders": "true", "group": "same"}
    query = run(read_stream(**options, maxOffsetsPerTrigger=2000).load(), tmp_path)
    assert len([progress for progress in query.recentProgress if progress["numInputRows"]]) > 1
    written = spark.read.parquet(str(tmp_path / "out"))
    for name, count in partitions.items():
        assert rows(written.where(written.topic == name)) == sorted(kafka.read(name, range(count)))
    assert kafka.committed("same", "same-wide", 999) == 3


def test_a_limit_in_bytes(
    spark: SparkSession, read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path
) -> None:
    kafka.create_topic("stream-bytes", partitions=2)
    kafka.produce("stream-bytes", [Sent(b"%d" % i + b" " * 10_000, partition=i % 2) for i in range(100)])
    frame = read_stream(subscribe="stream-bytes", startingOffsets="earliest", maxBytesPerTrigger="200k").load()
    query = run(frame, tmp_path)
    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert numbers(spark, tmp_path) == list(range(100))
    assert max(counts) <= 20 and len(counts) <= 7, counts


def test_a_batch_waits_until_it_is_worth_it(read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path) -> None:
    kafka.create_topic("stream-least")
    send(kafka, "stream-least", 0, 10, 1)
    limits = {"minOffsetsPerTrigger": 20, "maxTriggerDelay": "1h"}
    frame = read_stream(subscribe="stream-least", startingOffsets="earliest", **limits).load()
    query = start(frame, tmp_path, processingTime="0 seconds")

    def sizes() -> list[int]:
        return [size for progress in query.recentProgress if (size := progress["numInputRows"])]

    try:
        wait_until(lambda: query.status["message"] == "Waiting for data to arrive", SECONDS, "a first look")
        send(kafka, "stream-least", 10, 20, 1)
        wait_until(sizes, SECONDS, "a batch")
        assert sizes() == [20]
    finally:
        query.stop()


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
            seen.update(numbers(spark, tmp_path))
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


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_gone_while_a_batch_of_it_is_not_done(
    read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path, again: bool
) -> None:
    """Every restart is given the offsets that were noted for the batch; failOnDataLoss=false gets past them."""
    kept, gone = f"stream-kept-{again}", f"stream-lost-{again}"
    options = {"subscribe": f"{kept},{gone}", "group": f"lost-{again}", "failOnDataLoss": "false"}
    frame = read_stream(**options, startingOffsets="earliest").load()
    seen: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        seen.extend(int(row.value) for row in batch.collect())

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("not today")

    def run_into(each: Callable[[DataFrame, int], None]) -> None:
        writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    for topic, first in ((kept, 0), (gone, 100)):
        kafka.create_topic(topic)
        send(kafka, topic, first, first + 10, 1)
    run_into(take)
    for topic, first in ((kept, 10), (gone, 110)):
        send(kafka, topic, first, first + 10, 1)
    with pytest.raises(StreamingQueryException, match="not today"):
        run_into(fail)
    kafka.delete_topic(gone)
    if again:
        kafka.create_topic(gone)
        send(kafka, gone, 200, 230, 1)
    run_into(take)
    assert sorted(seen) == [*range(20), *range(100, 110), *(range(200, 230) if again else ())]
    assert kafka.committed(f"lost-{again}", kept, 0) == 20


def test_a_batch_without_anything_to_read_has_a_task(shared_broker: Broker) -> None:
    """A sink hears of its query from tasks, and must finish what an earlier run decided."""
    options = {"kafka.bootstrap.servers": shared_broker.bootstrap, "subscribe": "stream-never"}
    source = CairnSource({**options, "failOnDataLoss": "false"})
    reader = source.streamReader(source.schema())
    end = Progress({"stream-never": TopicProgress("00" * 16, {0: 5})})
    (task,) = reader.partitions(Progress({}).to_json(), end.to_json())
    assert list(reader.read(task)) == []


def test_a_topic_made_again_under_a_running_query(
    spark: SparkSession, read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path
) -> None:
    kafka.create_topic("stream-remade")
    send(kafka, "stream-remade", 0, 10, 1)
    frame = read_stream(subscribe="stream-remade", startingOffsets="earliest").load()
    query = start(frame, tmp_path, processingTime="0 seconds")
    try:
        wait_until(lambda: len(numbers(spark, tmp_path)) == 10, SECONDS, "the first records")
        kafka.delete_topic("stream-remade")
        kafka.create_topic("stream-remade")
        send(kafka, "stream-remade", 100, 130, 1)
        wait_until(lambda: query.exception() is not None, SECONDS, "the end of the query")
        assert "topic stream-remade was deleted" in str(query.exception())
        assert numbers(spark, tmp_path) == list(range(10)), "nothing of the new topic"
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "stream-missing"}, "topic stream-missing does not exist"),
        ({"subscribe": "x", "maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"subscribe": "x", "endingOffsets": "latest"}, "option endingOffsets is for a batch query"),
    ],
)
def test_errors(read_stream: ReadStream, tmp_path: Path, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PySparkException) as told:
        run(read_stream(**options).load(), tmp_path)
    assert sentence in str(told.value)


def test_what_was_aged_out_ends_the_query_or_is_left_out(
    spark: SparkSession, read_stream: ReadStream, kafka: LibrdkafkaClient, tmp_path: Path
) -> None:
    kafka.create_topic("stream-aged")
    send(kafka, "stream-aged", 0, 10, 1)
    run(read_stream(subscribe="stream-aged", startingOffsets="earliest").load(), tmp_path)
    send(kafka, "stream-aged", 10, 30, 1)
    kafka.delete_records("stream-aged", 0, 25)
    with pytest.raises(StreamingQueryException, match="from offset 10 on are gone: the partition now starts at 25"):
        run(read_stream(subscribe="stream-aged").load(), tmp_path)
    run(read_stream(subscribe="stream-aged", failOnDataLoss="false").load(), tmp_path)
    assert numbers(spark, tmp_path) == [*range(10), *range(25, 30)]
