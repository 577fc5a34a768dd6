"""Row `many`: 10,000 and 100,000 partitions on one node of ours, step by step, with what it holds after each."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from bench.first_message import seconds_to_first_message
from bench.goals import Goal, alone
from bench.librdkafka import SECONDS, Errors, LoadFailed, consumer, create_topics, producer
from bench.results import CAIRN, Points, Run, Store
from bench.row import Row, rounds
from bench.servers import Server, Servers
from bench.table import cell, table
from bench.usage import directory_entries
from cairnmq.cli.bench_pipe import Pipe
from cairnmq.wire.messages import MetadataRequest, MetadataResponse

TOPICS = 100
TOPICS_AT_ONCE = 10
RANDOM_READS = 200
CREATE, METADATA = "create, 10 topics at once", "all metadata, first answer"
PRODUCE = "one record to every partition by librdkafka"
RESTART = "restart after kill -9, to first acknowledged message"
HEADS = ("step", "seconds", "PSS MB", "open files", "directory entries", "s until quiet")
KEYS = ("seconds", "pss_mb", "open_files", "entries", "quiet_s")


class Scenario:
    """The steps share their topics; each is timed alone, and the node is looked at when it is quiet again."""

    def __init__(self, server: Server, partitions: int) -> None:
        self.server = server
        self.partitions = partitions
        self.names = [f"many-{number}" for number in range(TOPICS)]
        self.value = os.urandom(1000)
        self.points: Points = {}

    def run(self) -> Points:
        start = time.perf_counter()
        self.server.launch()
        self.server.wait_ready()
        self.look("start", time.perf_counter() - start)
        self.step(CREATE, self.create)
        self.step(METADATA, self.metadata)
        self.step("all metadata, again", self.metadata)
        self.step("all metadata by librdkafka", self.list_topics)
        self.step("describe topics and their settings by librdkafka", self.describe)
        self.step(PRODUCE, self.produce)
        self.step(f"read {RANDOM_READS} random partitions by librdkafka", self.consume)
        self.server.kill()
        self.restart()
        self.step(f"after the restart: read {RANDOM_READS} others", self.consume)
        return self.points

    def step(self, name: str, act: Callable[[], None]) -> None:
        start = time.perf_counter()
        act()
        self.look(name, time.perf_counter() - start)

    def look(self, name: str, seconds: float) -> None:
        tree = self.server.tree()
        quiet = tree.quiet_after(600)
        self.points[f"{TOPICS * self.partitions:,}: {name}"] = {
            "seconds": seconds,
            "quiet_s": quiet,
            "pss_mb": tree.pss_mb(),
            "open_files": float(tree.open_files()),
            "entries": float(directory_entries(self.server.data)),
        }

    def create(self) -> None:
        for at in range(0, TOPICS, TOPICS_AT_ONCE):
            some = self.names[at : at + TOPICS_AT_ONCE]
            create_topics(self.server.bootstrap, some, self.partitions)

    def metadata(self) -> None:
        pipe = Pipe(self.server.port, SECONDS)
        known = pipe.ask(MetadataRequest(topics=None))
        pipe.close()
        assert isinstance(known, MetadataResponse)
        self.check(sum(len(topic.partitions) for topic in known.topics))

    def list_topics(self) -> None:
        known = AdminClient({"bootstrap.servers": self.server.bootstrap}).list_topics(timeout=SECONDS)
        self.check(sum(len(topic.partitions) for topic in known.topics.values()))

    def describe(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        described = admin.describe_topics(TopicCollection(self.names), request_timeout=SECONDS)
        self.check(sum(len(future.result(SECONDS).partitions) for future in described.values()))
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in self.names]
        for future in admin.describe_configs(resources, request_timeout=SECONDS).values():
            future.result(SECONDS)

    def check(self, found: int) -> None:
        if found != TOPICS * self.partitions:
            raise LoadFailed(f"{found} partitions seen, {TOPICS * self.partitions} made")

    def produce(self) -> None:
        """A producer for ten topics at a time: librdkafka's own memory for 100,000 partitions is not measured here."""
        for at in range(0, TOPICS, TOPICS_AT_ONCE):
            sender, errors = producer(self.server.bootstrap, acks="1"), Errors()
            for name in self.names[at : at + TOPICS_AT_ONCE]:
                for partition in range(self.partitions):
                    sender.produce(name, self.value, partition=partition, on_delivery=errors.report)
            errors.check(sender)

    def consume(self) -> None:
        everything = [(name, partition) for name in self.names for partition in range(self.partitions)]
        wanted = set(random.sample(everything, RANDOM_READS))
        reader = consumer(self.server.bootstrap)
        reader.assign([TopicPartition(name, partition, 0) for name, partition in wanted])
        deadline = time.monotonic() + SECONDS
        while wanted and time.monotonic() < deadline:
            for message in reader.consume(RANDOM_READS, 0.05):
                if message.error():
                    raise LoadFailed(str(message.error()))
                if message.offset() == 0 and message.value() != self.value:
                    raise LoadFailed("another record than was sent")
                wanted.discard((message.topic(), message.partition()))
        reader.close()
        if wanted:
            raise LoadFailed(f"{len(wanted)} partitions gave nothing")

    def restart(self) -> None:
        seconds = seconds_to_first_message(self.server, self.names[0])
        self.server.wait_ready()
        self.look(RESTART, seconds)


def run_many(servers: Servers, partitions: int) -> Points:
    return Scenario(servers.fresh(CAIRN), partitions).run()


def measure(store: Store, _servers: Servers) -> None:
    for number in rounds(store):
        for partitions in (100,) if store.run.quick else (100, 1000):
            with Servers("many") as servers:
                name = f"{TOPICS} x {partitions:,}"
                store.take(CAIRN, name, number, partial(run_many, servers, partitions))


def body(run: Run) -> str:
    lines = [[point, *(cell(run.series(CAIRN, point, key)) for key in KEYS)] for point in run.points()]
    return table(HEADS, lines)


def pictures(_run: Run) -> dict[str, str]:
    return {}


def goal(title: str, step: str, must: float, aim: float, key: str = "seconds", unit: str = " s") -> Goal:
    return alone(f"100 x 1,000 partitions: {title}", f"100,000: {step}", key, must, aim, unit)


GOALS = (
    goal("created in", CREATE, 60.0, 20.0),
    goal("all metadata answered in", METADATA, 2.0, 0.5),
    goal("restart after kill -9, to first acknowledged message", RESTART, 5.0, 2.0),
    goal("PSS idle, all metadata answered", METADATA, 300.0, 150.0, "pss_mb", " MB"),
    goal("PSS idle, with a record in each", PRODUCE, 300.0, 150.0, "pss_mb", " MB"),
    goal("PSS idle, with a record in each, after a restart", RESTART, 300.0, 150.0, "pss_mb", " MB"),
)
MANY = Row("many", measure, body, pictures, GOALS)
