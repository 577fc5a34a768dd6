"""A well-behaved client beside the hostile ones: produces, consumes, measures, and knows what it was promised."""

from __future__ import annotations

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from crash.ledger import Ledger, Place
from interop.clients.contract import Got

TOPIC = "neighbour"
DELIVERY_SECONDS = 60


class Neighbour:
    """Idempotent, acks=all, `rate` records a second; a consumer reads them all."""

    def __init__(self, bootstrap: str, rate: float = 50.0) -> None:
        with Client.connect(bootstrap) as client:
            client.create_topics([NewTopic(TOPIC, 1)])
        self.bootstrap = bootstrap
        self.place = Place(TOPIC, 0)
        self.rate = rate
        self.ledger = Ledger(idempotent=True)
        self.sent_at: dict[int, float] = {}
        self.acks: list[float] = []
        self.arrivals: list[float] = []
        self.problems: list[str] = []
        self.read: list[Got] = []
        self.stopping = threading.Event()
        self.quiet = threading.Event()
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]
        for thread in self.threads:
            thread.start()

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"fatal for the neighbour: {error}")

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": DELIVERY_SECONDS * 1000,
                "error_cb": self._failed,
                "log_level": 0,
            }
        )
        number = 0
        started = time.monotonic()
        while not self.stopping.is_set():
            self.sent_at[number] = time.monotonic()
            producer.produce(TOPIC, b"%d" % number + b"." * 100, partition=0, on_delivery=self._delivered)
            number += 1
            self.ledger.sent[self.place] = number
            while not self.stopping.is_set() and (wait := started + number / self.rate - time.monotonic()) > 0:
                producer.poll(wait)
        left = producer.flush(DELIVERY_SECONDS)
        if left:
            self.problems.append(f"{left} of the neighbour's records were never acknowledged")
        self.quiet.set()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number = int((message.value() or b"").rstrip(b"."))
        if error is not None:
            self.problems.append(f"the neighbour's number {number} was not delivered: {error}")
            return
        self.acks.append(time.monotonic() - self.sent_at[number])
        self.ledger.acked[self.place][message.offset()] = number

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "neighbour",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        deadline = float("inf")
        while time.monotonic() < deadline and (
            not self.quiet.is_set() or len(self.read) < self.ledger.sent[self.place]
        ):
            message = consumer.poll(0.2)
            if self.quiet.is_set() and deadline == float("inf"):
                deadline = time.monotonic() + DELIVERY_SECONDS
            if message is None or message.error() is not None:
                continue
            value = message.value() or b""
            self.arrivals.append(time.monotonic() - self.sent_at[int(value.rstrip(b"."))])
            self.read.append(Got(0, message.offset() or 0, 0, None, value, (), False))
        consumer.close()

    def finish(self) -> dict[str, float]:
        """Stops, checks that nothing acknowledged is lost, doubled or out of order; the measured times in ms."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(2 * DELIVERY_SECONDS + 10)
        assert not self.problems, self.problems
        findings = self.ledger.findings(self.place, self.read)
        assert not findings, findings
        return {
            "records": len(self.acks),
            "produce_p50_ms": quantile(self.acks, 0.5),
            "produce_p99_ms": quantile(self.acks, 0.99),
            "end_to_end_p99_ms": quantile(self.arrivals, 0.99),
            "end_to_end_max_ms": quantile(self.arrivals, 1.0),
        }


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)], 1)
