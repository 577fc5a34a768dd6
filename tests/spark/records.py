"""Records as Spark gives them and as a client does, to be held against each other."""

from __future__ import annotations

from pyspark.sql import DataFrame

from cairnmq.client.blocking import Client
from cairnmq.codec.batch import CONTROL_BIT, read_header
from interop.clients.contract import Got, Sent


def rows(frame: DataFrame) -> list[Got]:
    """In order of partition and offset."""
    found = []
    for row in frame.collect():
        headers = tuple((name, None if value is None else bytes(value)) for name, value in row.headers or ())
        key, value = (None if text is None else bytes(text) for text in (row.key, row.value))
        millis = round(row.timestamp.timestamp() * 1000)
        found.append(Got(row.partition, row.offset, millis, key, value, headers, bool(row.timestampType)))
    return sorted(found)


def mixed(count: int, partitions: int = 1) -> list[Sent]:
    """Keys, values and headers that are missing, empty, or not text; sizes that differ."""
    return [
        Sent(
            None if i % 7 == 3 else b"value-%d" % i * (i % 5),
            None if i % 3 == 0 else b"" if i % 3 == 1 else bytes([255, i % 256]),
            ((), (("h", b"x%d" % i),), (("h", None), ("h", b""), ("ü", b"\xff")))[i % 3],
            1_700_000_000_000 + i,
            i % partitions,
        )
        for i in range(count)
    ]


def producers(bootstrap: str, topic: str) -> list[int]:
    """Of each batch of records in partition 0."""
    with Client.connect(bootstrap) as client:
        headers = [read_header(batch) for fetched in client.fetch({topic: {0: 0}}) for batch in fetched.batches]
    return [header.producer_id for header in headers if not header.attributes & CONTROL_BIT]
