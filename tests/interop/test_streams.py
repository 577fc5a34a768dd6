"""Kafka Streams with exactly_once_v2, killed again and again with the broker: its result is that of a batch."""

from __future__ import annotations

import itertools
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from apache_kafka.command import assert_sound
from apache_kafka.records import producer, read_all
from broker_process import Broker, fixed_port, wait_until
from conftest import QUICK_GROUPS, QUICK_TIME_LIMITS
from crash.test_compaction import metric
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.process import PROGRAMS_DIR
from programs import require_program

APP = "shop"
PARTITIONS = 3
MOVED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
)
NEAR_MS = 5_000  # the window of the join in Streams.java
STEP_SECONDS = 0.15
LAST_STEPS = 60  # fed when all kills are done: the last broker has something to compact
VICTIMS = ("broker", "one", "broker", "other", "broker", "one", "all", "broker")
SETTINGS = {
    **QUICK_GROUPS,
    **QUICK_TIME_LIMITS,
    "log.retention.check.interval.ms": "300",
    "cairn.checkpoint.interval.ms": "300",
}
# Stores in memory: whoever starts anew, or takes over, has nothing but the changelogs.
STREAMS = {
    "application.id": APP,
    "processing.guarantee": "exactly_once_v2",
    "dsl.store.suppliers.class": "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
    "repartition.purge.interval.ms": "1000",
    "topic.segment.ms": "1000",
    "topic.min.cleanable.dirty.ratio": "0.01",
    "consumer.session.timeout.ms": "3000",
    "consumer.heartbeat.interval.ms": "500",
    "producer.transaction.timeout.ms": "5000",
    "request.timeout.ms": "5000",
    "reconnect.backoff.max.ms": "200",
}


class Event(NamedTuple):
    """A record of the input."""

    topic: str
    key: str
    value: str
    timestamp: int


def made_events() -> Iterator[list[Event]]:
    """What is fed, step by step; times are of the last hour, so that nothing is too old to be kept."""
    chance = random.Random(7)
    began = int(time.time() * 1000) - 3_600_000
    for step in itertools.count():
        now = began + step * 1000
        lines = [" ".join(f"word{int(chance.expovariate(0.05))}" for _ in range(8)) for _ in range(15)]
        events = [Event("lines", str(number), line, now) for number, line in enumerate(lines)]
        for number in range(5):
            buyer, payer = (f"customer{chance.randrange(30)}" for _ in range(2))
            events.append(Event("orders", f"{step}", f"{buyer} order{step}.{number}", now + chance.randrange(1000)))
            events.append(Event("payments", payer, f"payment{step}.{number}", now + chance.randrange(1000)))
        yield events


def words_of(events: list[Event]) -> dict[str, int]:
    return Counter(word for event in events if event.topic == "lines" for word in event.value.split(" "))


def pairs_of(events: list[Event]) -> Counter[str]:
    """Every order with every payment of its customer that is near in time."""
    payments: dict[str, list[Event]] = {}
    for event in events:
        if event.topic == "payments":
            payments.setdefault(event.key, []).append(event)
    return Counter(
        f"{order.value}|{payment.value}"
        for order in events
        if order.topic == "orders"
        for payment in payments.get(order.value.split(" ")[0], [])
        if abs(payment.timestamp - order.timestamp) <= NEAR_MS
    )


class Instance:
    """One process of the application, on any number of lives."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        directory.mkdir()
        launcher = require_program(str(PROGRAMS_DIR / "kafka_streams"))
        settings = {**STREAMS, "bootstrap.servers": bootstrap, "state.dir": str(directory / "state")}
        self.line = [launcher, *(f"{name}={value}" for name, value in settings.items())]
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9; that it has not ended by itself is part of the test."""
        assert self.process is not None
        assert self.process.poll() is None, f"Streams gave up\n{self.log.read_text()[-5000:]}"
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def broker(make_broker: Callable[..., Broker]) -> Broker:
    made = make_broker(settings=SETTINGS, port=fixed_port()).start()
    admin = LibrdkafkaClient(made.bootstrap)
    for topic in ("lines", "orders", "payments", "counts", "paid"):
        admin.create_topic(topic, PARTITIONS)
    return made


@pytest.fixture
def instances(tmp_path: Path, broker: Broker) -> Iterator[list[Instance]]:
    made = [Instance(tmp_path / name, broker.bootstrap) for name in ("one", "other")]
    yield made
    for instance in made:
        instance.close()


