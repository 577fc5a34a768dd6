"""Row `latency`: a fixed rate, whatever the answers do (open loop); times count from when a record was due."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from functools import partial

from confluent_kafka import TopicPartition

from bench.librdkafka import Errors, Load, LoadFailed, consumer, create_topics, delete_topic, producer, run_load
from bench.picture import bars
from bench.results import Points, Run, Store, Values
from bench.row import Row, rounds
from bench.servers import BOTH, Server, Servers, turns
from bench.table import Column, comparison

RATE = 5000
PARTITIONS = 10
SIZE = 1000
STAMP_BYTES = 8
WARM_SECONDS = 3
PERCENTS = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
COLUMNS = tuple(
    Column(f"{kind}_{name}_ms", f"{title} {name.replace('999', '99.9')} ms")
    for kind, title in (("produce", "produce"), ("e2e", "end to end"))
    for name, _ in PERCENTS
)


def percentiles(kind: str, nanoseconds: Sequence[int]) -> Values:
    ordered = sorted(nanoseconds)
    return {f"{kind}_{name}_ms": ordered[int(len(ordered) * share)] / 1e6 for name, share in PERCENTS}


class Sender:
    """One thread sends when records are due, another takes reports: neither waits for the other."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.errors = Errors()
        settings = {
            "linger.ms": 0,
            "acks": "1",
            "delivery.report.only.error": False,
            # librdkafka would send every record alone, however many wait. Kafka serves a connection one request at a
            # time, so its queue then only grows: that is saturation, not latency. Five is the Java client's limit.
            "max.in.flight.requests.per.connection": 5,
        }
        self.producer = producer(bootstrap, **settings)
        self.took: list[int] = []
        self.late: list[int] = []
        self.ended = False

    def run(self, seconds: float) -> None:
        reports = threading.Thread(target=self._poll)
        reports.start()
        begin = time.monotonic_ns() + 10_000_000
        padding = bytes(SIZE - STAMP_BYTES)
        for number in range(int(seconds * RATE)):
            due = begin + number * 1_000_000_000 // RATE
            now = time.monotonic_ns()
            if due > now:
                time.sleep((due - now) / 1e9)
            self.late.append(time.monotonic_ns() - due)
            value = due.to_bytes(STAMP_BYTES, "big") + padding
            self.producer.produce(self.topic, value, partition=number % PARTITIONS, on_delivery=self._report)
        self.errors.check(self.producer)
        self.ended = True
        reports.join()

    def _report(self, error: object, message: object) -> None:
        stamp = message.value()[:STAMP_BYTES]  # type: ignore[attr-defined]
        self.took.append(time.monotonic_ns() - int.from_bytes(stamp, "big"))
        self.errors.report(error, message)  # type: ignore[arg-type]

    def _poll(self) -> None:
        while not self.ended:
            self.producer.poll(0.1)


def run_latency(servers: Servers, name: str, seconds: int) -> Points:
    return load_latency(servers.get(name), seconds)


def load_latency(server: Server, seconds: int) -> Points:
    topic = f"latency-{uuid.uuid4().hex[:8]}"
    create_topics(server.bootstrap, [topic], PARTITIONS)
    total = (seconds + WARM_SECONDS) * RATE
    line = [sys.executable, "-m", "bench.latency", server.bootstrap, topic, str(total)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        try:
            if reader.stdout.readline().strip() != "ready":
                raise LoadFailed("the reader did not start")
            sender = Sender(server.bootstrap, topic)
            sender.run(seconds + WARM_SECONDS)
            read = json.loads(reader.stdout.readline() or "[]")
        finally:
            reader.kill()
    if len(sender.took) != total or len(read) != total:
        raise LoadFailed(f"{total} sent, {len(sender.took)} acknowledged, {len(read)} read")
    delete_topic(server.bootstrap, topic)
    warm = WARM_SECONDS * RATE
    values = percentiles("produce", sender.took[warm:]) | percentiles("e2e", read[warm:])
    values |= percentiles("late", sender.late[warm:])
    return {f"{RATE:,}": values}


def read_all(bootstrap: str, topic: str, total: int) -> list[int]:
    """The reader's side, in a process of its own: the clock is the same for all processes of a machine."""
    reader = consumer(bootstrap, **{"fetch.wait.max.ms": 500})
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    reader.poll(1.0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    took: list[int] = []
    quiet_since = time.monotonic()
    while len(took) < total and time.monotonic() - quiet_since < 30:
        message = reader.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise LoadFailed(str(message.error()))
        took.append(time.monotonic_ns() - int.from_bytes(message.value()[:STAMP_BYTES], "big"))
        quiet_since = time.monotonic()
    reader.close()
    return took


def measure(store: Store) -> None:
    seconds = 5 if store.run.quick else 30

    def warm_up(server: Server) -> None:
        """5,000 small requests a second are more than a cold JVM can take: they queue for a second and longer."""
        run_load(server, Load(PARTITIONS, 100 if store.run.quick else 2000))
        for _ in range(1 if store.run.quick else 3):
            load_latency(server, seconds)

    with Servers("latency", warm_up) as servers:
        for number in rounds(store, 5):
            for name in turns(BOTH, number):
                store.take(name, "latency", number, partial(run_latency, servers, name, seconds))


def body(run: Run) -> str:
    late = [value for server in BOTH for point in run.points() for value in run.series(server, point, "late_p99_ms")]
    note = (
        f"The load program itself sent a record up to {max(late):.2g} ms late (its worst p99); that is in the figures."
    )
    return f"{comparison(run, 'msg/s', COLUMNS)}\n\n{note}"


def pictures(run: Run) -> dict[str, str]:
    point = run.points()[0]
    heads = [column.heading for column in COLUMNS]
    series = {server: [run.median(server, point, column.key) for column in COLUMNS] for server in BOTH}
    return {"latency": bars("Latency in ms at 5,000 messages a second", [h.removesuffix(" ms") for h in heads], series)}


LATENCY = Row("latency", measure, body, pictures)

if __name__ == "__main__":
    sys.stdout.write(json.dumps(read_all(sys.argv[1], sys.argv[2], int(sys.argv[3]))) + "\n")
