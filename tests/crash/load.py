"""Load from real clients that survives the broker: producers that keep a ledger, and a committer of offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from crash.ledger import Ledger, Place
from interop.clients.librdkafka import LibrdkafkaClient

PADDING = b"." * 200
LARGE_PADDING = b"." * 2000  # for topics whose segments must roll quickly
DELIVERY_SECONDS = 120
GROUP = "crash-group"
RETRY = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}


class Load:
    """Numbers 0, 1, 2, ... into every partition, as fast as `rate` allows, until stopped; survives the broker."""

    def __init__(
        self,
        bootstrap: str,
        places: list[Place],
        *,
        rate: int,
        idempotent: bool,
        ledger: Ledger | None = None,
        settings: Mapping[str, str | int] | None = None,
        logger: object = None,
    ) -> None:
        """`logger`: hears librdkafka's log as far as the settings ask for it."""
        self.places = places
        self.rate = rate
        self.ledger = ledger if ledger is not None else Ledger(idempotent)
        self.acked_count = 0
        self.problems: list[str] = []
        self.changed = threading.Condition()
        self.stopping = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all" if idempotent else "1",
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 5 if idempotent else 1,
                "message.timeout.ms": DELIVERY_SECONDS * 1000,
                "retries": 1_000_000,
                "linger.ms": 5,
                "queue.buffering.max.messages": 5_000,
                "topic.metadata.refresh.interval.ms": 500,
                "error_cb": self.failed,
                **RETRY,
                **(settings or {}),
            },
            logger=logger,
        )
        self.thread = threading.Thread(target=self.run, name="load", daemon=True)
        self.thread.start()

    def failed(self, error: KafkaError) -> None:
        """Lost connections are the point of the test; a fatal error is a broken promise."""
        if error.fatal():
            self.problem(f"fatal for the producer: {error}")

    def problem(self, text: str) -> None:
        with self.changed:
            self.problems.append(text)
            self.changed.notify_all()

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        place = Place(message.topic(), message.partition())
        value = message.value()
        assert value is not None
        number = int(value.rstrip(b"."))
        if error is not None:
            self.problem(f"{place} number {number} was not delivered: {error}")
            return
        with self.changed:
            self.ledger.note(place, message.offset(), number)
            self.acked_count += 1
            self.changed.notify_all()

    def run(self) -> None:
        tick = 0.02
        share = max(1, int(self.rate * tick / len(self.places)))
        while not self.stopping.is_set() and not self.problems:
            until = time.monotonic() + tick
            for place in self.places:
                for _ in range(share):
                    self.send(place)
            while (left := until - time.monotonic()) > 0:
                self.producer.poll(left)

    def send(self, place: Place) -> None:
        try:
            number = self.ledger.sent[place]
            padding = LARGE_PADDING if place.topic == "expiring" else PADDING
            self.producer.produce(
                place.topic, b"%d" % number + padding, partition=place.partition, on_delivery=self.delivered
            )
            self.ledger.sent[place] = number + 1
        except BufferError:
            self.producer.poll(0.01)
        except KafkaException as problem:
            self.problem(str(problem))

    def wait_for(self, more: int, seconds: float) -> None:
        """Until `more` records were acknowledged from now on."""
        with self.changed:
            goal = self.acked_count + more
            self.changed.wait_for(lambda: self.problems or self.acked_count >= goal, seconds)
            assert not self.problems, self.problems
            assert self.acked_count >= goal, f"{goal - self.acked_count} of {more} not acknowledged in {seconds:g} s"

    def finish(self) -> None:
        """Stops sending and waits for every acknowledgement that is still owed."""
        self.stopping.set()
        self.thread.join()
        left = self.producer.flush(DELIVERY_SECONDS / 2)
        assert not self.problems, self.problems
        assert left == 0, f"{left} records were never acknowledged"

    def abandon(self) -> None:
        """For the end of a failed test: drops what is not delivered."""
        self.stopping.set()
        self.thread.join()
        self.producer.purge()


class Committer:
    """Commits ever higher offsets for one partition; knows the last that was confirmed and the last that was tried."""

    def __init__(self, bootstrap: str, place: Place) -> None:
        self.place = place
        self.tried = 0
        self.confirmed = 0
        self.stopping = threading.Event()
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, "socket.timeout.ms": 3000}
            | RETRY
        )
        # A daemon: with the broker gone a commit may wait for ever, and the run of the tests has to end.
        self.thread = threading.Thread(target=self.run, name="committer", daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.wait(0.01):
            self.tried += 1
            try:
                place = TopicPartition(self.place.topic, self.place.partition, self.tried)
                (result,) = self.consumer.commit(offsets=[place], asynchronous=False) or [place]
            except KafkaException:
                continue
            if result.error is None:
                self.confirmed = self.tried

    def check(self, client: LibrdkafkaClient) -> None:
        """Asks the broker; between the two readings the committer may have gone on."""
        at_least = self.confirmed
        stored = client.committed(GROUP, self.place.topic, self.place.partition) or 0
        assert at_least <= stored <= self.tried, f"committed {stored}, confirmed {at_least}, tried {self.tried}"

    def finish(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.consumer.close()
