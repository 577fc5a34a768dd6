"""A plan that asks for every topic at once: how many messages it holds and how much room it takes. Pure.

It asks each broker once: what a broker does not say is unknown, and the rest is still worth showing.
"""

from __future__ import annotations

from msgspec import Struct

from cairnmq.client.errors import Unsupported
from cairnmq.client.records import EARLIEST, LATEST
from cairnmq.client.session import Ask, Cluster, Plan, Session
from cairnmq.wire.messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)


class TopicSize(Struct, frozen=True):
    """`messages` is the distance from the first to the last offset, `bytes` counts every replica; None: unknown."""

    name: str
    partitions: int
    replicas: int
    internal: bool
    messages: int | None
    bytes: int | None


def topic_sizes(session: Session) -> Plan[list[TopicSize]]:
    cluster = yield from session.retrying(lambda: session.metadata(None))
    asks = _asks(cluster)
    replies = yield asks
    offsets: dict[int, dict[tuple[str, int], int]] = {EARLIEST: {}, LATEST: {}}
    room: dict[str, int] = {}
    all_told = True
    for ask, reply in zip(asks, replies, strict=True):
        if isinstance(reply, ListOffsetsResponse):
            assert isinstance(ask.request, ListOffsetsRequest)
            _take_offsets(reply, offsets[ask.request.topics[0].partitions[0].timestamp])
        elif isinstance(reply, DescribeLogDirsResponse) and not reply.error_code:
            for name, size in (
                (t.name, p.partition_size) for d in reply.results for t in d.topics for p in t.partitions
            ):
                room[name] = room.get(name, 0) + size
        elif isinstance(reply, Unsupported) or isinstance(ask.request, DescribeLogDirsRequest):
            all_told = False
    found = []
    for topic in cluster.topics.values():
        places = [(topic.name, partition.index) for partition in topic.partitions]
        known = all(place in offsets[EARLIEST] and place in offsets[LATEST] for place in places)
        messages = sum(offsets[LATEST][place] - offsets[EARLIEST][place] for place in places) if known else None
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        total = room.get(topic.name, 0) if all_told else None
        found.append(TopicSize(topic.name, len(places), replicas, topic.internal, messages, total))
    return found


def _asks(cluster: Cluster) -> list[Ask]:
    led: dict[int, dict[str, list[int]]] = {}
    for topic in cluster.topics.values():
        for partition in topic.partitions:
            if partition.leader in cluster.nodes:
                led.setdefault(partition.leader, {}).setdefault(topic.name, []).append(partition.index)
    asks = [Ask(node, DescribeLogDirsRequest(topics=None)) for node in cluster.nodes]
    row = ListOffsetsRequest.ListOffsetsPartition
    for node, topics in led.items():
        for when in (EARLIEST, LATEST):
            rows = [
                ListOffsetsRequest.ListOffsetsTopic(
                    name=name, partitions=[row(partition_index=index, timestamp=when) for index in indexes]
                )
                for name, indexes in topics.items()
            ]
            asks.append(Ask(node, ListOffsetsRequest(replica_id=-1, topics=rows)))
    return asks


def _take_offsets(response: ListOffsetsResponse, found: dict[tuple[str, int], int]) -> None:
    for topic in response.topics:
        for row in topic.partitions:
            if not row.error_code:
                found[topic.name, row.partition_index] = row.offset
