"""A streaming job in a process of its own: copies a topic exactly once, and stops where it is told.

python program_sink.py BOOTSTRAP SOURCE TARGET PLACE MASTER HOW POINT BATCH COUNT: in this batch, before the COUNTth
call of POINT (`store` or `commit`). HOW is `die` (-9, all of Spark), or `pause`: the process that commits notes its id
in PLACE/paused, and waits for SIGCONT.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from cairnmq.spark import sink
from cairnmq.spark.decision import Decision
from cairnmq.spark.options import write_options
from cairnmq.spark.source import CairnSource
from cairnmq.spark.transaction_view import TransactionView
from spark.conftest import session_builder


def main() -> None:
    bootstrap, source, target, place, master, how, point, batch, count = sys.argv[1:]
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    spark = session_builder(Path(place) / "session", master).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    calls = {"store": 0, "commit": 0}

    class DyingView(TransactionView):
        def store(self, decision: Decision) -> None:
            self.step("store", lambda: super(DyingView, self).store(decision))

        def commit(self, transaction: Any) -> bool:
            return bool(self.step("commit", lambda: super(DyingView, self).commit(transaction)))

        def step(self, name: str, call: Any) -> Any:
            calls[name] += name == point
            if calls[name] == int(count):
                stop()
            return call()

    def stop() -> None:
        if how == "die":
            os.kill(java, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        note = Path(place, "note")
        note.write_text(str(os.getpid()))
        note.rename(Path(place, "paused"))
        os.kill(os.getpid(), signal.SIGSTOP)

    class DyingWriter(sink.StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            sink.TransactionView = DyingView if batchId == int(batch) else TransactionView  # type: ignore[misc]
            super().commit(messages, batchId)

    class DyingSource(CairnSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:
            options = write_options(self.options, stream=True)
            return DyingWriter(options, sink.shape_of(schema, options, overwrite))

    spark.dataSource.register(DyingSource)
    reader = spark.readStream.format("cairnmq").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="20").load()
    frame = frame.selectExpr("value").repartition(spark.sparkContext.defaultParallelism)
    writer = frame.writeStream.format("dying").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    writer = writer.option("checkpointLocation", str(Path(place) / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
