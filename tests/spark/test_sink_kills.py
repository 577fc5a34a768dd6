"""Workers, drivers and the broker killed (-9) at every step of an exactly-once copy, with more and fewer tasks: each
row counts once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from broker_process import Broker, fixed_port, wait_until
from cairnmq.client.blocking import Client
from conftest import QUICK_TIME_LIMITS
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from programs import require_program
from spark.stop_point import StoppingSource, StopPoint, Stops

PROGRAM = Path(__file__).with_name("program_sink.py")
TESTS = Path(__file__).parent.parent
ROWS = 24  # of a micro-batch: two tasks send each of them in several requests
SECONDS = 60.0
JOB_SECONDS = 240.0  # of a Spark that must be started first
ROWS_OF_JOB, BATCH_OF_JOB = 80, 20


def test_all_of_spark_is_killed_and_another_one_is_paused(
    spark: SparkSession, shared_broker: Broker, kafka: LibrdkafkaClient, tmp_path: Path
) -> None:
    """Three drivers on one checkpoint. The first one dies behind the decision on batch 1, with one of two transactions
    committed. The second one has four tasks, finishes that batch, and is paused when it is about to decide on batch 2.
    The third one does that and the last one; then the second one wakes up."""
    for name in ("from", "to"):
        kafka.create_topic(f"job-{name}", partitions=2)
    kafka.produce("job-from", [Sent(b"%d" % i, partition=i % 2) for i in range(ROWS_OF_JOB)])
    with started(shared_broker, tmp_path, "local[2]", "die", "commit", "1", "2") as job:
        out, errors = job.communicate(timeout=JOB_SECONDS)
    assert "finished" not in out, errors[-4000:]
    with started(shared_broker, tmp_path, "local[4]", "pause", "store", "2", "1") as job:
        wait_until((tmp_path / "paused").exists, JOB_SECONDS, "the second driver to come to its decision")
        assert numbers(kafka) == list(range(2 * BATCH_OF_JOB))
        options = {"kafka.bootstrap.servers": shared_broker.bootstrap}
        reader = spark.readStream.format("cairnmq").options(**options, subscribe="job-from")
        frame = reader.option("maxOffsetsPerTrigger", BATCH_OF_JOB).load().selectExpr("value")
        writer = frame.writeStream.format("cairnmq").options(**options, topic="job-to")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        try:
            writer.start().awaitTermination()
            assert numbers(kafka) == list(range(ROWS_OF_JOB))
        finally:
            os.kill(int((tmp_path / "paused").read_text()), signal.SIGCONT)
        out, errors = job.communicate(timeout=JOB_SECONDS)
    assert "finished" not in out and "was written before, and batch 3 after it" in errors, errors[-4000:]
    assert numbers(kafka) == list(range(ROWS_OF_JOB))


def numbers(kafka: LibrdkafkaClient) -> list[int]:
    return sorted(int(row.value or b"") for row in kafka.read("job-to", (0, 1)))


@contextmanager
def started(broker: Broker, place: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """What program_sink.py does; its Java ends with it."""
    line = [sys.executable, str(PROGRAM), broker.bootstrap, "job-from", "job-to", str(place), *arguments]
    path = str(Path(require_program("java")).parent) + ":/usr/bin:/bin"
    with subprocess.Popen(
        line,
        env={"PYTHONPATH": str(TESTS), "PATH": path},
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        try:
            yield job
        finally:
            job.kill()


class Copy:
    """Rows from one topic to another, by a query that a test starts and stops."""

    def __init__(self, spark: SparkSession, broker: Broker, place: Path) -> None:
        self.broker = broker
        self.stops = Stops(place / "stops")
        self.options = {"kafka.bootstrap.servers": broker.bootstrap, "stops": str(self.stops.place)}
        self.rows: list[bytes] = []
        self._query: StreamingQuery | None = None
        self._spark = spark
        self._place = place
        self._kafka = LibrdkafkaClient(broker.bootstrap)
        spark.dataSource.register(StoppingSource)
        for name in ("from", "to"):
            self._kafka.create_topic(name, partitions=2)

    def start(self, tasks: int = 2, checkpoint: str = "checkpoint", limit_ms: int = 900_000) -> StreamingQuery:
        reader = self._spark.readStream.format("stopping").options(**self.options)
        frame = reader.options(subscribe="from", startingOffsets="earliest").load().selectExpr("value")
        writer = frame.repartition(tasks).writeStream.format("stopping").options(**self.options, topic="to")
        writer = writer.option("kafka.transaction.timeout.ms", limit_ms)
        self._query = writer.option("checkpointLocation", str(self._place / checkpoint)).start()
        return self._query

    def feed(self) -> None:
        new = range(len(self.rows), len(self.rows) + ROWS)
        self._kafka.produce("from", [Sent(b"row %d" % number, partition=number % 2) for number in new])
        self.rows += [b"row %d" % number for number in new]

    def check(self, times: int = 1) -> None:
        """Nothing holds up a reader of committed records, and it finds every row so many times."""
        assert self.is_settled()
        found = sorted(row.value or b"" for row in self._kafka.read("to", (0, 1)))
        assert found == sorted(self.rows * times)

    def is_settled(self) -> bool:
        with Client.connect(self.broker.bootstrap) as client:
            return not client.open_transactions("cairnmq-spark-")

    def stored(self) -> int:
        """Of all rows and markers, also of those that nobody may see."""
        return sum(self._kafka.bounds("to", partition)[1] for partition in (0, 1))

    def close(self) -> None:
        if self._query is not None:
            self._query.stop()
        self._kafka.close()


@pytest.fixture
def copy(spark: SparkSession, make_broker: Callable[..., Broker], tmp_path: Path) -> Iterator[Copy]:
    made = Copy(spark, make_broker(port=fixed_port(), settings=QUICK_TIME_LIMITS).start(), tmp_path)
    yield made
    made.close()


WORKER_DIES = (
    StopPoint("write", "InitProducerId"),
    StopPoint("write", "InitProducerId", moment="sent"),
    StopPoint("write", "Produce"),
    StopPoint("write", "Produce", moment="sent"),
    StopPoint("write", "Produce", 2),
    StopPoint("write", "Produce", 2, "sent"),
    StopPoint("write", "Return"),
    StopPoint("write", "Return", moment="sent"),
)


def test_a_worker_is_killed_at_each_step(copy: Copy) -> None:
    """Spark tries its task again. What it leaves is aborted when its batch is committed."""
    query = copy.start()
    for point in WORKER_DIES:
        copy.stops.arm(point, "die")
        copy.feed()
        query.processAllAvailable()
        assert copy.stops.taken(), point
        copy.check()
    assert copy.stored() > len(copy.rows) + 2 * len(WORKER_DIES), "rows of those that died are there"


BROKER_DIES = (
    StopPoint("plan", "Metadata"),
    StopPoint("plan", "ListOffsets", moment="sent"),
    StopPoint("plan", "Fetch", moment="sent"),
    StopPoint("read", "Fetch", moment="sent"),
    StopPoint("write", "InitProducerId", moment="sent"),
    StopPoint("write", "Produce"),
    StopPoint("write", "Produce", moment="sent"),
    StopPoint("write", "Produce", 2, "sent"),
    StopPoint("write", "Return"),
    StopPoint("commit", "ListTransactions"),
    StopPoint("commit", "Produce", moment="sent"),
    StopPoint("commit", "EndTxn"),
    StopPoint("commit", "EndTxn", moment="sent"),
    StopPoint("commit", "EndTxn", 2, "sent"),
    StopPoint("commit", "Return"),
)


def test_the_broker_is_killed_at_each_step(copy: Copy) -> None:
    """The query goes on, whatever it was about to ask or waiting to hear."""
    query = copy.start()
    for point in BROKER_DIES:
        copy.stops.arm(point, "wait")
        copy.feed()
        wait_until(copy.stops.taken, SECONDS, str(point))
        copy.broker.kill_tree()
        copy.stops.go_on()
        copy.broker.start()
        query.processAllAvailable()
    copy.check()


def test_the_broker_is_killed_while_a_batch_query_reads(copy: Copy, spark: SparkSession) -> None:
    copy.feed()
    copy.stops.arm(StopPoint("read", "Fetch", moment="sent"), "wait")
    frame = spark.read.format("stopping").options(**copy.options, subscribe="from").load()
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(frame.collect)
        wait_until(copy.stops.taken, SECONDS, "a task that reads")
        copy.broker.kill_tree()
        copy.stops.go_on()
        copy.broker.start()
        assert sorted(row.value for row in rows.result(SECONDS)) == sorted(copy.rows)


BATCH_COMMIT_DIES = (
    StopPoint("commit", "EndTxn"),
    StopPoint("commit", "EndTxn", moment="sent"),
    StopPoint("commit", "EndTxn", 2),
    StopPoint("commit", "EndTxn", 2, "sent"),
    StopPoint("commit", "Return"),
)


def test_the_commit_of_a_batch_query_is_killed_at_each_step(copy: Copy, spark: SparkSession) -> None:
    """Spark has another process abort, which finds that committing may have begun, and goes on: never a part."""
    for point in BATCH_COMMIT_DIES:
        new = range(len(copy.rows), len(copy.rows) + ROWS)
        frame = spark.range(new.start, new.stop, numPartitions=2).selectExpr("concat('row ', id) AS value")
        copy.stops.arm(point, "die")
        writer = frame.write.format("stopping").mode("append").options(**copy.options, topic="to")
        with suppress(Exception):  # of Spark or of its Java; that it happened is seen by the point
            writer.option("delivery", "exactly_once").save()
        assert copy.stops.taken(), point
        copy.rows += [b"row %d" % number for number in new]
        copy.check()


# In this order: the first ones before there is a decision, the others where one is found.
DRIVER_DIES = (
    StopPoint("commit", "InitProducerId"),
    StopPoint("commit", "InitProducerId", moment="sent"),
    StopPoint("commit", "Produce"),
    StopPoint("commit", "Produce", moment="sent"),
    StopPoint("commit", "EndTxn"),
    StopPoint("commit", "EndTxn", moment="sent"),
    StopPoint("commit", "EndTxn", moment="sent"),
    StopPoint("commit", "EndTxn", 2),
    StopPoint("commit", "EndTxn", 2, "sent"),
    StopPoint("commit", "Return"),
)


def test_a_driver_is_killed_at_each_step(copy: Copy) -> None:
    """The process that commits; the next run is given the same batch, and has other tasks."""
    copy.feed()
    for tasks, point in zip(cycle((2, 4, 1, 3)), DRIVER_DIES, strict=False):
        copy.stops.arm(point, "die")
        query = copy.start(tasks)
        with pytest.raises(StreamingQueryException):
            query.processAllAvailable()
        assert copy.stops.taken(), point
    copy.feed()
    query = copy.start()
    query.processAllAvailable()
    copy.check()
    query.stop()
    again = copy.start(checkpoint="another")  # a lost checkpoint: for Spark that is another query, from the beginning
    again.processAllAvailable()
    copy.check(times=2)


# Before the decision, and behind it.
TOO_LATE = (
    (StopPoint("write", "Return"), "writing took longer than the transaction timeout"),
    (StopPoint("commit", "EndTxn", 2), "before they could be committed; start the query again"),
)


def test_a_time_limit_is_over_before_the_commit(copy: Copy) -> None:
    """The broker aborts what tasks have written. The query stops and says so; the next run writes the batch anew."""
    copy.feed()
    limit_ms = 4000
    for point, sentence in TOO_LATE:
        copy.stops.arm(point, "wait")
        started = time.monotonic()
        query = copy.start(limit_ms=limit_ms)
        wait_until(copy.stops.taken, SECONDS, str(point))
        # A decision must come within half of the limit: ours is by how long this machine takes for tasks alone.
        limit_ms = min(40_000, max(16_000, int(3000 * (time.monotonic() - started))))
        wait_until(copy.is_settled, limit_ms / 1000 + SECONDS, "the time limit")
        copy.stops.go_on()
        with pytest.raises(StreamingQueryException, match=sentence):
            query.processAllAvailable()
    copy.start().processAllAvailable()
    copy.check()
