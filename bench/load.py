"""As fast as the client can: records round robin over the partitions of a new topic, then all of them read back.

The way of the shared sweep: each partition gets one record before the clock runs (the client then knows the topic),
so whatever a server pays for a partition's first real batches is part of its figure.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition
from msgspec import Struct

from bench.librdkafka import SECONDS, BatchSizes, Errors, LoadFailed, consumer, create_topics, delete_topic, producer
from bench.results import Values
from bench.servers import Server, rest
from bench.usage import Calm
from cairnmq.client.blocking import Client
from cairnmq.client.records import LATEST

SAMPLE_SECONDS = 0.25


class Load(Struct, frozen=True):
    """`again`: the same once more, now that no partition is new. `watched`: the backlog is looked at meanwhile.
    `replicas`: of each partition, in a cluster."""

    partitions: int
    megabytes: int
    size: int = 1000
    acks: str = "1"
    idempotent: bool = False
    topic_config: dict[str, str] = {}
    again: bool = False
    consume: bool = False
    watched: bool = False
    replicas: int = 1

    @property
    def records(self) -> int:
        return self.megabytes * 1_000_000 // self.size

    @property
    def stored(self) -> int:
        return self.records * (2 if self.again else 1) + self.partitions


def run_load(server: Server, load: Load) -> Values:
    """Produces, waits until the server is quiet, reads if asked to, deletes the topic."""
    topic = f"load-{load.partitions}-{uuid.uuid4().hex[:8]}"
    create_topics(server.bootstrap, [topic], load.partitions, load.replicas, **load.topic_config)
    time.sleep(1)
    values = produce_load(server, topic, load)
    check_stored(server, topic, load)
    if load.consume:
        values |= consume_load(server, topic, load.partitions, load.stored, load.size)
    delete_topic(server.bootstrap, topic)
    return values


def produce_load(server: Server, topic: str, load: Load, *, settles: bool = True) -> Values:
    """`settles`: what the first record of each partition costs is over before the clock runs, and so is what the server
    puts off before it stops."""
    errors, value, sizes = Errors(), os.urandom(load.size), BatchSizes()
    settings = {"acks": load.acks, "enable.idempotence": load.idempotent, "statistics.interval.ms": 500}
    sender = producer(server.bootstrap, **settings, stats_cb=sizes.reports.append)
    for partition in range(load.partitions):
        sender.produce(topic, value, partition=partition, on_delivery=errors.report)
    errors.check(sender)
    if settles:
        rest(server)
    sender.poll(0)
    sizes.reports.clear()

    def send() -> None:
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

    with Backlog(server, load.watched) as backlog:
        values = timed(server, load, send, settles=settles)
    values["batch_records"] = sizes.mean()
    if backlog.highest is not None:
        values["backlog_mb"] = backlog.highest / 1e6
    if load.again:
        sizes.reports.clear()
        values |= {f"warm_{key}": value for key, value in timed(server, load, send).items()}
        values["warm_batch_records"] = sizes.mean()
    return values


def timed(server: Server, load: Load, send: Callable[[], None], *, settles: bool = True) -> Values:
    """CPU is read when the server is quiet again: what it put off is paid for too."""
    tree = server.tree()
    cpu, start, own = tree.cpu(), time.monotonic(), time.process_time()
    send()
    end, own = time.monotonic(), time.process_time() - own
    pss = tree.pss_mb()
    calm = rest(server) if settles else Calm.begin(end, tree.cpu())
    seconds, gigabytes = end - start, load.records * load.size / 1e9
    return {
        "produce_mb_s": gigabytes * 1000 / seconds,
        "produce_msg_s": load.records / seconds,
        "produce_cpu_s_gb": (calm.cpu - cpu) / gigabytes,
        "client_cpu_s_gb": own / gigabytes,
        "pss_mb": pss,
        "quiet_s": calm.since - end,
    }


class Backlog:
    """The largest number of bytes that waited to be split, as the server's own metrics say; None where there is none"""

    def __init__(self, server: Server, wanted: bool) -> None:
        self.server = server
        self.highest: float | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch) if wanted else None

    def _watch(self) -> None:
        while not self.ended.wait(SAMPLE_SECONDS):
            seen = self.server.backlog_bytes()
            if seen is None:
                return
            self.highest = max(seen, self.highest or 0.0)

    def __enter__(self) -> Backlog:
        if self.thread is not None:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        if self.thread is not None:
            self.thread.join()


def stored_records(server: Server, topic: str, partitions: int) -> int:
    with Client.connect(server.bootstrap) as client:
        ends = client.list_offsets(topic, range(partitions), LATEST)
    return sum(end.offset for end in ends.values())


def check_stored(server: Server, topic: str, load: Load) -> None:
    found = stored_records(server, topic, load.partitions)
    if found != load.stored:
        raise LoadFailed(f"{load.stored} records acknowledged, {found} stored")


def consume_load(server: Server, topic: str, partitions: int, wanted: int, size: int) -> Values:
    tree = server.tree()
    reader = consumer(server.bootstrap)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    cpu, start = tree.cpu(), time.perf_counter()
    read_records(reader, wanted)
    seconds = time.perf_counter() - start
    reader.close()
    gigabytes = wanted * size / 1e9
    return {"consume_mb_s": gigabytes * 1000 / seconds, "consume_cpu_s_gb": (rest(server).cpu - cpu) / gigabytes}


def read_records(reader: Any, wanted: int) -> None:
    """Takes so many records from an assigned consumer; fewer are a failure."""
    got, deadline = 0, time.monotonic() + SECONDS
    while got < wanted and time.monotonic() < deadline:
        for message in reader.consume(10_000, 1.0):
            if message.error():
                raise LoadFailed(str(message.error()))
            got += 1
    if got != wanted:
        raise LoadFailed(f"{wanted} records stored, {got} read")
