"""kafka-python: synchronous, a new producer, consumer or admin client for each question."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

with warnings.catch_warnings():
    # It reads each of its schemas with a function that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError

from interop.clients.contract import REPLICAS, Got, Refused, Sent

SECONDS = 60.0
LOG_APPEND_TIME = 1


def got(record: Any) -> Got:
    return Got(
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple(record.headers),
        record.timestamp_type == LOG_APPEND_TIME,
    )


def refuse_or(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KafkaError as problem:
        # a time-out of the client itself has no code of the protocol
        raise Refused(getattr(problem, "errno", -1), f"{type(problem).__name__}: {problem}") from None


class KafkaPythonReader:
    def __init__(self, consumer: Any, topic: str) -> None:
        self.consumer = consumer
        self.topic = topic
        self.waiting: list[Got] = []

    def take(self, count: int, seconds: float = 60.0) -> list[Got]:
        deadline = time.monotonic() + seconds
        while len(self.waiting) < count and (left := deadline - time.monotonic()) > 0:
            for batch in refuse_or(lambda left=left: self.consumer.poll(timeout_ms=int(left * 1000))).values():
                self.waiting.extend(got(record) for record in batch)
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def seek(self, partition: int, offset: int) -> None:
        self.waiting.clear()
        self.consumer.seek(TopicPartition(self.topic, partition), offset)

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonClient:
    name: ClassVar[str] = "kafka_python"
    lacks: ClassVar[Mapping[str, str]] = {
        "null header": "its producer accepts only bytes as a header's value",
        "consumer protocol": "it has only the classic protocol",
        "describe error": "describe_configs hides the broker's error and returns nothing",
    }

    def __init__(self, bootstrap: str) -> None:
        self.version = kafka.__version__
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=int(SECONDS * 1000))

    def close(self) -> None:
        self.admin.close()

    def consumer(self, **options: Any) -> Any:
        settings = {"enable_auto_commit": False, "auto_offset_reset": "none", **options}
        return KafkaConsumer(bootstrap_servers=self.bootstrap, **settings)

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
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all" if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=size_max,
            linger_ms=5,
            delivery_timeout_ms=int(SECONDS * 1000),
            request_timeout_ms=int(SECONDS * 500),
        )

        def send_all() -> list[int]:
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(SECONDS)
            told = [future.get(timeout=SECONDS).offset for future in sent]
            return [offset for offset in told if offset is not None and offset >= 0]

        try:
            offsets: list[int] = refuse_or(send_all)
            return offsets
        finally:
            producer.close(timeout=5)

    def read(
        self, topic: str, partitions: Iterable[int] = (0,), start: int = 0, size_max: int = 1_048_576
    ) -> list[Got]:
        consumer = self.consumer(max_partition_fetch_bytes=size_max, fetch_max_wait_ms=100)
        try:
            places = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(places)
            ends = refuse_or(lambda: consumer.end_offsets(places))
            starts = refuse_or(lambda: consumer.beginning_offsets(places)) if start == -2 else {}
            for place in places:
                consumer.seek(place, starts.get(place, start))
            records: list[Got] = []
            left = {place for place in places if starts.get(place, start) < ends[place]}
            deadline = time.monotonic() + SECONDS
            while left:
                assert time.monotonic() < deadline, f"{len(left)} partitions not read to their end"
                for place, batch in refuse_or(lambda: consumer.poll(timeout_ms=100)).items():
                    records.extend(got(record) for record in batch)
                    if batch[-1].offset + 1 >= ends[place]:
                        left.discard(place)
            return records
        finally:
            consumer.close()

    def reader(self, topic: str, partition: int, start: int, wait_ms: int) -> KafkaPythonReader:
        consumer = self.consumer(fetch_max_wait_ms=wait_ms, request_timeout_ms=wait_ms + 10_000)
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        if start == -1:
            consumer.seek_to_end(place)
        else:
            consumer.seek(place, start)
        return KafkaPythonReader(consumer, topic)

    def partitions(self, topic: str) -> int:
        for known in refuse_or(self.admin.describe_topics):
            if known["name"] == topic:
                return len(known["partitions"])
        return 0

    def ask(self, question: Callable[[Any], Any], **options: Any) -> Any:
        consumer = self.consumer(**options)
        try:
            return refuse_or(lambda: question(consumer))
        finally:
            consumer.close()

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        low, high = self.ask(lambda consumer: (consumer.beginning_offsets([place]), consumer.end_offsets([place])))
        return low[place], high[place]

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self.ask(lambda consumer: consumer.offsets_for_times({place: timestamp}))[place]
        return None if found is None else int(found.offset)

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = {"num_partitions": partitions, "replication_factor": REPLICAS, "configs": dict(configs or {})}
        refuse_or(lambda: self.admin.create_topics({topic: new}))

    def delete_topic(self, topic: str) -> None:
        refuse_or(lambda: self.admin.delete_topics([topic]))

    def add_partitions(self, topic: str, total: int) -> None:
        refuse_or(lambda: self.admin.create_partitions({topic: total}))

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        entries = refuse_or(lambda: self.admin.describe_configs([resource], config_filter="all"))["topic"][topic]
        return {name: entry["value"] for name, entry in entries.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        # The client refuses names it does not find in DescribeConfigs; here the broker is to do it.
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        said = refuse_or(lambda: self.admin.alter_configs([resource], raise_on_unknown=False))["topic"][topic]
        if said != "OK":
            code = re.match(r"\[Error (\d+)\]", said)
            raise Refused(int(code[1]) if code else -1, said)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return int(refuse_or(lambda: self.admin.delete_records({place: before}))[place]["low_watermark"])

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition)

        def put(consumer: Any) -> None:
            consumer.assign([place])
            consumer.commit({place: OffsetAndMetadata(offset, "", -1)})

        self.ask(put, group_id=group)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        place = TopicPartition(topic, partition)

        def get(consumer: Any) -> int | None:
            consumer.assign([place])
            found: int | None = consumer.committed(place)
            return found

        found: int | None = self.ask(get, group_id=group)
        return found
