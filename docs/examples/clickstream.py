"""A clickstream, counted by page and minute: topic clicks -> Spark -> topic clicks-by-minute -> a plot.

python clickstream.py 127.0.0.1:9092 click 1200 3600       1200 clicks, about one a second, since 3600 seconds ago
python clickstream.py 127.0.0.1:9092 count /data/counts    what is there now; with `forever` behind it, until stopped
python clickstream.py 127.0.0.1:9092 plot clicks.png       matplotlib if it is installed, else text
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import sys
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming import StreamingQuery

from cairnmq.spark import session

CLICKS, COUNTS = "clicks", "clicks-by-minute"
PAGES = {"/": 8, "/search": 5, "/item": 4, "/cart": 2, "/paid": 1}
Counts = dict[int, Counter[str]]


async def click(bootstrap: str, count: int, seconds_ago: int) -> None:
    chance = random.Random(count)
    at = time.time() - seconds_ago
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        sent = []
        for number in range(count):
            user, (page,) = f"user-{chance.randrange(50)}", chance.choices([*PAGES], [*PAGES.values()])
            text = json.dumps({"user": user, "page": page}).encode()
            sent.append(await producer.send(CLICKS, text, key=user.encode(), timestamp_ms=int(1000 * at)))
            at += chance.expovariate(1) * (1 + 0.6 * math.sin(number / 150))
        await asyncio.gather(*sent)


def by_minute(spark: SparkSession, bootstrap: str) -> DataFrame:
    clicks = (
        spark.readStream.format("cairnmq")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", CLICKS)
        .option("startingOffsets", "earliest")
        .option("group", "clickstream")
        .load()
    )
    return (
        clicks.selectExpr("timestamp", "from_json(CAST(value AS STRING), 'user STRING, page STRING') AS click")
        .withWatermark("timestamp", "1 minute")
        .groupBy(window("timestamp", "1 minute"), "click.page")
        .count()
    )


def count(spark: SparkSession, bootstrap: str, place: str, forever: bool = False) -> StreamingQuery:
    clicks = by_minute(spark, bootstrap)
    rows = clicks.selectExpr(
        "page AS key", "to_json(struct(unix_seconds(window.start) AS minute, page, count AS clicks)) AS value"
    )
    writer = (
        rows.writeStream.format("cairnmq")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", COUNTS)
        .option("checkpointLocation", place)
        .outputMode("append")
    )
    return (writer.trigger(processingTime="5 seconds") if forever else writer.trigger(availableNow=True)).start()


async def counted(bootstrap: str) -> Counts:
    """All that was committed: each window once, because the sink writes exactly once."""
    found: Counts = defaultdict(Counter)
    consumer = AIOKafkaConsumer(
        COUNTS, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    async with consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                for message in messages:
                    row = json.loads(message.value)
                    found[row["minute"]][row["page"]] += row["clicks"]
    return found


def text_plot(counts: Counts) -> None:
    most = max((found.total() for found in counts.values()), default=1)
    for minute, found in sorted(counts.items()):
        shown = time.strftime("%H:%M", time.gmtime(minute))
        print(f"{shown} {'#' * (50 * found.total() // most):50} {found.total()}")


def plot(counts: Counts, path: str) -> None:
    if find_spec("matplotlib") is None:
        text_plot(counts)
        return
    matplotlib = import_module("matplotlib")
    matplotlib.use("Agg")  # no window
    figure, axes = import_module("matplotlib.pyplot").subplots(figsize=(10, 4))
    minutes = sorted(counts)
    times = [datetime.fromtimestamp(minute, UTC) for minute in minutes]
    below = [0] * len(minutes)
    for page in PAGES:
        clicks = [counts[minute][page] for minute in minutes]
        axes.bar(times, clicks, bottom=below, width=timedelta(minutes=1), align="edge", label=page)
        below = [low + more for low, more in zip(below, clicks, strict=True)]
    axes.set_ylabel("clicks a minute")
    axes.xaxis.set_major_formatter(import_module("matplotlib.dates").DateFormatter("%H:%M"))
    axes.legend(loc="upper left")
    figure.savefig(path)
    print(path)


def main() -> None:
    bootstrap, command, *arguments = sys.argv[1:]
    if command == "click":
        asyncio.run(click(bootstrap, int(arguments[0]), int(arguments[1])))
    elif command == "count":
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks need what is installed here
        spark = session(SparkSession.builder.appName("clickstream").config("spark.sql.shuffle.partitions", 2))
        count(spark, bootstrap, arguments[0], forever=arguments[1:] == ["forever"]).awaitTermination()
    else:
        plot(asyncio.run(counted(bootstrap)), arguments[0])


if __name__ == "__main__":
    main()
