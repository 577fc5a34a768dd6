"""Load by librdkafka, the client most people use: every report is looked at, and the end offsets must add up."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec import Struct

from bench.results import Values
from bench.servers import Server
from cairnmq.client.blocking import Client
from cairnmq.client.data import LATEST

SECONDS = 300.0
# Kafka maps its index files with a partition's first batch and first writes into them with the second, if 4 KiB lie
# before it. On some kernels that one write costs milliseconds: paid once, so it is shown apart from the load.
SETUP_BATCHES = 2
SETUP_RECORDS = 8


class LoadFailed(Exception):
    """A figure of a load that lost something is no figure."""


class Load(Struct, frozen=True):
    """Records round robin over the partitions of one topic."""

    partitions: int
    megabytes: int
    size: int = 1000
    acks: str = "1"
    idempotent: bool = False
    topic_config: dict[str, str] = {}
    consume: bool = True

    @property
    def records(self) -> int:
        return self.megabytes * 1_000_000 // self.size

    @property
    def stored(self) -> int:
        return self.records + self.partitions * SETUP_BATCHES * SETUP_RECORDS


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


def create_topics(bootstrap: str, names: Sequence[str], partitions: int, **config: str) -> None:
    """`flush_messages="1"` stands for the setting flush.messages."""
    named = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})  # held: without it the answers never come
    made = admin.create_topics(
        [NewTopic(name, partitions, 1, config=named) for name in names],
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


def run_load(server: Server, load: Load) -> Values:
    """Produces, waits until the server is quiet, consumes everything, deletes the topic."""
    topic = f"load-{load.partitions}-{uuid.uuid4().hex[:8]}"
    create_topics(server.bootstrap, [topic], load.partitions, **load.topic_config)
    time.sleep(1)
    values = _produce(server, topic, load)
    stored = _stored(server, topic, load)
    if stored != load.stored:
        raise LoadFailed(f"{load.stored} records acknowledged, {stored} stored")
    if load.consume:
        values |= _consume(server, topic, load)
    delete_topic(server.bootstrap, topic)
    return values


def _produce(server: Server, topic: str, load: Load) -> Values:
    tree, errors, value = server.tree(), Errors(), os.urandom(load.size)
    sizes = BatchSizes()
    settings = {"acks": load.acks, "enable.idempotence": load.idempotent, "statistics.interval.ms": 500}
    sender = producer(server.bootstrap, **settings, stats_cb=sizes.reports.append)
    setup_value = bytes(1000)
    cpu, start = tree.cpu(), time.perf_counter()
    for _ in range(SETUP_BATCHES):
        for number in range(load.partitions * SETUP_RECORDS):
            partition = number // SETUP_RECORDS
            sender.produce(topic, setup_value, partition=partition, on_delivery=errors.report)
        errors.check(sender)
    setup_seconds = time.perf_counter() - start
    tree.settle()
    setup_cpu = tree.cpu() - cpu
    sender.poll(0)
    sizes.reports.clear()
    cpu, start = tree.cpu(), time.perf_counter()
    produce, poll, report, partitions = sender.produce, sender.poll, errors.report, load.partitions
    for number in range(load.records):
        while True:
            try:
                produce(topic, value, partition=number % partitions, on_delivery=report)
                break
            except BufferError:
                poll(0.05)
        if number % 1000 == 0:
            poll(0)
    errors.check(sender)
    seconds = time.perf_counter() - start
    pss = tree.pss_mb()
    quiet = tree.settle()
    gigabytes = load.records * load.size / 1e9
    return {
        "produce_mb_s": gigabytes * 1000 / seconds,
        "produce_msg_s": load.records / seconds,
        "produce_cpu_s_gb": (tree.cpu() - cpu) / gigabytes,
        "pss_mb": pss,
        "batch_records": sizes.mean(),
        "setup_s": setup_seconds,
        "setup_cpu_ms": setup_cpu * 1000 / load.partitions,
        "went_quiet": float(quiet),
    }


def _stored(server: Server, topic: str, load: Load) -> int:
    with Client.connect(server.bootstrap) as client:
        ends = client.list_offsets(topic, range(load.partitions), LATEST)
    return sum(end.offset for end in ends.values())


def _consume(server: Server, topic: str, load: Load) -> Values:
    tree, wanted, got = server.tree(), load.stored, 0
    reader = consumer(server.bootstrap)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(load.partitions)])
    cpu, start = tree.cpu(), time.perf_counter()
    while got < wanted and time.perf_counter() - start < SECONDS:
        for message in reader.consume(10_000, 1.0):
            if message.error():
                raise LoadFailed(str(message.error()))
            got += 1
    seconds = time.perf_counter() - start
    reader.close()
    if got != wanted:
        raise LoadFailed(f"{wanted} records stored, {got} read")
    tree.settle()
    gigabytes = got * load.size / 1e9
    return {"consume_mb_s": gigabytes * 1000 / seconds, "consume_cpu_s_gb": (tree.cpu() - cpu) / gigabytes}
