"""Those who use an attacked broker beside the load: a reader, other client libraries, one who changes topics."""

from __future__ import annotations

import threading
from random import Random

from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.errors import KafkaError

from chaos.promises import Promises
from crash.ledger import Place
from crash.load import PADDING, RETRY
from interop.clients.aio import AiokafkaClient
from interop.clients.contract import Refused, Sent
from interop.clients.kafka_python import KafkaPythonClient
from interop.clients.librdkafka import LibrdkafkaClient

TRICKLE_RECORDS = 10
TRICKLE_PAUSE_SECONDS = 0.2


class Onlooker:
    """Reads everything as it becomes visible and tells the ledgers; offsets may not be skipped or come twice."""

    def __init__(self, bootstrap: str, ledgers: list[Promises], positions: dict[Place, int]) -> None:
        self.ledgers = {place: ledger for ledger in ledgers for place in ledger.sent}
        self.next_offsets = dict(positions)
        self.records = 0
        self.problems: list[str] = []
        self.stopping = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": "onlooker", "enable.auto.commit": False, **RETRY}
        self.consumer = Consumer(
            settings | {"auto.offset.reset": "error", "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 50}
        )
        self.consumer.assign([TopicPartition(*place, offset) for place, offset in positions.items()])
        self.thread = threading.Thread(target=self.run, name="onlooker", daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self.consumer.consume(1000, 0.05):
                if message.error() is not None:
                    continue  # the broker is being attacked; what counts is what is read
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None and partition is not None and offset is not None
                place = Place(topic, partition)
                if offset != self.next_offsets[place]:
                    self.problems.append(f"{place}: offset {offset} was read where {self.next_offsets[place]} was due")
                self.next_offsets[place] = offset + 1
                self.ledgers[place].saw(place, offset, int((message.value() or b"").rstrip(b".")))
                self.records += 1

    def finish(self) -> list[str]:
        self.stopping.set()
        self.thread.join()
        self.consumer.close()
        return self.problems


class Trickle:
    """Another client library that produces with acks=all, a new idempotent producer for every few records.

    A call that fails leaves its numbers unknown, and they are not sent again: numbers ascend, with gaps.
    """

    def __init__(self, client: type[AiokafkaClient | KafkaPythonClient], bootstrap: str, ledger: Promises) -> None:
        self.ledger = ledger
        self.client = client(bootstrap)
        self.acked_count = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, name=client.name, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.wait(TRICKLE_PAUSE_SECONDS):
            for place in list(self.ledger.sent):
                first = self.ledger.sent[place]
                self.ledger.sent[place] = first + TRICKLE_RECORDS
                numbers = range(first, first + TRICKLE_RECORDS)
                records = [Sent(b"%d" % number + PADDING, partition=place.partition) for number in numbers]
                try:
                    offsets = self.client.produce(place.topic, records, acks="all", idempotent=True)
                except (Refused, KafkaError, OSError, AssertionError):
                    continue
                for offset, number in zip(offsets, numbers, strict=True):
                    self.ledger.note(place, offset, number)
                    self.acked_count += 1

    def finish(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.client.close()


class Meddler:
    """Deletes records, makes topics and deletes them, on and on; each outcome is confirmed or unknown."""

    def __init__(self, bootstrap: str, ledgers: list[Promises], rng: Random, pause: float) -> None:
        self.client = LibrdkafkaClient(bootstrap)
        self.places = [(ledger, next(iter(ledger.sent))) for ledger in ledgers]
        self.rng = rng
        self.pause = pause
        self.made: set[str] = set()
        self.delete_tried: set[str] = set()
        self.deleted: set[str] = set()
        self.trims = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, name="meddler", daemon=True)
        self.thread.start()

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(self.rng.uniform(0, 2 * self.pause)):
            try:
                if self.rng.random() < 0.6:
                    self.trim(*self.rng.choice(self.places))
                else:
                    number += 1
                    self.topics(f"made-{number}")
            except (Refused, KafkaException, TimeoutError):
                continue  # unknown

    def trim(self, ledger: Promises, place: Place) -> None:
        start, end = self.client.bounds(place.topic, place.partition)
        wanted = start + (end - start) // 3
        if wanted <= start:
            return
        ledger.trim_tried[place] = max(ledger.trim_tried[place], wanted)
        ledger.trim_confirmed[place] = self.client.delete_records(place.topic, place.partition, wanted)
        self.trims += 1

    def topics(self, name: str) -> None:
        self.client.create_topic(name, 1)
        self.made.add(name)
        if self.rng.random() < 0.5:
            self.delete_tried.add(name)
            self.client.delete_topic(name)
            self.deleted.add(name)

    def findings(self) -> list[str]:
        """It goes on meanwhile: only what was confirmed before the reading, and not touched after it, counts."""
        made, deleted = set(self.made), set(self.deleted)
        present = set(self.client.admin.list_topics(timeout=20).topics)
        lost = made - self.delete_tried - present
        found = [f"topics that were made are gone: {sorted(lost)}"] if lost else []
        return found + ([f"deleted topics are back: {sorted(deleted & present)}"] if deleted & present else [])

    def finish(self) -> None:
        self.stopping.set()
        self.thread.join()
