"""Records of Kafka's internal topics: the last one counts, and nonsense is Malformed."""

from __future__ import annotations

import pytest

from cairnmq.types import TopicPartition
from cairnmq.wire.codec import Malformed, encode
from cairnmq.wire.kafka_records import Committed, Topics, fold_commit
from cairnmq.wire.messages import (
    ConfigRecord,
    Message,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

ID = bytes(range(16))


def versioned(message: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + b"".join(encode(message, version))


def fact(kind: int, message: Message, version: int = 0) -> bytes:
    return bytes((1, kind, version)) + b"".join(encode(message, version))


@pytest.mark.parametrize("version", range(5))
def test_the_last_commit_counts(version: int) -> None:
    key = versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    found: Committed = {}
    for offset in (5, 9):
        value = OffsetCommitValue(offset=offset, metadata="m", commit_timestamp=1)
        fold_commit(found, key, versioned(value, version))
    assert found == {"g": {TopicPartition("t", 3): 9}}
    fold_commit(found, key, None)
    assert found == {"g": {}}


def test_records_that_are_no_commits_change_nothing() -> None:
    found: Committed = {}
    fold_commit(found, None, b"x")
    fold_commit(found, b"\x00\x02\x00\x01g", b"\x00\x03whatever a group is")
    assert found == {}


def test_nonsense_is_malformed() -> None:
    key = versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    for bad_key, value in ((key[:7], b""), (key, b"\x00\x05"), (key, b"\x00\x03\x00")):
        with pytest.raises(Malformed):
            fold_commit({}, bad_key, value)
    for value in (b"\x01", b"\x01\x02", b"\x01\x02\x00\x09a"):
        with pytest.raises(Malformed):
            Topics().fold(value)


def test_topics() -> None:
    topics = Topics()
    topics.fold(fact(2, TopicRecord(name="t", topic_id=ID)))
    for number in range(3):
        topics.fold(fact(3, PartitionRecord(partition_id=number, topic_id=ID, replicas=[1], isr=[1]), 1))
    for value in ("1", "2"):
        topics.fold(fact(4, ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=value)))
    topics.fold(fact(4, ConfigRecord(resource_type=2, resource_name="t", name="segment.ms", value="7")))
    topics.fold(fact(4, ConfigRecord(resource_type=2, resource_name="t", name="segment.ms", value=None)))
    topics.fold(fact(4, ConfigRecord(resource_type=4, resource_name="t", name="of.a.broker", value="1")))
    topics.fold(fact(12, ConfigRecord()))  # a kind that says nothing about topics
    topics.fold(None)
    topic = topics.by_name["t"]
    assert (topic.partitions, topic.configs) == (3, {"retention.ms": "2"})
    topics.fold(fact(9, RemoveTopicRecord(topic_id=ID)))
    assert topics.by_name == {}
