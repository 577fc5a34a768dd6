"""Producers and consumers of two libraries with the settings that they are shipped with, as most people use them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer

TICK_SECONDS = 0.02
POLL_SECONDS = 0.1
FLUSH_SECONDS = 120.0  # only a failure uses it up


class ShippedClient(Protocol):
    """`count`: records that were acknowledged, or read."""

    problems: list[str]

    @property
    def count(self) -> int: ...

    def finish(self) -> None:
        """Ends it; nothing is on its way any more."""


class RdkProducer:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.problems: list[str] = []
        self.acked: set[str] = set()
        self.topic = topic
        self.stopping = threading.Event()
        self.producer = Producer({"bootstrap.servers": bootstrap, "error_cb": self.broke})
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @property
    def count(self) -> int:
        return len(self.acked)

    def broke(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"fatal: {error}")

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            value = f"rdk {number}"
            number += 1
            self.producer.produce(self.topic, value.encode(), str(number).encode(), on_delivery=self.delivered)
            self.producer.poll(TICK_SECONDS)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked.add((message.value() or b"").decode())
        else:
            self.problems.append(f"not delivered: {error}")

    def finish(self) -> None:
        self.stopping.set()
        self.thread.join()
        left = self.producer.flush(FLUSH_SECONDS)
        if left:
            self.problems.append(f"{left} records were never answered")


class RdkConsumer:
    """A member of a group that commits by itself, as the library does."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.problems: list[str] = []
        self.read: Counter[str] = Counter()
        self.stopping = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "rdk",
                "auto.offset.reset": "earliest",
                "error_cb": self.broke,
            }
        )
        self.consumer.subscribe([topic])
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @property
    def count(self) -> int:
        return len(self.read)

    def broke(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"fatal: {error}")

    def run(self) -> None:
        while not self.stopping.is_set():
            message = self.consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.read[(message.value() or b"").decode()] += 1
            elif error.fatal() or not error.retriable():
                self.problems.append(f"{error.name()}: {error}")
        self.consumer.close()

    def finish(self) -> None:
        self.stopping.set()
        self.thread.join()


class AiokafkaClient:
    """Its producer and its consumer run on a loop and a thread of their own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.problems: list[str] = []
        self.bootstrap = bootstrap
        self.topic = topic
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)
        self.thread.start()

    async def run(self) -> None:
        try:
            await self.live()
        except Exception as error:  # noqa: BLE001 - whatever its user would be given
            self.problems.append(f"{type(error).__name__}: {error}")

    async def live(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.stopping.set()
        self.thread.join(2 * FLUSH_SECONDS)
        if self.thread.is_alive():
            self.problems.append("did not end")


class AioProducer(AiokafkaClient):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acked: set[str] = set()
        super().__init__(bootstrap, topic)

    @property
    def count(self) -> int:
        return len(self.acked)

    async def live(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer, asyncio.TaskGroup() as group:
            number = 0
            while not self.stopping.is_set():
                group.create_task(self.send(producer, number))
                number += 1
                await asyncio.sleep(TICK_SECONDS)

    async def send(self, producer: AIOKafkaProducer, number: int) -> None:
        value = f"aio {number}"
        try:
            await producer.send_and_wait(self.topic, value.encode(), key=str(number).encode())
        except Exception as error:  # noqa: BLE001
            self.problems.append(f"not delivered: {type(error).__name__}: {error}")
        else:
            self.acked.add(value)


class AioConsumer(AiokafkaClient):
    """A member of a group, too."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.read: Counter[str] = Counter()
        super().__init__(bootstrap, topic)

    @property
    def count(self) -> int:
        return len(self.read)

    async def live(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic, bootstrap_servers=self.bootstrap, group_id="aio", auto_offset_reset="earliest"
        )
        async with consumer:
            while not self.stopping.is_set():
                with suppress(TimeoutError):
                    message = await asyncio.wait_for(consumer.getone(), POLL_SECONDS)
                    self.read[(message.value or b"").decode()] += 1


class ShippedClients:
    """One of each."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.producers = [RdkProducer(bootstrap, topic), AioProducer(bootstrap, topic)]
        self.consumers = [RdkConsumer(bootstrap, topic), AioConsumer(bootstrap, topic)]

    @property
    def all(self) -> list[ShippedClient]:
        return [*self.producers, *self.consumers]

    @property
    def acked(self) -> set[str]:
        return {value for producer in self.producers for value in producer.acked}

    def problems(self) -> list[str]:
        return [f"{type(each).__name__}: {problem}" for each in self.all for problem in each.problems]

    def counts(self) -> list[int]:
        return [each.count for each in self.all]

    def wait_until_all_go_on(self, more: int) -> None:
        """Or until one of them has failed."""
        wanted = [count + more for count in self.counts()]
        deadline = time.monotonic() + FLUSH_SECONDS
        while not self.problems() and any(now < want for now, want in zip(self.counts(), wanted, strict=True)):
            assert time.monotonic() < deadline, f"{self.counts()} instead of {wanted}"
            time.sleep(POLL_SECONDS)

    def stop_producers(self) -> None:
        for producer in self.producers:
            producer.finish()

    def wait_until_all_is_read(self) -> None:
        acked = self.acked
        deadline = time.monotonic() + FLUSH_SECONDS
        while not self.problems() and (missing := [acked - each.read.keys() for each in self.consumers]) != [set()] * 2:
            assert time.monotonic() < deadline, f"not read: {[len(each) for each in missing]} of {len(acked)}"
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        for each in self.all:
            each.finish()
