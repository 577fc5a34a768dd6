"""How a Spark session comes to know format("cairnmq"), and a topic as a DataFrame in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairnmq.spark.errors import SparkSourceError
from cairnmq.spark.java import complaint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_JAVA = "JAVA_GATEWAY_EXITED"


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """What `builder` makes, or a session with Spark's defaults. Where a missing or old Java is the reason that there is
    none, it says so."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return (builder or SparkSession.builder).getOrCreate()
    except PySparkRuntimeError as error:
        reason = complaint(os.environ) if error.getCondition() == _NO_JAVA else None
        if reason is None:
            raise
        raise SparkSourceError(reason) from None


def register(spark: SparkSession) -> None:
    """Not needed where Spark finds the module `pyspark_cairnmq` by itself."""
    from cairnmq.spark.source import CairnSource  # so that planning can be used without Spark

    spark.dataSource.register(CairnSource)


def topic(
    spark: SparkSession,
    name: str,
    *,
    bootstrap: str = "127.0.0.1:9092",
    since: int | None = None,
    until: int | None = None,
    offsets: tuple[str, str] | None = None,
    columns: Sequence[str] = (),
) -> DataFrame:
    """A topic, read once more with every call. `since` and `until` are milliseconds, `offsets` are the texts of
    startingOffsets and endingOffsets."""
    reader = spark.read.format("cairnmq").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
    if since is not None:
        reader = reader.option("startingTimestamp", str(since)).option("startingOffsetsByTimestampStrategy", "latest")
    if until is not None:
        reader = reader.option("endingTimestamp", str(until))
    if offsets is not None:
        reader = reader.option("startingOffsets", offsets[0]).option("endingOffsets", offsets[1])
    if columns:
        reader = reader.option("columns", ",".join(columns))
    return reader.load()
