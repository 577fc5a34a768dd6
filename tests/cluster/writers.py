"""Producers of two libraries that write through everything; each record and what came of it goes into a history."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer, errors
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cluster.epoch_watch import EpochWatch
from crash.ledger import Place
from crash.load import RETRY
from history.events import History, Result, Send

TICK_SECONDS = 0.05
DELIVERY_SECONDS = 120
REQUEST_MS = 4_000
OUTAGE_MS = 60_000
"""What aiokafka waits for a leader. Then it drops a batch, also one with a sequence: an idempotent producer then gets
OutOfOrderSequenceNumber from there on."""
PADDING = "." * 200


class Manner(NamedTuple):
    """How a producer writes. `retried`: its library promises to deliver."""

    name: str
    acks: str = "all"
    idempotent: bool = False
    retried: bool = False

    @property
    def weak(self) -> bool:
        return self.acks == "1"


class Writer(Protocol):
    manner: Manner
    acked: int
    failed: int

    def stop(self) -> None:
        """Sends nothing more."""

    def finish(self) -> list[str]:
        """Waits for all answers; what was promised by the library and did not come."""


class Notes:
    """Of one writer: which records it sent, and what it was told of them."""

    def __init__(self, manner: Manner, places: Sequence[Place], history: History) -> None:
        self.manner = manner
        self.places = places
        self.history = history
        self.writer = manner.name
        """Whose order counts; another name from when late requests of the one before may still come."""
        self.acked = 0
        self.failed = 0
        self.epochs = 0
        """That its library began by itself."""
        self.errors: Counter[str] = Counter()
        """In the order in which they came first."""
        self.numbers = dict.fromkeys(places, 0)

    def send(self, place: Place) -> Send:
        number = self.numbers[place]
        self.numbers[place] = number + 1
        value = f"{self.manner.name}-{number}{PADDING}"
        return self.history.send(self.writer, place, value, weak=self.manner.weak, plain=not self.manner.idempotent)

    def epoch_begun(self) -> None:
        self.epochs += 1
        self.history.begin_epoch(self.writer)

    def told(self, send: Send, offset: int | None, error: object = None) -> None:
        """An error says nothing of whether it is there: an earlier try may have come through."""
        if error is None:
            self.acked += 1
            self.history.answer(send, Result.ACKED, offset)
        else:
            self.failed += 1
            self.errors[str(error)[:200]] += 1
            self.history.answer(send, Result.UNKNOWN)


class LibrdkafkaWriter:
    """One record for each partition at each tick."""

    def __init__(self, bootstrap: str, manner: Manner, places: Sequence[Place], history: History) -> None:
        self.manner = manner
        self.notes = Notes(manner, places, history)
        self.problems: list[str] = []
        self.stopping = threading.Event()
        lives = manner.idempotent or manner.retried
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": manner.acks,
            "enable.idempotence": manner.idempotent,
            "max.in.flight.requests.per.connection": 5 if manner.idempotent else 1,
            "message.timeout.ms": DELIVERY_SECONDS * 1000 if lives else 2 * REQUEST_MS,
            "retries": 1_000_000 if lives else 0,
            "request.timeout.ms": REQUEST_MS,
            "socket.timeout.ms": REQUEST_MS + 1_000,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 1_000,
            "error_cb": self.broke,
            **RETRY,
        }
        watch = EpochWatch(self.notes.epoch_begun) if manner.idempotent else None
        self.producer = Producer({**settings, **(EpochWatch.settings if watch else {})}, logger=watch)
        self.thread = threading.Thread(target=self.run, name=manner.name, daemon=True)
        self.thread.start()

    @property
    def acked(self) -> int:
        return self.notes.acked

    @property
    def failed(self) -> int:
        return self.notes.failed

    def broke(self, error: KafkaError) -> None:
        """Lost connections are the point; a fatal error is a broken promise."""
        if error.fatal():
            self.problems.append(f"{self.manner.name}: fatal: {error}")

    def run(self) -> None:
        while not self.stopping.is_set():
            until = time.monotonic() + TICK_SECONDS
            for place in self.notes.places:
                self.send(place)
            while (left := until - time.monotonic()) > 0:
                self.producer.poll(left)

    def send(self, place: Place) -> None:
        send = self.notes.send(place)
        told = partial(self.told, send)
        try:
            self.producer.produce(place.topic, send.value.encode(), partition=place.partition, on_delivery=told)
        except (BufferError, KafkaException) as error:  # it never left
            self.notes.told(send, None, error)
            self.producer.poll(TICK_SECONDS)

    def told(self, send: Send, error: KafkaError | None, message: Message) -> None:
        self.notes.told(send, None if error is not None else message.offset(), error)

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()

    def finish(self) -> list[str]:
        self.stop()
        left = self.producer.flush(DELIVERY_SECONDS)
        problems = [*self.problems]
        if left:
            problems.append(f"{self.manner.name}: {left} records were never answered")
        if self.failed and (self.manner.idempotent or self.manner.retried):
            problems.append(f"{self.manner.name}: {self.failed} records were not delivered: {dict(self.notes.errors)}")
        return problems

    def abandon(self) -> None:
        self.stop()
        self.producer.purge()


class AiokafkaWriter:
    """The same by aiokafka. It sends again whatever was not answered, so a plain one may write a record twice."""

    def __init__(self, bootstrap: str, manner: Manner, places: Sequence[Place], history: History) -> None:
        self.manner = manner._replace(retried=True)
        self.notes = Notes(self.manner, places, history)
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self.abandoned = False
        self.problems: list[str] = []
        self.waiting: set[asyncio.Future[Any]] = set()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), name=manner.name, daemon=True)
        self.thread.start()

    @property
    def acked(self) -> int:
        return self.notes.acked

    @property
    def failed(self) -> int:
        return self.notes.failed

    async def run(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all" if self.manner.acks == "all" else int(self.manner.acks),
            enable_idempotence=self.manner.idempotent,
            request_timeout_ms=OUTAGE_MS,
            retry_backoff_ms=50,
            metadata_max_age_ms=1_000,
            linger_ms=5,
        )
        await producer.start()
        try:
            while not self.stopping.is_set():
                until = time.monotonic() + TICK_SECONDS
                for place in self.notes.places:
                    await self.send(producer, place)
                await asyncio.sleep(max(0.0, until - time.monotonic()))
            deadline = time.monotonic() + (0 if self.abandoned else DELIVERY_SECONDS)
            while self.waiting and time.monotonic() < deadline:
                await asyncio.wait(self.waiting, timeout=1.0)
        finally:
            with suppress(TimeoutError, errors.KafkaError):  # what it still holds is not waited for
                await asyncio.wait_for(producer.stop(), 5.0)

    async def send(self, producer: AIOKafkaProducer, place: Place) -> None:
        send = self.notes.send(place)
        try:
            future = await asyncio.wait_for(
                producer.send(place.topic, send.value.encode(), partition=place.partition), DELIVERY_SECONDS
            )
        except (errors.KafkaError, TimeoutError) as error:  # the record may have left
            self.notes.told(send, None, error)
            return
        self.waiting.add(future)
        future.add_done_callback(partial(self.told, send))

    def told(self, send: Send, future: asyncio.Future[Any]) -> None:
        self.waiting.discard(future)
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            self.notes.told(send, None, error or "given up")
        else:
            self.notes.told(send, future.result().offset)

    def stop(self) -> None:
        self.stopping.set()

    def finish(self) -> list[str]:
        self.stop()
        self.thread.join(DELIVERY_SECONDS + 30)
        problems = [*self.problems]
        if self.thread.is_alive() or self.waiting:
            problems.append(f"{self.manner.name}: {len(self.waiting)} records were never answered")
        if self.failed and self.manner.idempotent:
            problems.append(f"{self.manner.name}: {self.failed} records were not delivered: {dict(self.notes.errors)}")
        return problems

    def abandon(self) -> None:
        self.abandoned = True
        self.stop()
        self.thread.join(60)
