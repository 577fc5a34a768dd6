"""Spark killed (-9) between the steps of a commit, again and again, with more and fewer tasks, and a worker and the
broker while a task writes: each row counts once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from broker_process import Broker, fixed_port, wait_until
from cairnmq.spark import sink
from cairnmq.spark.options import write_options
from cairnmq.spark.source import CairnSource
from cairnmq.spark.topic_view import connect
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from programs import require_program

PROGRAM = Path(__file__).with_name("program_sink.py")
TESTS = Path(__file__).parent.parent
# Always in batch 1: before its decision; behind it, with one of four transactions committed; in the next run, which has
# finished that, before Spark notes it. The runs have one to four tasks.
RUNS = (
    ("local[2]", "store", 1),
    ("local[4]", "commit", 2),
    ("local[3]", "commit", -4),
    ("local[1]", "none", 0),
)


def test_each_row_counts_once(shared_broker: Broker, kafka: LibrdkafkaClient, tmp_path: Path) -> None:
    require_program("java")
    kafka.create_topic("kills-from", partitions=2)
    kafka.create_topic("kills-to", partitions=2)
    kafka.produce("kills-from", [Sent(b"%d" % i, partition=i % 2) for i in range(60)])
    for master, point, count in RUNS:
        line = [sys.executable, str(PROGRAM), shared_broker.bootstrap, "kills-from", "kills-to", str(tmp_path), master]
        done = subprocess.run(
            [*line, point, "1", str(count)],
            env={"PYTHONPATH": str(TESTS), "PATH": str(Path(require_program("java")).parent) + ":/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert ("finished" in done.stdout) == (point == "none"), f"{master} {point}\n{done.stderr[-4000:]}"
    found = sorted(int(row.value or b"") for row in kafka.read("kills-to", (0, 1)))
    assert found == list(range(60))


def finished(query: StreamingQuery) -> bool:
    try:
        return bool(query.awaitTermination(120))
    except StreamingQueryException:
        return False


def test_worker_and_broker_are_killed(spark: SparkSession, make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """A worker has sent all its rows when the broker dies; it dies before Spark hears of them, so the task is tried
    again."""
    broker = make_broker(port=fixed_port()).start()
    kafka = LibrdkafkaClient(broker.bootstrap)
    for name in ("from", "to"):
        kafka.create_topic(name, partitions=2)
    kafka.produce("from", [Sent(b"%d" % i, partition=i % 2) for i in range(60)])
    sent, restarted = tmp_path / "sent", tmp_path / "restarted"

    class DyingWriter(sink.StreamWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> sink.Written:
            written = super().write(iterator)
            try:
                sent.touch(exist_ok=False)
            except FileExistsError:  # another one dies, or has died
                return written
            for _ in range(600):
                if restarted.exists():
                    break
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
            return written

    class DyingSource(CairnSource):
        @classmethod
        def name(cls) -> str:
            return "dying-worker"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:
            options = write_options(self.options, stream=True)
            return DyingWriter(options, sink.shape_of(schema, options, overwrite))

    spark.dataSource.register(DyingSource)
    reader = spark.readStream.format("cairnmq").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.options(subscribe="from", startingOffsets="earliest").load().selectExpr("value")
    target = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "to"}
    writer = frame.repartition(2).writeStream.format("dying-worker").options(**target)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    runs = [writer.start()]
    wait_until(sent.exists, 60, "a task to send its rows")
    broker.kill_tree()
    broker.start()
    restarted.touch()
    while not finished(runs[-1]):  # a query ends where its driver was cut off: as a supervisor does
        assert len(runs) < 5
        runs.append(writer.start())
    with connect(write_options(target, stream=True).connection) as client:
        sizes = [end - start for start, end in (kafka.bounds("to", partition) for partition in (0, 1))]
        assert sum(sizes) >= 60 + 60 // 2, "rows of the task that died are there, and nobody may see them"
        for left in client.open_transactions(""):  # readers wait for it, 15 minutes unless somebody ends it
            client.end_transaction(left.transaction, commit=False)
    found = sorted(int(row.value or b"") for row in kafka.read("to", (0, 1)))
    kafka.close()
    assert found == list(range(60))