class Feed:
    """Input until the block ends: however long a kill takes, there is something left to be done at the next one.

    Each event once; an idempotent producer sees to it while the broker dies."""

    def __init__(self, bootstrap: str) -> None:
        options = {"enable.idempotence": True, "reconnect.backoff.max.ms": 200, "log_level": 2}
        self.writer = producer(
            bootstrap, **options, partitioner="murmur2_random"
        )  # Java's, or what is joined lies apart
        self.events: list[Event] = []
        self.steps = 0
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        for step in made_events():
            for event in step:
                self.writer.produce(event.topic, event.value, event.key, timestamp=event.timestamp)
            self.events += step
            self.steps += 1
            self.writer.poll(0)
            if self.ending.wait(STEP_SECONDS):
                return

    def __enter__(self) -> Feed:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.thread.join()
        assert self.writer.flush(60) == 0, "events that the broker did not take"


def consumed(group: Consumer) -> int:
    """How many records of the input the application has committed."""
    places = [TopicPartition(topic, number) for topic in ("lines", "orders") for number in range(PARTITIONS)]
    until = time.monotonic() + 120
    while True:
        try:
            return sum(max(place.offset, 0) for place in group.committed(places, 20))
        except KafkaException as error:  # with several brokers the group has another coordinator, perhaps not yet ready
            if error.args[0].code() not in MOVED or time.monotonic() > until:
                raise
            time.sleep(0.2)


def strike(victim: str, broker: Broker, instances: list[Instance]) -> None:
    named = {"one": instances[:1], "other": instances[1:], "all": instances, "broker": []}[victim]
    for instance in named:
        instance.kill()
    if victim in ("broker", "all"):
        broker.kill_tree()
        broker.start()
    for instance in named:
        instance.start()


def counts(bootstrap: str) -> dict[str, int]:
    """The last count of each word; within committed records none is told twice, or taken back."""
    last: dict[str, int] = {}
    for records in read_all(bootstrap, "counts", PARTITIONS).values():
        for record in records:
            assert record.key is not None and record.value is not None
            word, count = record.key.decode(), int(record.value)
            assert count > last.get(word, 0), f"{word}: {last[word]}, then {count} at offset {record.offset}"
            last[word] = count
    return last


def pairs(bootstrap: str) -> Counter[str]:
    found = read_all(bootstrap, "paid", PARTITIONS)
    return Counter((record.value or b"").decode() for records in found.values() for record in records)


def killed_at_work(
    broker: Broker, instances: list[Instance], victims: Sequence[str], strike: Callable[[str], None]
) -> dict[str, int]:
    """The counts of words, which are what a batch makes of the input."""
    for instance in instances:
        instance.start()
    options = {"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 2}
    group = Consumer({**options, "group.id": APP})
    chance = random.Random(11)
    with Feed(broker.bootstrap) as feed:
        for victim in victims:
            before = consumed(group)
            wait_until(lambda before=before: consumed(group) > before, 120, f"work before the kill of {victim}")
            time.sleep(chance.uniform(0, 1.5))
            strike(victim)
        enough = feed.steps + LAST_STEPS
        wait_until(lambda: feed.steps >= enough, 120, "the last steps")
    group.close()
    words, near = words_of(feed.events), pairs_of(feed.events)

    def done() -> bool:
        return counts(broker.bootstrap) == words and pairs(broker.bootstrap).total() >= near.total()

    try:
        wait_until(done, 120, "the whole result")
    finally:
        for instance in instances:
            assert instance.stop() == 0, instance.log.read_text()[-5000:]
    assert counts(broker.bootstrap) == words
    assert pairs(broker.bootstrap) == near
    return words


@pytest.mark.long
def test_killed_with_the_broker(broker: Broker, instances: list[Instance]) -> None:
    words = killed_at_work(broker, instances, VICTIMS, lambda victim: strike(victim, broker, instances))
    check_internal_topics(broker, words)
    assert_sound(broker)


def check_internal_topics(broker: Broker, words: dict[str, int]) -> None:
    """The changelog of counts is compacted and holds them; what was repartitioned is deleted when it was read."""
    admin = LibrdkafkaClient(broker.bootstrap)
    made = {name for name in admin.admin.list_topics(timeout=20).topics if name.startswith(f"{APP}-")}
    changelogs = {name for name in made if name.endswith("-changelog")}
    repartitioned = made - changelogs
    policies = {name: admin.topic_configs(name)["cleanup.policy"] for name in made}
    assert {name for name, policy in policies.items() if policy == "compact"} == {f"{APP}-counts-changelog"}
    assert (len(changelogs), len(repartitioned)) == (3, 2), made
    for name in repartitioned:
        assert any(admin.bounds(name, number)[0] > 0 for number in range(PARTITIONS)), f"{name} was never purged"
    wait_until(lambda: metric(broker, "cairn_compaction_passes_total") >= 1, 20, "compaction of a changelog")
    kept = read_all(broker.bootstrap, f"{APP}-counts-changelog", PARTITIONS)
    state = {record.key: record.value for records in kept.values() for record in records}
    assert state == {word.encode(): count.to_bytes(8, "big") for word, count in words.items()}
