"""librdkafka through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
    libversion,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from interop.clients.contract import REPLICAS, Got, Refused, Sent

SECONDS = 60.0


def answer(future: Future[Any]) -> Any:
    return refuse_or(lambda: future.result(SECONDS))


def refuse_or(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KafkaException as problem:
        error = problem.args[0]
        raise Refused(error.code(), error.str()) from None


def got(message: Message) -> Got:
    kind, timestamp = message.timestamp()
    return Got(
        message.partition(),
        message.offset(),
        timestamp,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        kind == TIMESTAMP_LOG_APPEND_TIME,
    )


class LibrdkafkaReader:
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.topic = topic

    def take(self, count: int, seconds: float = 60.0) -> list[Got]:
        taken: list[Got] = []
        deadline = time.monotonic() + seconds
        while len(taken) < count and (left := deadline - time.monotonic()) > 0:
            message = self.consumer.poll(left)
            if message is None:
                continue
            if message.error() is not None:
                raise Refused(message.error().code(), message.error().str())
            taken.append(got(message))
        return taken

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(TopicPartition(self.topic, partition, offset))

    def close(self) -> None:
        self.consumer.close()


class LibrdkafkaClient:
    name: ClassVar[str] = "librdkafka"
    lacks: ClassVar[Mapping[str, str]] = {}

    def __init__(self, bootstrap: str) -> None:
        self.version = libversion()[0]
        self.common = {"bootstrap.servers": bootstrap, "log_level": 2}
        self.admin = AdminClient(self.common)

    def consumer(self, **options: Any) -> Consumer:
        settings = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error", **self.common}
        return Consumer({**settings, **options})

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        size_max: int = 1_000_000,
    ) -> list[int]:
        producer = Producer(
            {
                **self.common,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "message.max.bytes": size_max,
                "linger.ms": 5,
                "message.timeout.ms": int(SECONDS * 1000),
                "allow.auto.create.topics": True,
            }
        )
        offsets: list[int] = []
        refusals: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refusals.append(error)
            elif message.offset() is not None:
                offsets.append(message.offset())

        for record in records:
            options: dict[str, Any] = {"headers": list(record.headers)} if record.headers else {}
            if record.timestamp is not None:
                options["timestamp"] = record.timestamp
            if record.partition is not None:
                options["partition"] = record.partition
            while True:
                try:
                    producer.produce(topic, record.value, record.key, on_delivery=delivered, **options)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(SECONDS) == 0, "not every record was delivered in time"
        if refusals:
            raise Refused(refusals[0].code(), refusals[0].str())
        return offsets

    def read(
        self, topic: str, partitions: Iterable[int] = (0,), start: int = 0, size_max: int = 1_048_576
    ) -> list[Got]:
        consumer = self.consumer(**{"enable.partition.eof": True, "max.partition.fetch.bytes": size_max})
        try:
            wanted = list(partitions)
            first = OFFSET_BEGINNING if start == -2 else start
            consumer.assign([TopicPartition(topic, partition, first) for partition in wanted])
            records: list[Got] = []
            ended: set[int] = set()
            deadline = time.monotonic() + SECONDS
            while len(ended) < len(wanted):
                assert time.monotonic() < deadline, f"{len(wanted) - len(ended)} partitions not read to their end"
                for message in consumer.consume(1000, 0.1):
                    error = message.error()
                    if error is None:
                        records.append(got(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
                    else:
                        raise Refused(error.code(), error.str())
            return records
        finally:
            consumer.close()

    def reader(self, topic: str, partition: int, start: int, wait_ms: int) -> LibrdkafkaReader:
        consumer = self.consumer(**{"fetch.wait.max.ms": wait_ms, "fetch.error.backoff.ms": 50})
        consumer.assign([TopicPartition(topic, partition, OFFSET_END if start == -1 else start)])
        return LibrdkafkaReader(consumer, topic)

    def partitions(self, topic: str) -> int:
        known = refuse_or(lambda: self.admin.list_topics(timeout=SECONDS)).topics
        return len(known[topic].partitions) if topic in known else 0

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self.consumer()
        try:
            low, high = refuse_or(lambda: consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS))
            return low, high
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self.consumer()
        try:
            asked = [TopicPartition(topic, partition, timestamp)]
            found = refuse_or(lambda: consumer.offsets_for_times(asked, SECONDS))[0]
            if found.error is not None:
                raise Refused(found.error.code(), found.error.str())
            return None if found.offset == OFFSET_END else int(found.offset)
        finally:
            consumer.close()

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, REPLICAS, config=dict(configs or {}))
        answer(self.admin.create_topics([new], request_timeout=SECONDS)[topic])

    def delete_topic(self, topic: str) -> None:
        answer(self.admin.delete_topics([topic], request_timeout=SECONDS)[topic])

    def add_partitions(self, topic: str, total: int) -> None:
        answer(self.admin.create_partitions([NewPartitions(topic, total)], request_timeout=SECONDS)[topic])

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = answer(self.admin.describe_configs([resource], request_timeout=SECONDS)[resource])
        return {name: entry.value for name, entry in entries.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self.alter(ConfigResource.Type.TOPIC, topic, configs)

    def alter_broker(self, node_id: str, configs: Mapping[str, str]) -> None:
        self.alter(ConfigResource.Type.BROKER, node_id, configs)

    def alter(self, kind: Any, name: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            for setting, value in configs.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        answer(self.admin.incremental_alter_configs([resource], request_timeout=SECONDS)[resource])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        asked = TopicPartition(topic, partition, before)
        deleted = answer(next(iter(self.admin.delete_records([asked], request_timeout=SECONDS).values())))
        return int(deleted.low_watermark)

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = self.consumer(**{"group.id": group})
        try:
            place = TopicPartition(topic, partition, offset)
            for result in refuse_or(lambda: consumer.commit(offsets=[place], asynchronous=False)):
                if result.error is not None:
                    raise Refused(result.error.code(), result.error.str())
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        consumer = self.consumer(**{"group.id": group})
        try:
            found = refuse_or(lambda: consumer.committed([TopicPartition(topic, partition)], SECONDS))[0]
            if found.error is not None:
                raise Refused(found.error.code(), found.error.str())
            return int(found.offset) if found.offset >= 0 else None
        finally:
            consumer.close()

    def close(self) -> None:
        return None
