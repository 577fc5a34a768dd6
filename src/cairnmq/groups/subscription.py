"""The one place where the broker looks into member metadata: what a consumer subscribes to, has, and is assigned."""

from __future__ import annotations

from cairnmq.groups.partitions import Partitions, gathered
from cairnmq.groups.topic_view import TopicView
from cairnmq.wire.codec import Malformed, decode, encode
from cairnmq.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

CONSUMER = "consumer"
_NEWEST = 3


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics in a consumer's subscription; None if it cannot be read (then nothing may be concluded from it)."""
    if len(metadata) < 2:
        return None
    try:
        # Every version begins with the fields of version 0, so that is enough, and versions to come can be read too.
        subscription, _ = decode(ConsumerProtocolSubscription, 0, metadata, 2)
    except Malformed:
        return None
    return subscription.topics


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """All of a consumer's subscription; None if it cannot be read."""
    if len(metadata) < 2:
        return None
    try:
        subscription, _ = decode(ConsumerProtocolSubscription, _version(metadata), metadata, 2)
    except Malformed:
        return None
    return subscription


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment | None:
    """What a consumer was assigned; None if it cannot be read. No bytes: nothing was."""
    if not assignment:
        return ConsumerProtocolAssignment()
    try:
        message, _ = decode(ConsumerProtocolAssignment, 0, assignment, 2)
    except Malformed:
        return None
    return message


def partitions_of(
    rows: list[ConsumerProtocolSubscription.TopicPartition] | list[ConsumerProtocolAssignment.TopicPartition],
    view: TopicView,
) -> Partitions:
    """By topic id; topics that do not exist are left out."""
    return gathered((topic.topic_id, row.partitions) for row in rows if (topic := view.topic(row.topic)) is not None)


def write_assignment(assigned: Partitions, view: TopicView, metadata: bytes) -> bytes:
    """An assignment in the version of a member's subscription."""
    rows = sorted(
        (topic.name, sorted(indexes))
        for topic_id, indexes in assigned.items()
        if (topic := view.topic_by_id(topic_id)) is not None
    )
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indexes) for name, indexes in rows
        ]
    )
    version = _version(metadata)
    return version.to_bytes(2, "big") + b"".join(encode(message, version))


def _version(metadata: bytes) -> int:
    return min(int.from_bytes(metadata[:2], "big"), _NEWEST)
