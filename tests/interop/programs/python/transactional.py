"""Transactions of a Python client in a process of its own (the lines: tests/interop/clients/process.py).

python transactional.py librdkafka|aiokafka|kafka_python. The ops are those of the other programs: txn.open, txn.send,
txn.end, txn.close, txn.read, txn.transform; the first two also have the steps of a transformer: txn.follow, txn.poll,
txn.offsets, txn.rewind.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
import uuid
import warnings
from typing import Any, Protocol

SECONDS = 20.0
# When every broker is away, librdkafka 2.16 begins anew and forgets the handle that a transaction's offsets wait for:
# send_offsets_to_transaction then never returns.
NEVER_ANEW = {"metadata.recovery.strategy": "none"}

Ask = dict[str, Any]
Found = list[tuple[int, int, str]]


class Refused(Exception):
    """The client's own error, with Kafka's code if it has one."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Transactor(Protocol):
    async def open(self, ask: Ask) -> None: ...

    async def send(self, ask: Ask) -> list[int]: ...

    async def end(self, ask: Ask) -> None: ...

    async def close(self, ask: Ask) -> None: ...

    async def read(self, ask: Ask) -> Found: ...

    async def transform(self, ask: Ask) -> int: ...

    async def follow(self, ask: Ask) -> None: ...

    async def poll(self, ask: Ask) -> Found: ...

    async def rewind(self, ask: Ask) -> None: ...

    async def offsets(self, ask: Ask) -> None: ...


