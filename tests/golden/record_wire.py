"""Records request frames of real clients into wire.json: run by hand, with the clients installed, on loopback only.

The recorder is a broker that knows one empty topic and says yes; what it answers matters only as far as it makes the
clients go on to their next request. One frame per client, API and version is kept.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cairnmq.types import Buffer
from cairnmq.wire import messages as m
from cairnmq.wire.apis import API_VERSIONS, APIS, request_class, response_class
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import RequestHeader, read_request_header, response_frame

TARGET = Path(__file__).with_name("wire.json")
TOPIC, TOPIC_ID, GROUP = "orders", bytes(range(16)), "billing"
OLD = {0: 7, 1: 11, 2: 3, 3: 5, 8: 5, 9: 5, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 18: 2, 19: 3, 22: 1, 32: 1}
"""Highest versions of a broker before flexible encodings: the same clients then send the legacy ones."""


class Recorder:
    def __init__(self, highest: dict[int, int]) -> None:
        self.highest = highest
        self.frames: list[tuple[RequestHeader, bytes]] = []
        self.members: list[bytes] = []
        self.port = 0
        self.server: asyncio.Server | None = None

    async def start(self) -> None:
        self.server = await asyncio.start_server(self.connection, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header, pos = read_request_header(frame)
                self.frames.append((header, frame))
                for piece in await self.answer(header, frame, pos):
                    writer.write(piece)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answer(self, header: RequestHeader, frame: bytes, pos: int) -> list[Buffer]:
        key, version = header.api_key, header.api_version
        if key == API_VERSIONS and version > self.highest.get(key, APIS[key].max):
            return response_frame(key, 0, header.correlation_id, encode(m.ApiVersionsResponse(error_code=35), 0))
        request, _ = decode(request_class(key), version, frame, pos)
        response = getattr(self, "on_" + APIS[key].name, None)
        if key == 1:
            await asyncio.sleep(0.2)
        message = response(request) if response else response_class(key)()
        return response_frame(key, version, header.correlation_id, encode(message, version))

    def on_ApiVersions(self, _request: Any) -> m.ApiVersionsResponse:
        kinds = m.ApiVersionsResponse.ApiVersion
        return m.ApiVersionsResponse(
            api_keys=[
                kinds(key, 0 if key == 0 else api.min, self.highest.get(key, api.max))
                for key, api in APIS.items()
                if key not in (71, 72) and (self.highest.get(key, api.max) >= api.min)
            ]
        )

    def on_Metadata(self, _request: Any) -> m.MetadataResponse:
        r = m.MetadataResponse
        partition = r.MetadataResponsePartition(0, 0, 1, 0, [1], [1])
        return r(
            brokers=[r.MetadataResponseBroker(1, "127.0.0.1", self.port)],
            cluster_id="golden",
            controller_id=1,
            topics=[r.MetadataResponseTopic(0, TOPIC, TOPIC_ID, False, [partition])],
        )

    def on_FindCoordinator(self, request: Any) -> m.FindCoordinatorResponse:
        r = m.FindCoordinatorResponse
        found = [r.Coordinator(key, 1, "127.0.0.1", self.port) for key in request.coordinator_keys]
        return r(node_id=1, host="127.0.0.1", port=self.port, coordinators=found)

    def on_InitProducerId(self, _request: Any) -> m.InitProducerIdResponse:
        return m.InitProducerIdResponse(producer_id=7)

    def on_Produce(self, request: Any) -> m.ProduceResponse:
        r = m.ProduceResponse
        return r(
            responses=[
                r.TopicProduceResponse(
                    t.name, t.topic_id, [r.PartitionProduceResponse(p.index) for p in t.partition_data]
                )
                for t in request.topic_data
            ]
        )

    def on_ListOffsets(self, request: Any) -> m.ListOffsetsResponse:
        r = m.ListOffsetsResponse
        kind = r.ListOffsetsPartitionResponse
        return r(
            topics=[
                r.ListOffsetsTopicResponse(t.name, [kind(p.partition_index, 0, -1, 0, 0) for p in t.partitions])
                for t in request.topics
            ]
        )

    def on_Fetch(self, request: Any) -> m.FetchResponse:
        r = m.FetchResponse
        return r(
            responses=[
                r.FetchableTopicResponse(
                    t.topic, t.topic_id, [r.PartitionData(p.partition, records=b"") for p in t.partitions]
                )
                for t in request.topics
            ]
        )

    def on_JoinGroup(self, request: Any) -> m.JoinGroupResponse:
        if not request.protocols:
            return m.JoinGroupResponse(error_code=42)
        chosen = request.protocols[0]
        member = request.member_id or "member-1"
        self.members = [chosen.metadata]
        return m.JoinGroupResponse(
            generation_id=1,
            protocol_type=request.protocol_type,
            protocol_name=chosen.name,
            leader=member,
            member_id=member,
            members=[m.JoinGroupResponse.JoinGroupResponseMember(member, None, chosen.metadata)],
        )

    def on_SyncGroup(self, request: Any) -> m.SyncGroupResponse:
        return m.SyncGroupResponse(assignment=request.assignments[0].assignment if request.assignments else b"")

    def on_OffsetFetch(self, request: Any) -> m.OffsetFetchResponse:
        r = m.OffsetFetchResponse
        plain = [
            r.OffsetFetchResponseTopic(
                t.name, [r.OffsetFetchResponsePartition(p, -1, metadata="") for p in t.partition_indexes]
            )
            for t in request.topics or []
        ]
        groups = [
            r.OffsetFetchResponseGroup(
                g.group_id,
                [
                    r.OffsetFetchResponseTopics(
                        t.name,
                        t.topic_id,
                        [r.OffsetFetchResponsePartitions(p, -1, metadata="") for p in t.partition_indexes],
                    )
                    for t in g.topics or []
                ],
            )
            for g in request.groups
        ]
        return r(topics=plain, groups=groups)

    def on_OffsetCommit(self, request: Any) -> m.OffsetCommitResponse:
        r = m.OffsetCommitResponse
        kind = r.OffsetCommitResponsePartition
        return r(
            topics=[
                r.OffsetCommitResponseTopic(t.name, t.topic_id, [kind(p.partition_index) for p in t.partitions])
                for t in request.topics
            ]
        )

    def on_CreateTopics(self, request: Any) -> m.CreateTopicsResponse:
        return m.CreateTopicsResponse(
            topics=[m.CreateTopicsResponse.CreatableTopicResult(t.name, TOPIC_ID) for t in request.topics]
        )

    def on_DescribeConfigs(self, request: Any) -> m.DescribeConfigsResponse:
        r = m.DescribeConfigsResponse
        return r(
            results=[r.DescribeConfigsResult(0, None, x.resource_type, x.resource_name) for x in request.resources]
        )


def confluent(port: int) -> None:
    import confluent_kafka as ck
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        ConfigResource,
        NewPartitions,
        NewTopic,
    )

    where: dict[str, str | int | float | bool] = {"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "golden"}
    producer = ck.Producer({**where, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5})
    for number in range(20):
        producer.produce(TOPIC, b"value %d" % number, key=b"key", headers={"h": b"1"})
    producer.flush(5)
    consumer = ck.Consumer({**where, "group.id": GROUP, "auto.offset.reset": "earliest", "session.timeout.ms": 6000})
    consumer.subscribe([TOPIC])
    until = time.monotonic() + 4
    while time.monotonic() < until:
        consumer.poll(0.2)
    try:
        consumer.commit(offsets=[ck.TopicPartition(TOPIC, 0, 3)], asynchronous=False)
    except ck.KafkaException as error:
        print("confluent commit:", error)
    consumer.close()
    admin = AdminClient(where)
    futures: list[Any] = [
        *admin.create_topics([NewTopic("made", 3, 1, config={"retention.ms": "1000"})], request_timeout=3).values(),
        *admin.create_partitions([NewPartitions("made", 6)], request_timeout=3).values(),
        *admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "made")], request_timeout=3).values(),
        *admin.delete_topics(["made"], request_timeout=3).values(),
        admin.list_consumer_groups(request_timeout=3),
        *admin.delete_records([ck.TopicPartition(TOPIC, 0, 2)], request_timeout=3).values(),
        admin.describe_cluster(request_timeout=3),
    ]
    for future in futures:
        try:
            future.result(4)
        except (ck.KafkaException, TimeoutError) as error:  # thin answers; the request is what counts
            print("confluent admin:", str(error)[:100])


async def aiokafka(port: int) -> None:
    import aiokafka as ak
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.errors import KafkaError
    from aiokafka.structs import TopicPartition

    where = {"bootstrap_servers": f"127.0.0.1:{port}", "client_id": "golden"}
    producer = ak.AIOKafkaProducer(**where, enable_idempotence=True)
    await producer.start()
    await producer.send_and_wait(TOPIC, b"value", key=b"key", headers=[("h", b"1")])
    await producer.stop()
    consumer = ak.AIOKafkaConsumer(TOPIC, **where, group_id=GROUP, auto_offset_reset="earliest")
    await asyncio.wait_for(consumer.start(), 15)
    await consumer.getmany(timeout_ms=1500)
    await consumer.commit({TopicPartition(TOPIC, 0): 3})
    await consumer.stop()
    admin = AIOKafkaAdminClient(**where)
    await admin.start()
    for call in (admin.create_topics([NewTopic("made", 3, 1)]), admin.list_consumer_groups()):
        try:
            await asyncio.wait_for(call, 4)
        except (KafkaError, TimeoutError) as error:
            print("aiokafka admin:", type(error).__name__, str(error)[:100])
    await admin.close()


async def record(name: str, run: Callable[[int], Any], highest: dict[int, int]) -> list[tuple[RequestHeader, bytes]]:
    recorder = Recorder(highest)
    await recorder.start()
    if asyncio.iscoroutinefunction(run):
        await run(recorder.port)
    else:
        await asyncio.to_thread(run, recorder.port)
    await recorder.stop()
    print(name, len(recorder.frames), "frames", file=sys.stderr)
    return recorder.frames


async def main() -> None:
    kept: dict[tuple[str, int, int], dict[str, Any]] = {}
    for client, run in (("confluent-kafka", confluent), ("aiokafka", aiokafka)):
        release = importlib.metadata.version(client)
        for highest in ({}, OLD):
            for header, frame in await record(client, run, highest):
                where = (client, header.api_key, header.api_version)
                # The longest small frame of its kind: the one with the most fields in use.
                if len(frame) <= 700 and len(frame) > len(kept.get(where, {"frame": ""})["frame"]) // 2:
                    kept[where] = {
                        "client": f"{client} {release}",
                        "api": APIS[header.api_key].name,
                        "version": header.api_version,
                        "frame": frame.hex(),
                    }
    lines = ",\n".join("  " + json.dumps(kept[where]) for where in sorted(kept))
    TARGET.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    asyncio.run(main())
