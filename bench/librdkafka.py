"""librdkafka as the bench uses it, the client most people have: topics, producers, consumers, delivery reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SECONDS = 300.0


class LoadFailed(Exception):
    """A figure of a load that lost something is no figure."""


class BatchSizes:
    """How many records librdkafka put into a batch. CPU per GB follows it, and it follows the speed of the client."""

    def __init__(self) -> None:
        self.reports: list[str] = []

    def mean(self) -> float:
        windows = [topic["batchcnt"] for text in self.reports for topic in json.loads(text).get("topics", {}).values()]
        batches = sum(window["cnt"] for window in windows)
        return sum(window["sum"] for window in windows) / batches if batches else 0.0


class Errors:
    """Collects what delivery reports say; librdkafka is told to report failures only, which costs it least."""

    def __init__(self) -> None:
        self.seen: list[KafkaError] = []

    def report(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self.seen.append(error)

    def check(self, producer: Any) -> None:
        left = producer.flush(SECONDS)
        if left or self.seen:
            raise LoadFailed(f"{left} records not delivered, {len(self.seen)} failed: {self.seen[:3]}")


def create_topics(bootstrap: str, names: Sequence[str], partitions: int, replicas: int = 1, /, **config: str) -> None:
    """`flush_messages="1"` stands for the setting flush.messages."""
    named = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})  # held: without it the answers never come
    made = admin.create_topics(
        [NewTopic(name, partitions, replicas, config=named) for name in names],
        operation_timeout=SECONDS,
        request_timeout=SECONDS,
    )
    for future in made.values():
        future.result(SECONDS)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([topic], request_timeout=SECONDS).values():
        future.result(SECONDS)


def producer(bootstrap: str, **settings: object) -> Any:
    defaults: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 5,
        "batch.size": 1 << 20,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 1_000_000,
        "sticky.partitioning.linger.ms": 0,
        "delivery.report.only.error": True,
    }
    return Producer({**defaults, **settings})


def consumer(bootstrap: str, **settings: object) -> Any:
    defaults: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": 1,
        "queued.max.messages.kbytes": 200_000,
        "fetch.max.bytes": 100 << 20,
    }
    return Consumer({**defaults, **settings})
