"""Batch queries give what an ordinary client reads, on every kind of topic."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, DataFrameReader

from interop.clients.contract import Got, Sent
from interop.clients.librdkafka import LibrdkafkaClient

Read = Callable[..., DataFrameReader]


def rows(frame: DataFrame) -> list[Got]:
    """In order of partition and offset."""
    found = []
    for row in frame.collect():
        headers = tuple((name, bytes(v) if v is not None else None) for name, v in row.headers or ())
        key, value = (None if text is None else bytes(text) for text in (row.key, row.value))
        millis = int(row.timestamp.timestamp() * 1000)
        found.append(Got(row.partition, row.offset, millis, key, value, headers, bool(row.timestampType)))
    return sorted(found)


def test_first(read: Read, kafka: LibrdkafkaClient) -> None:
    kafka.create_topic("first", partitions=2)
    kafka.produce("first", [Sent(b"v%d" % i, b"k", (("h", b"x"),), partition=i % 2) for i in range(20)])
    found = rows(read(subscribe="first", includeHeaders=True).load())
    assert found == sorted(kafka.read("first", (0, 1)))
