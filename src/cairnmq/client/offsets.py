"""Plans for a group's committed offsets. Pure; session.py says what a plan is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cairnmq.client.errors import Refused
from cairnmq.client.session import Plan, Session
from cairnmq.types import TopicPartition
from cairnmq.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)


def commit(
    session: Session, group: str, offsets: Mapping[TopicPartition, int], member_id: str = "", epoch: int = -1
) -> Plan[None]:
    """Stores offsets: as a member of the group, or from outside, which is allowed while the group has no members."""

    def attempt() -> Plan[None]:
        by_topic: dict[str, list[TopicPartition]] = {}
        for place in offsets:
            by_topic.setdefault(place.topic, []).append(place)
        topics = []
        for name, places in by_topic.items():
            topic = yield from session.topic(name)
            rows = [
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=place.partition, committed_offset=offsets[place], committed_metadata=""
                )
                for place in places
            ]
            topics.append(
                OffsetCommitRequest.OffsetCommitRequestTopic(name=name, topic_id=topic.topic_id, partitions=rows)
            )
        node = yield from session.coordinator(group)
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
        )
        answer = yield from session.ask(node, request, OffsetCommitResponse)
        for named in answer.topics:
            for row in named.partitions:
                if row.error_code:
                    raise Refused(row.error_code, f"group {group}")

    return (yield from session.retrying(attempt))


def delete(
    session: Session, group: str, partitions: Sequence[TopicPartition]
) -> Plan[dict[TopicPartition, Refused | None]]:
    """Forgets committed offsets, of topics that no member reads; one refusal does not stop the others."""
    by_topic: dict[str, list[OffsetDeleteRequest.OffsetDeleteRequestPartition]] = {}
    for place in partitions:
        row = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=place.partition)
        by_topic.setdefault(place.topic, []).append(row)
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=rows) for name, rows in by_topic.items()
    ]

    def attempt() -> Plan[dict[TopicPartition, Refused | None]]:
        node = yield from session.coordinator(group)
        answer = yield from session.ask(node, OffsetDeleteRequest(group_id=group, topics=topics), OffsetDeleteResponse)
        if answer.error_code:
            raise Refused(answer.error_code, f"group {group}")
        found: dict[TopicPartition, Refused | None] = {}
        for named in answer.topics:
            for row in named.partitions:
                where = f"group {group} on {named.name}-{row.partition_index}"
                refused = Refused(row.error_code, where) if row.error_code else None
                found[TopicPartition(named.name, row.partition_index)] = refused
        return found

    return (yield from session.retrying(attempt))


def fetch(session: Session, group: str, partitions: Sequence[TopicPartition] | None) -> Plan[dict[TopicPartition, int]]:
    """The committed offsets (None: all of the group's); partitions without one are left out."""

    def attempt() -> Plan[dict[TopicPartition, int]]:
        if partitions is None:
            # Answers may name topics by id only: know them all first.
            yield from session.metadata(None)
            request = OffsetFetchRequest(
                group_id=group,
                topics=None,
                groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)],
            )
        else:
            request = yield from _request(session, group, partitions)
        node = yield from session.coordinator(group)
        answer = yield from session.ask(node, request, OffsetFetchResponse)
        return _committed(session, group, answer)

    return (yield from session.retrying(attempt))


def _request(session: Session, group: str, partitions: Sequence[TopicPartition]) -> Plan[OffsetFetchRequest]:
    """Says the same twice, in the form of versions up to 7 and in that of 8 and later; one of them is sent."""
    by_topic: dict[str, list[int]] = {}
    for place in partitions:
        by_topic.setdefault(place.topic, []).append(place.partition)
    ids: dict[str, bytes] = {}
    for name in by_topic:
        topic = yield from session.topic(name)
        ids[name] = topic.topic_id
    return OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic.items()
        ],
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequest.OffsetFetchRequestTopics(
                        name=name, topic_id=ids[name], partition_indexes=indexes
                    )
                    for name, indexes in by_topic.items()
                ],
            )
        ],
    )


def _committed(session: Session, group: str, answer: OffsetFetchResponse) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    rows: list[tuple[str, int, int, int]] = []
    code = answer.error_code
    for topic in answer.topics:
        rows += [(topic.name, p.partition_index, p.committed_offset, p.error_code) for p in topic.partitions]
    for named in answer.groups:
        code = code or named.error_code
        for found_topic in named.topics:
            name = session.name_of(found_topic.name, found_topic.topic_id)
            rows += [(name, p.partition_index, p.committed_offset, p.error_code) for p in found_topic.partitions]
    if code:
        raise Refused(code, f"group {group}")
    for name, partition, offset, error in rows:
        if error:
            raise Refused(error, f"group {group} on {name}-{partition}")
        if offset >= 0 and name:
            found[TopicPartition(name, partition)] = offset
    return found
