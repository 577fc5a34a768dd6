"""A Spark session in a process of its own, asked as tests/interop/clients/process.py says.

python program_session.py PLACE MASTER [CONF=VALUE...]; MASTER sc://HOST:PORT is a server of Spark Connect. A source or
sink is [FORMAT, OPTIONS]; SQL names the source `source`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from cairnmq.spark import register
from spark.conftest import session_builder

Place = tuple[str, dict[str, str]]


class Session:
    """Each public method is a question."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: StreamingQuery | None = None

    def version(self) -> str:
        """Of Python's half and of Java's: they come from one installation, or nothing here means anything."""
        assert self._spark.version == pyspark.__version__
        return self._spark.version

    def register(self) -> None:
        register(self._spark)

    def collect(self, source: Place, sql: str) -> list[list[Any]]:
        return [list(row) for row in self._frame(source, sql).collect()]

    def copy(self, source: Place, sql: str, sink: Place) -> None:
        kind, options = sink
        mode = "overwrite" if kind == "noop" else "append"
        self._frame(source, sql).write.format(kind).mode(mode).options(**options).save()

    def stream(self, source: Place, sql: str, sink: Place, checkpoint: str, mode: str = "append") -> None:
        """All that is there now."""
        self._start(source, sql, sink, checkpoint, mode, availableNow=True).awaitTermination()

    def start(self, source: Place, sql: str, sink: Place, checkpoint: str) -> None:
        """A query that runs until it is stopped."""
        self._query = self._start(source, sql, sink, checkpoint, "append", processingTime="0 seconds")

    def stop(self) -> None:
        assert self._query is not None
        self._query.stop()

    def _frame(self, source: Place, sql: str, stream: bool = False) -> DataFrame:
        kind, options = source
        reader = self._spark.readStream if stream else self._spark.read
        reader.format(kind).options(**options).load().createOrReplaceTempView("source")
        return self._spark.sql(sql)

    def _start(
        self, source: Place, sql: str, sink: Place, checkpoint: str, mode: str, **trigger: Any
    ) -> StreamingQuery:
        kind, options = sink
        writer = self._frame(source, sql, stream=True).writeStream.format(kind).options(**options).outputMode(mode)
        return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def main() -> None:
    place, master, *settings = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Java prints to stdout too
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    remote = master.startswith("sc://")
    builder = SparkSession.builder.remote(master) if remote else session_builder(Path(place), master)
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    if not remote:
        spark.sparkContext.setLogLevel("ERROR")
    session = Session(spark)
    for line in sys.stdin:
        request = json.loads(line)
        call: Callable[..., Any] = getattr(session, request.pop("op"))
        try:
            answer = {"answer": call(**request)}
        except Exception:  # noqa: BLE001 - whoever asked is told
            answer = {"broken": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