class LibrdkafkaTransactor:
    FENCED = -144  # librdkafka's name for whatever says that a newer instance exists

    def __init__(self) -> None:
        self.producers: dict[str, Any] = {}
        self.begun: set[str] = set()
        self.readers: dict[str, Any] = {}

    def producer(self, ask: Ask, timeout_ms: int) -> Any:
        from confluent_kafka import Producer

        return Producer(
            {
                "bootstrap.servers": ask["bootstrap"],
                "transactional.id": ask["transactional_id"],
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "socket.timeout.ms": min(timeout_ms, 5_000),
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                **NEVER_ANEW,
            },
            logger=logging.getLogger("librdkafka"),  # else it tells on stderr whenever a producer is fenced
        )

    async def open(self, ask: Ask) -> None:
        producer = self.producer(ask, ask["timeout_ms"])
        self.told(producer.init_transactions)
        self.producers[ask["producer"]] = producer

    def told(self, call: Any) -> None:
        """What may be asked again is asked again."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + SECONDS
        while True:
            try:
                call(5.0)
                return
            except KafkaException as problem:
                error = problem.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise Refused(90 if error.code() == self.FENCED else error.code(), str(error)) from problem

    async def send(self, ask: Ask) -> list[int]:
        producer = self.producers[ask["producer"]]
        if ask["producer"] not in self.begun:
            producer.begin_transaction()
            self.begun.add(ask["producer"])
        failures: list[Any] = []
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                failures.append(error)

        for value in ask["values"]:
            producer.produce(ask["topic"], value.encode(), partition=ask["partition"], on_delivery=delivered)
        assert producer.flush(SECONDS) == 0, "not everything was sent in time"
        if failures:
            raise Refused(failures[0].code(), str(failures[0]))
        return offsets

    async def end(self, ask: Ask) -> None:
        producer = self.producers[ask["producer"]]
        self.begun.discard(ask["producer"])
        self.told(producer.commit_transaction if ask["commit"] else producer.abort_transaction)

    async def close(self, ask: Ask) -> None:
        self.begun.discard(ask["producer"])
        del self.producers[ask["producer"]]

    async def read(self, ask: Ask) -> Found:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": ask["bootstrap"],
                "group.id": str(uuid.uuid4()),
                "isolation.level": "read_committed" if ask["committed"] else "read_uncommitted",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        partitions = consumer.list_topics(ask["topic"], SECONDS).topics[ask["topic"]].partitions
        consumer.assign([TopicPartition(ask["topic"], partition, 0) for partition in partitions])
        found: Found = []
        rest = set(partitions)
        deadline = time.monotonic() + SECONDS
        while rest:
            assert time.monotonic() < deadline, f"no end of partitions {rest} in time"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                rest.discard(message.partition())
            else:
                found.append((message.partition(), message.offset(), message.value().decode()))
        consumer.close()
        return found

    def consumer(self, ask: Ask, **options: Any) -> Any:
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": ask["bootstrap"],
            "group.id": ask["group"] or str(uuid.uuid4()),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "socket.timeout.ms": 5_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        return Consumer({**settings, **NEVER_ANEW, **options})

    async def follow(self, ask: Ask) -> None:
        from confluent_kafka import TopicPartition

        consumer = self.consumer(
            ask, **{"session.timeout.ms": 4_000, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 100}
        )
        if ask["group"] is None:
            partitions = consumer.list_topics(ask["topic"], SECONDS).topics[ask["topic"]].partitions
            consumer.assign([TopicPartition(ask["topic"], partition, 0) for partition in partitions])
        else:
            # With a callback partitions come and go only inside of a poll, not between it and its offsets.
            consumer.subscribe([ask["topic"]], on_revoke=lambda *_: None)
        self.readers[ask["reader"]] = consumer

    async def poll(self, ask: Ask) -> Found:
        messages = self.readers[ask["reader"]].consume(ask["count"], 0.2)
        return [
            (message.partition(), message.offset(), message.value().decode())
            for message in messages
            if message.error() is None
        ]

    async def rewind(self, ask: Ask) -> None:
        self.go_back(self.readers[ask["reader"]], time.monotonic() + SECONDS)

    async def offsets(self, ask: Ask) -> None:
        from confluent_kafka import TopicPartition

        producer = self.producers[ask["producer"]]
        offsets = [TopicPartition(ask["topic"], partition, end) for partition, end in ask["ends"]]
        metadata = self.readers[ask["reader"]].consumer_group_metadata()
        self.told(lambda seconds: producer.send_offsets_to_transaction(offsets, metadata, seconds))

    async def transform(self, ask: Ask) -> int:
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self.consumer(ask)
        consumer.subscribe([ask["source"]])
        partitions = consumer.list_topics(ask["source"], SECONDS).topics[ask["source"]].partitions
        places = [TopicPartition(ask["source"], partition) for partition in partitions]
        producer: Any = None
        deadline = time.monotonic() + ask["seconds"]
        try:
            while time.monotonic() < deadline:
                try:
                    if producer is None:
                        producer = self.producer(ask, 10_000)
                        self.told(producer.init_transactions)
                    messages = consumer.consume(ask["batch"], 0.2)
                    records = [message for message in messages if message.error() is None]
                    if not records:
                        done = sum(max(place.offset, 0) for place in consumer.committed(places, 5))
                        if done >= ask["count"]:
                            return done
                        continue
                    producer.begin_transaction()
                    ends: dict[int, int] = {}
                    for record in records:
                        producer.produce(ask["target"], record.value(), partition=record.partition())
                        ends[record.partition()] = record.offset() + 1
                    offsets = [TopicPartition(ask["source"], partition, end) for partition, end in ends.items()]
                    metadata = consumer.consumer_group_metadata()
                    self.told(lambda seconds: producer.send_offsets_to_transaction(offsets, metadata, seconds))  # noqa: B023
                    self.told(producer.commit_transaction)
                except (Refused, KafkaException):
                    # Whether it was committed is not known, or it was not: the group's offsets tell.
                    producer = None
                    self.go_back(consumer, deadline)
        finally:
            consumer.close()
        raise AssertionError("not all was transformed in time")

    def go_back(self, consumer: Any, deadline: float) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        while time.monotonic() < deadline:
            try:
                for place in consumer.committed(consumer.assignment(), 5):
                    consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
                return
            except KafkaException:
                time.sleep(0.1)
        raise AssertionError("the group's offsets were not told in time")


class AiokafkaTransactor:
    def __init__(self) -> None:
        self.producers: dict[str, Any] = {}
        self.begun: set[str] = set()
        self.readers: dict[str, Any] = {}
        self.groups: dict[str, str] = {}
        self.idle = asyncio.Event()

    async def producer(self, ask: Ask, timeout_ms: int) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=ask["bootstrap"],
            transactional_id=ask["transactional_id"],
            transaction_timeout_ms=timeout_ms,
            request_timeout_ms=5_000,
        )
        await asyncio.wait_for(producer.start(), SECONDS)
        return producer

    async def open(self, ask: Ask) -> None:
        self.producers[ask["producer"]] = await self.producer(ask, ask["timeout_ms"])

    async def send(self, ask: Ask) -> list[int]:
        producer = self.producers[ask["producer"]]
        if ask["producer"] not in self.begun:
            await producer.begin_transaction()
            self.begun.add(ask["producer"])
        sent = [
            await producer.send(ask["topic"], value.encode(), partition=ask["partition"]) for value in ask["values"]
        ]
        return [told.offset for told in await asyncio.wait_for(asyncio.gather(*sent), SECONDS)]

    async def end(self, ask: Ask) -> None:
        producer = self.producers[ask["producer"]]
        self.begun.discard(ask["producer"])
        await asyncio.wait_for(
            producer.commit_transaction() if ask["commit"] else producer.abort_transaction(), SECONDS
        )

    async def close(self, ask: Ask) -> None:
        self.begun.discard(ask["producer"])
        await self.drop(self.producers.pop(ask["producer"]))

    async def drop(self, client: Any) -> None:
        """Without waiting for an end that may not come."""
        try:
            await asyncio.wait_for(client.stop(), 1.0)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001
            return

    async def read(self, ask: Ask) -> Found:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=ask["bootstrap"],
            isolation_level="read_committed" if ask["committed"] else "read_uncommitted",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        found: Found = []
        try:
            partitions = await consumer._client._wait_on_metadata(ask["topic"])
            places = [TopicPartition(ask["topic"], partition) for partition in partitions]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            await consumer.seek_to_beginning(*places)
            async with asyncio.timeout(SECONDS):
                while any([await consumer.position(place) < end for place, end in ends.items()]):
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += [(record.partition, record.offset, record.value.decode()) for record in records]
        finally:
            await consumer.stop()
        return found

    def consumer(self, ask: Ask, *topics: str, **options: Any) -> Any:
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=ask["bootstrap"],
            group_id=ask["group"],
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=5_000,
            fetch_max_wait_ms=100,
            **options,
        )

    async def follow(self, ask: Ask) -> None:
        from aiokafka import TopicPartition

        if ask["group"] is None:
            consumer = self.consumer(ask)
            await consumer.start()
            partitions = await consumer._client._wait_on_metadata(ask["topic"])
            consumer.assign([TopicPartition(ask["topic"], partition) for partition in partitions])
        else:
            consumer = self.consumer(ask, session_timeout_ms=4_000, heartbeat_interval_ms=500)
            await consumer.start()
            consumer.subscribe([ask["topic"]], listener=self.patience())
            self.groups[ask["reader"]] = ask["group"]
        self.readers[ask["reader"]] = consumer

    def patience(self) -> Any:
        """Lets a rebalance wait until what was polled is committed or given up: offsets are read again in it, and
        nothing else would keep the transaction from being committed afterwards."""
        from aiokafka.abc import ConsumerRebalanceListener

        class Patience(ConsumerRebalanceListener):
            def __init__(self, idle: asyncio.Event) -> None:
                self.idle = idle

            async def on_partitions_revoked(self, revoked: Any) -> None:
                await self.idle.wait()

            def on_partitions_assigned(self, assigned: Any) -> None:
                return

        return Patience(self.idle)

    async def poll(self, ask: Ask) -> Found:
        self.idle.set()
        fetched = await self.readers[ask["reader"]].getmany(timeout_ms=200, max_records=ask["count"])
        if any(fetched.values()):
            self.idle.clear()
        return [(record.partition, record.offset, record.value.decode()) for got in fetched.values() for record in got]

    async def rewind(self, ask: Ask) -> None:
        self.idle.set()
        await self.go_back(self.readers[ask["reader"]], time.monotonic() + SECONDS)

    async def offsets(self, ask: Ask) -> None:
        from aiokafka import TopicPartition

        offsets = {TopicPartition(ask["topic"], partition): end for partition, end in ask["ends"]}
        told = self.producers[ask["producer"]].send_offsets_to_transaction(offsets, self.groups[ask["reader"]])
        await asyncio.wait_for(told, SECONDS)

    async def transform(self, ask: Ask) -> int:
        from aiokafka import TopicPartition
        from aiokafka.errors import KafkaError

        consumer = self.consumer(ask, ask["source"])
        await consumer.start()
        partitions = await consumer._client._wait_on_metadata(ask["source"])
        producer: Any = None
        deadline = time.monotonic() + ask["seconds"]
        try:
            while time.monotonic() < deadline:
                try:
                    if producer is None:
                        # Only now is the end of the last transaction decided: aiokafka does not ask for stable offsets.
                        producer = await self.producer(ask, 10_000)
                        await self.go_back(consumer, deadline)
                    fetched = await consumer.getmany(timeout_ms=200, max_records=ask["batch"])
                    if not any(fetched.values()):
                        places = [TopicPartition(ask["source"], partition) for partition in partitions]
                        done = sum([await consumer.committed(place) or 0 for place in places])
                        if done >= ask["count"]:
                            return done
                        continue
                    await producer.begin_transaction()
                    for records in fetched.values():
                        for record in records:
                            await producer.send(ask["target"], record.value, partition=record.partition)
                    offsets = {place: records[-1].offset + 1 for place, records in fetched.items() if records}
                    async with asyncio.timeout(SECONDS):
                        await producer.send_offsets_to_transaction(offsets, ask["group"])
                        await producer.commit_transaction()
                except (KafkaError, TimeoutError, AssertionError):
                    # Whether it was committed is not known, or it was not: the group's offsets tell.
                    if producer is not None:
                        await self.drop(producer)
                        producer = None
        finally:
            if producer is not None:
                await self.drop(producer)
            await self.drop(consumer)  # its stop may be cancelled by a fetch of its own, when the broker was away
        raise AssertionError("not all was transformed in time")

    async def go_back(self, consumer: Any, deadline: float) -> None:
        from aiokafka.errors import KafkaError

        while time.monotonic() < deadline:
            try:
                for place in consumer.assignment():
                    consumer.seek(place, await consumer.committed(place) or 0)
                return
            except KafkaError:
                await asyncio.sleep(0.1)
        raise AssertionError("the group's offsets were not told in time")


class KafkaPythonTransactor:
    def __init__(self) -> None:
        self.producers: dict[str, Any] = {}
        self.begun: set[str] = set()

    def producer(self, ask: Ask, timeout_ms: int) -> Any:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=ask["bootstrap"],
            transactional_id=ask["transactional_id"],
            transaction_timeout_ms=timeout_ms,
            request_timeout_ms=5_000,
            delivery_timeout_ms=int(SECONDS * 1000),
            max_block_ms=int(SECONDS * 1000),
            reconnect_backoff_max_ms=200,
            linger_ms=5,
        )
        producer.init_transactions()
        return producer

    async def open(self, ask: Ask) -> None:
        self.producers[ask["producer"]] = self.producer(ask, ask["timeout_ms"])

    async def send(self, ask: Ask) -> list[int]:
        producer = self.producers[ask["producer"]]
        if ask["producer"] not in self.begun:
            producer.begin_transaction()
            self.begun.add(ask["producer"])
        sent = [producer.send(ask["topic"], value.encode(), partition=ask["partition"]) for value in ask["values"]]
        producer.flush(SECONDS)
        return [future.get(timeout=SECONDS).offset for future in sent]

    async def end(self, ask: Ask) -> None:
        producer = self.producers[ask["producer"]]
        self.begun.discard(ask["producer"])
        if ask["commit"]:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    async def close(self, ask: Ask) -> None:
        self.begun.discard(ask["producer"])
        self.producers.pop(ask["producer"]).close(timeout=0)

    def consumer(self, ask: Ask, **options: Any) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(
            bootstrap_servers=ask["bootstrap"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            reconnect_backoff_max_ms=200,
            **options,
        )

    async def read(self, ask: Ask) -> Found:
        from kafka import TopicPartition

        consumer = self.consumer(ask, isolation_level="read_committed" if ask["committed"] else "read_uncommitted")
        found: Found = []
        try:
            places = [TopicPartition(ask["topic"], number) for number in consumer.partitions_for_topic(ask["topic"])]
            consumer.assign(places)
            ends = consumer.end_offsets(places)
            consumer.seek_to_beginning(*places)
            deadline = time.monotonic() + SECONDS
            while any(consumer.position(place) < end for place, end in ends.items()):
                assert time.monotonic() < deadline, "no end in time"
                for records in consumer.poll(timeout_ms=200).values():
                    found += [(record.partition, record.offset, record.value.decode()) for record in records]
        finally:
            consumer.close()
        return found

    async def transform(self, ask: Ask) -> int:
        from kafka import OffsetAndMetadata, TopicPartition
        from kafka.errors import KafkaError

        consumer = self.consumer(ask, group_id=ask["group"], isolation_level="read_committed")
        places = [TopicPartition(ask["source"], number) for number in consumer.partitions_for_topic(ask["source"])]
        consumer.subscribe([ask["source"]])
        producer: Any = None
        deadline = time.monotonic() + ask["seconds"]
        try:
            while time.monotonic() < deadline:
                try:
                    if producer is None:
                        # Only now is the end of the last transaction decided, and the group's offsets tell it.
                        producer = self.producer(ask, 10_000)
                        self.go_back(consumer, deadline)
                    fetched = consumer.poll(timeout_ms=1_000, max_records=ask["batch"])
                    if not fetched:
                        done = sum(consumer.committed(place) or 0 for place in places)
                        if done >= ask["count"]:
                            return done
                        continue
                    producer.begin_transaction()
                    for records in fetched.values():
                        for record in records:
                            producer.send(ask["target"], record.value, partition=record.partition)
                    offsets = {
                        place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in fetched.items()
                    }
                    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                    producer.commit_transaction()
                except KafkaError:
                    if producer is not None:
                        producer.close(timeout=0)
                        producer = None
        finally:
            consumer.close(autocommit=False)
        raise AssertionError("not all was transformed in time")

    def go_back(self, consumer: Any, deadline: float) -> None:
        from kafka.errors import KafkaError

        while time.monotonic() < deadline:
            try:
                for place in consumer.assignment():
                    consumer.seek(place, consumer.committed(place) or 0)
                return
            except KafkaError:
                time.sleep(0.1)
        raise AssertionError("the group's offsets were not told in time")


async def answer(transactor: Transactor, ask: Ask) -> dict[str, Any]:
    try:
        return {"answer": await getattr(transactor, ask["op"].removeprefix("txn."))(ask)}
    except Refused as refusal:
        return {"refused": [refusal.code, str(refusal)]}
    except Exception as problem:  # noqa: BLE001
        # aiokafka has a class of its own for a fenced producer, without the code.
        code = 90 if type(problem).__name__ == "ProducerFenced" else getattr(problem, "errno", None)
        if isinstance(code, int) and code > 0 and type(problem).__module__.startswith(("aiokafka", "kafka")):
            return {"refused": [code, repr(problem)]}
        return {"broken": traceback.format_exc()}


async def main(transactor: Transactor) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        sys.stdout.write(json.dumps(await answer(transactor, json.loads(line))) + "\n")
        sys.stdout.flush()


logging.disable(logging.CRITICAL)  # that a broker is away is what the test is about
warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, about how it reads its schemas
KINDS = {"librdkafka": LibrdkafkaTransactor, "aiokafka": AiokafkaTransactor, "kafka_python": KafkaPythonTransactor}
asyncio.run(main(KINDS[sys.argv[1]]()))
