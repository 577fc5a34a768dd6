"""Records as any client sees them: written to Kafka with every shape they may have, and read back whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 30


class Seen(NamedTuple):
    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def producer(bootstrap: str, **options: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **options})


def send(writer: Producer, topic: str, partition: int, records: Iterable[dict[str, object]]) -> None:
    failures: list[KafkaError] = []
    for record in records:
        writer.produce(
            topic,
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            **record,
        )
    assert writer.flush(SECONDS) == 0
    assert not failures, failures[0]


def shapes(codec: str, count: int, size: int) -> list[dict[str, object]]:
    """Keys, values and headers that are there, empty and null; times that go back and forth."""
    made: list[dict[str, object]] = []
    for number in range(count):
        record: dict[str, object] = {
            "key": None if number % 3 == 0 else f"{codec}-{number % 7}".encode(),
            "value": None if number % 5 == 4 else (b"%s %d " % (codec.encode(), number)) * (size // 10),
            "timestamp": 1_700_000_000_000 + number * 1000 - (number % 4) * 2500,
        }
        if number % 2:
            record["headers"] = [
                ("codec", codec.encode()),
                ("none", None),
                ("codec", b""),
                ("\u00fc", b"1"),
            ]
        made.append(record)
    return made


def read_all(
    bootstrap: str, topic: str, partitions: int, *, isolation: str = "read_committed"
) -> dict[int, list[Seen]]:
    """Every record of a topic, by partition, up to the end as the consumer is told it."""
    options = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(
        {**options, "auto.offset.reset": "error", "isolation.level": isolation, "enable.partition.eof": True}
    )
    found: dict[int, list[Seen]] = {number: [] for number in range(partitions)}
    try:
        places = []
        for number in found:
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=SECONDS)
            places.append(TopicPartition(topic, number, low))
        consumer.assign(places)
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{topic}: no end of partitions {set(found) - ended}"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
                continue
            found[message.partition()].append(
                Seen(
                    message.offset(),
                    message.timestamp(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            )
    finally:
        consumer.close()
    return found


def bounds(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS)
        return low, high
    finally:
        consumer.close()
