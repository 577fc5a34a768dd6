"""A client that hides nothing: one connection, one request after the other, every error code as the broker gave it.

Starts in a millisecond, where librdkafka needs some hundred. It tries nothing again: who looks for what a broker says
about damaged files must see each answer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from cairnmq.client.connection import Connection
from cairnmq.client.records import Fetched
from cairnmq.codec.records import iter_batches
from cairnmq.types import Buffer
from cairnmq.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from crash.ledger import Place

R = TypeVar("R", bound=Message)

SECONDS = 20.0
TOPIC_RESOURCE, TOPIC_SOURCE = 2, 1
PARTITION_BYTES = 1 << 20


class WireClient:
    """Topics are known as of the last `topics()`."""

    def __init__(self, bootstrap: str, seconds: float = SECONDS) -> None:
        """`seconds`: how long an answer may take."""
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._state = Connection("damage", bootstrap, "1")
        hello: list[Buffer] | None = self._state.hello()
        while hello is not None:
            self._socket.sendall(b"".join(hello))
            hello = self._state.greeted(self._read())
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, request: Message, answer: type[R]) -> R:
        _, frame = self._state.request(request)
        self._socket.sendall(b"".join(frame))
        reply = self._read()
        assert isinstance(reply, answer), f"{type(reply).__name__} is not a {answer.__name__}"
        return reply

    def topics(self) -> dict[str, int]:
        """Number of partitions by name."""
        answer = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
        known = {row.name: row for row in answer.topics if row.name is not None}
        self._ids = {name: row.topic_id for name, row in known.items()}
        self._names = {topic_id: name for name, topic_id in self._ids.items()}
        return {name: len(row.partitions) for name, row in known.items()}

    def fetch(self, positions: Mapping[Place, int], *, committed: bool = True) -> dict[Place, Fetched]:
        """At once, whatever there is."""
        rows: dict[str, list[FetchRequest.FetchPartition]] = {}
        for place, offset in positions.items():
            kind = FetchRequest.FetchPartition
            row = kind(partition=place.partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
            rows.setdefault(place.topic, []).append(row)
        topics = [
            FetchRequest.FetchTopic(topic=name, topic_id=self._ids[name], partitions=asked)
            for name, asked in rows.items()
        ]
        answer = self.ask(FetchRequest(isolation_level=int(committed), topics=topics), FetchResponse)
        assert not answer.error_code, f"fetch: error {answer.error_code}"
        found: dict[Place, Fetched] = {}
        for named in answer.responses:
            topic = named.topic or self._names[named.topic_id]
            for each in named.partitions:
                records = each.records
                assert records is None or isinstance(records, memoryview)
                found[Place(topic, each.partition_index)] = Fetched(
                    topic,
                    each.partition_index,
                    each.error_code,
                    each.high_watermark,
                    each.log_start_offset,
                    tuple(iter_batches(records)) if records else (),
                    each.last_stable_offset,
                    tuple((a.producer_id, a.first_offset) for a in each.aborted_transactions or ()),
                )
        return found

    def produce(self, batches: Mapping[Place, bytes]) -> dict[Place, tuple[int, int]]:
        """Error code and base offset of each, for acks=all."""
        rows: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for place, batch in batches.items():
            row = ProduceRequest.PartitionProduceData(index=place.partition, records=batch)
            rows.setdefault(place.topic, []).append(row)
        topics = [
            ProduceRequest.TopicProduceData(name=name, topic_id=self._ids[name], partition_data=data)
            for name, data in rows.items()
        ]
        answer = self.ask(ProduceRequest(acks=-1, timeout_ms=int(SECONDS * 500), topic_data=topics), ProduceResponse)
        return {
            Place(named.name or self._names[named.topic_id], each.index): (each.error_code, each.base_offset)
            for named in answer.responses
            for each in named.partition_responses
        }

    def init_producer(self, transactional_id: str | None = None) -> tuple[int, int, int]:
        """Error code, producer id, epoch."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = self.ask(request, InitProducerIdResponse)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """Error code and committed offset (-1: none) of each."""
        wanted: dict[str, list[int]] = {}
        for place in places:
            wanted.setdefault(place.topic, []).append(place.partition)
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=name, topic_id=self._ids[name], partition_indexes=partitions
            )
            for name, partitions in wanted.items()
        ]
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
        answer = self.ask(OffsetFetchRequest(group_id=group, groups=[asked]), OffsetFetchResponse)
        (found,) = answer.groups
        if found.error_code:
            return {Place(name, each): (found.error_code, -1) for name, them in wanted.items() for each in them}
        return {
            Place(named.name or self._names[named.topic_id], row.partition_index): (
                row.error_code,
                row.committed_offset,
            )
            for named in found.topics
            for row in named.partitions
        }

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str | None]]:
        """What was set on each topic itself."""
        kind = DescribeConfigsRequest.DescribeConfigsResource
        rows = [kind(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None) for name in topics]
        answer = self.ask(DescribeConfigsRequest(resources=rows), DescribeConfigsResponse)
        return {
            result.resource_name: {row.name: row.value for row in result.configs if row.config_source == TOPIC_SOURCE}
            for result in answer.results
            if not result.error_code
        }

    def _read(self) -> Message:
        while True:
            count = self._socket.recv_into(self._state.space())
            if not count:
                raise ConnectionError("the broker closed the connection")
            reply = self._state.received(count)
            if reply is not None:
                return reply.message
