"""aiokafka, driven from one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from interop.clients.contract import Got, Refused, Sent

SECONDS = 60.0
LOG_APPEND_TIME = 1
T = TypeVar("T")


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


def check(code: int, text: str | None) -> None:
    if code:
        raise Refused(code, text or "")


class AioReader:
    def __init__(self, client: AiokafkaClient, consumer: AIOKafkaConsumer, topic: str) -> None:
        self.client = client
        self.consumer = consumer
        self.topic = topic

    def take(self, count: int, seconds: float = 60.0) -> list[Got]:
        return self.client.run(self.take_some(count, seconds))

    async def take_some(self, count: int, seconds: float) -> list[Got]:
        taken: list[Got] = []
        try:
            async with asyncio.timeout(seconds):
                while len(taken) < count:
                    taken.append(got(await self.consumer.getone()))
        except TimeoutError:
            return taken
        return taken

    def seek(self, partition: int, offset: int) -> None:
        async def move() -> None:
            self.consumer.seek(TopicPartition(self.topic, partition), offset)

        self.client.run(move())

    def close(self) -> None:
        self.client.run(self.consumer.stop())


class AiokafkaClient:
    name: ClassVar[str] = "aiokafka"
    lacks: ClassVar[Mapping[str, str]] = {
        "incremental alter": "its admin client has only the older AlterConfigs request",
        "cooperative": "it has only eager assignors",
        "consumer protocol": "it has only the classic protocol",
    }

    def __init__(self, bootstrap: str) -> None:
        self.version = aiokafka.__version__
        self.bootstrap = bootstrap
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="aiokafka", daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(SECONDS * 2)
        except KafkaError as problem:
            raise Refused(getattr(problem, "errno", -1), str(problem)) from None

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def consumer(self, **options: Any) -> AIOKafkaConsumer:
        settings = {"enable_auto_commit": False, "auto_offset_reset": "none", **options}
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, **settings)
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
        return consumer

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
        return self.run(self.produce_all(topic, records, codec, acks, idempotent, size_max))

    async def produce_all(
        self, topic: str, records: Sequence[Sent], codec: str, acks: str, idempotent: bool, size_max: int
    ) -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all" if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=size_max,
            linger_ms=5,
            request_timeout_ms=int(SECONDS * 1000),
        )
        try:
            await producer.start()
            sent = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
                for record in records
            ]
            told = await asyncio.gather(*sent)
            return [place.offset for place in told if place is not None and place.offset >= 0]
        finally:
            await producer.stop()

    def read(
        self, topic: str, partitions: Iterable[int] = (0,), start: int = 0, size_max: int = 1_048_576
    ) -> list[Got]:
        return self.run(self.read_all(topic, list(partitions), start, size_max))

    async def read_all(self, topic: str, partitions: list[int], start: int, size_max: int) -> list[Got]:
        consumer = await self.consumer(max_partition_fetch_bytes=size_max, fetch_max_wait_ms=100)
        try:
            places = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            starts = await consumer.beginning_offsets(places)
            for place in places:
                consumer.seek(place, starts[place] if start == -2 else start)
            records: list[Got] = []
            ended: set[TopicPartition] = set()
            async with asyncio.timeout(SECONDS):
                while True:
                    for place in places:
                        if place not in ended and await consumer.position(place) >= ends[place]:
                            ended.add(place)
                    if len(ended) == len(places):
                        return records
                    for batch in (await consumer.getmany(timeout_ms=100)).values():
                        records.extend(got(record) for record in batch)
        finally:
            await consumer.stop()

    def reader(self, topic: str, partition: int, start: int, wait_ms: int) -> AioReader:
        return self.run(self.open_reader(topic, partition, start, wait_ms))

    async def open_reader(self, topic: str, partition: int, start: int, wait_ms: int) -> AioReader:
        consumer = await self.consumer(fetch_max_wait_ms=wait_ms, request_timeout_ms=wait_ms + 10_000)
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        if start == -1:
            await consumer.seek_to_end(place)
        else:
            consumer.seek(place, start)
        return AioReader(self, consumer, topic)

    def partitions(self, topic: str) -> int:
        async def ask(admin: AIOKafkaAdminClient) -> int:
            known = {found["topic"]: found for found in await admin.describe_topics(None)}
            return len(known[topic]["partitions"]) if topic in known else 0

        return self.run(self.with_admin(ask))

    async def with_admin(self, work: Any) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=int(SECONDS * 1000))
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    async def with_consumer(self, work: Any, **options: Any) -> Any:
        consumer = await self.consumer(**options)
        try:
            return await work(consumer)
        finally:
            await consumer.stop()

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> tuple[int, int]:
            low, high = await consumer.beginning_offsets([place]), await consumer.end_offsets([place])
            return low[place], high[place]

        return self.run(self.with_consumer(ask))

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        place = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> int | None:
            found = (await consumer.offsets_for_times({place: timestamp}))[place]
            return None if found is None else found.offset

        return self.run(self.with_consumer(ask))

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        async def ask(admin: AIOKafkaAdminClient) -> None:
            # It wants a number; one broker has as many replicas as it may have by default, and so have three.
            replicas = len((await admin.describe_cluster())["brokers"])
            response = await admin.create_topics(
                [NewTopic(topic, partitions, replicas, topic_configs=dict(configs or {}))]
            )
            for _, code, text in response.topic_errors:
                check(code, text)

        self.run(self.with_admin(ask))

    def delete_topic(self, topic: str) -> None:
        async def ask(admin: AIOKafkaAdminClient) -> None:
            for _, code in (await admin.delete_topics([topic])).topic_error_codes:
                check(code, None)

        self.run(self.with_admin(ask))

    def add_partitions(self, topic: str, total: int) -> None:
        async def ask(admin: AIOKafkaAdminClient) -> None:
            await admin.create_partitions({topic: NewPartitions(total)})

        self.run(self.with_admin(ask))

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        async def ask(admin: AIOKafkaAdminClient) -> dict[str, str | None]:
            (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            ((code, text, _, _, entries, *_),) = response.resources
            check(code, text)
            return {entry[0]: entry[1] for entry in entries}

        return self.run(self.with_admin(ask))

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        raise NotImplementedError(self.lacks["incremental alter"])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)

        async def ask(admin: AIOKafkaAdminClient) -> int:
            return (await admin.delete_records({place: RecordsToDelete(before_offset=before)}))[place]

        return self.run(self.with_admin(ask))

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> None:
            consumer.assign([place])
            await consumer.commit({place: offset})

        self.run(self.with_consumer(ask, group_id=group))

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        place = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> int | None:
            consumer.assign([place])
            return await consumer.committed(place)

        return self.run(self.with_consumer(ask, group_id=group))
