"""Plan for our own request that writes batches with the offsets they have. Pure; session.py says what a plan is."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cairnmq.client.errors import Refused
from cairnmq.client.session import Ask, Plan, Session
from cairnmq.types import Buffers, TopicPartition
from cairnmq.wire.messages import KeepOffsetsRequest, KeepOffsetsResponse


class Kept(Struct, frozen=True):
    """Batches of one partition; afterwards it ends at `end`, and before it must end at `start` (or be new)."""

    start: int
    end: int
    batches: Buffers


def keep_offsets(session: Session, parts: Mapping[TopicPartition, Kept]) -> Plan[dict[TopicPartition, int]]:
    """Writes all parts; gives the end offset of each partition. Never tried twice: the broker may have taken some."""
    by_node: dict[int, dict[str, list[TopicPartition]]] = {}
    ids: dict[str, bytes] = {}
    for place in parts:
        topic = yield from session.topic(place.topic)
        ids[place.topic] = topic.topic_id
        by_node.setdefault(session.leader(topic, place.partition), {}).setdefault(place.topic, []).append(place)
    asks = []
    for node, topics in by_node.items():
        rows = []
        for name, places in topics.items():
            partitions = [
                KeepOffsetsRequest.KeptPartition(
                    index=place.partition,
                    start_offset=parts[place].start,
                    end_offset=parts[place].end,
                    records=parts[place].batches,
                )
                for place in places
            ]
            rows.append(KeepOffsetsRequest.KeptTopic(topic_id=ids[name], partitions=partitions))
        asks.append(Ask(node, KeepOffsetsRequest(topics=rows)))
    ends: dict[TopicPartition, int] = {}
    for answer in (yield from session.ask_all(asks, KeepOffsetsResponse)):
        for named in answer.topics:
            for row in named.partitions:
                place = TopicPartition(session.name_of("", named.topic_id), row.index)
                if row.error_code:
                    raise Refused(row.error_code, f"partition {place}", row.error_message)
                ends[place] = row.end_offset
    return ends
