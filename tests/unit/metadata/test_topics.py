"""Decisions on topics: Kafka's rules and numbers, and queue ids that are never used twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Image, QueueRange, Topic
from cairnmq.metadata.store import Delete, Put
from cairnmq.metadata.topics import (
    NEXT_QUEUE,
    PARTITIONS_MAX,
    CreateTopic,
    Decision,
    add_partitions,
    alter_broker_configs,
    alter_configs,
    check_name,
    create_topic,
    decode_topic,
    delete_topic,
    place_queues,
    placed,
    put_topic,
)
from cairnmq.settings.alteration import ConfigChange, Operation
from cairnmq.settings.broker import BrokerConfig, broker_config

ID = b"0123456789abcdef"
EXISTING = Topic("there", b"f" * 16, (QueueRange(1, 3, (0,)),), {"retention.ms": "5000"}, 17)
IMAGE = Image([EXISTING], next_queue_id=10)


def create(
    request: CreateTopic, image: Image = IMAGE, broker: BrokerConfig | None = None, journals: Sequence[int] = (0,)
) -> Decision | Refusal:
    config = broker or BrokerConfig()
    return create_topic(image, request, broker=config, node_id=1, topic_id=ID, now_ms=99, journals=journals)


def refused(answer: object) -> ErrorCode:
    assert isinstance(answer, Refusal), answer
    assert answer.message
    return answer.code


def decided(answer: Decision | Refusal) -> Decision:
    assert isinstance(answer, Decision), answer
    return answer


def configured(static: dict[str, str]) -> BrokerConfig:
    config = broker_config(static)
    assert isinstance(config, BrokerConfig), config
    return config


@pytest.mark.parametrize("name", ["a", "a.b_c-9", "x" * 249, "...", "__consumer_offsets", "-"])
def test_good_names(name: str) -> None:
    assert check_name(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b", "a\x00", "a*", "a,b"])
def test_bad_names(name: str) -> None:
    assert refused(create(CreateTopic(name=name))) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_new_topic_takes_the_next_queue_ids() -> None:
    decision = decided(create(CreateTopic(name="new", partitions=4, configs={"flush.ms": "7"})))
    assert decision.topic == Topic("new", ID, (QueueRange(10, 4, (0,)),), {"flush.ms": "7"}, 99)
    topic, following = decision.ops
    assert isinstance(topic, Put) and topic.key == "topics/new" and decode_topic(topic.value) == decision.topic
    assert following == Put(NEXT_QUEUE, b"14")


def test_a_topic_is_one_small_key_however_many_partitions() -> None:
    decision = decided(create(CreateTopic(name="new", partitions=100_000)))
    topic = decision.ops[0]
    assert isinstance(topic, Put) and len(topic.value) < 200


def test_defaults_come_from_the_broker() -> None:
    broker = configured({"num.partitions": "6"})
    assert decided(create(CreateTopic(name="new"), broker=broker)).topic.count == 6
    assert decided(create(CreateTopic(name="new", replication_factor=1))).topic.count == 1


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (CreateTopic(name="there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreateTopic(name="new", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (CreateTopic(name="new", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (CreateTopic(name="new", partitions=PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS),
        (CreateTopic(name="n" * 249, partitions=100_001), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreateTopic(name="new", partitions=1, replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreateTopic(name="new", partitions=1, replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreateTopic(name="new", partitions=1, replication_factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreateTopic(name="new", assignments={0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic(name="new", assignments={0: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic(name="new", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic(name="new", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic(name="new", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic(name="new", assignments={0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreateTopic(name="new", assignments={0: [1]}, partitions=1), ErrorCode.INVALID_REQUEST),
        (CreateTopic(name="new", assignments={0: [1]}, replication_factor=1), ErrorCode.INVALID_REQUEST),
        (CreateTopic(name="new", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (CreateTopic(name="new", configs={"segment.bytes": "1"}), ErrorCode.INVALID_CONFIG),
        (CreateTopic(name="new", configs={"segment.bytes": None}), ErrorCode.INVALID_CONFIG),
        (CreateTopic(name="new", configs={"cleanup.policy": "forget"}), ErrorCode.INVALID_CONFIG),
        (
            CreateTopic(name="new", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}),
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_what_cannot_be_created(request_: CreateTopic, code: ErrorCode) -> None:
    assert refused(create(request_)) == code


def test_a_manual_assignment_to_this_broker() -> None:
    assert decided(create(CreateTopic(name="new", assignments={1: [1], 0: [1]}))).topic.count == 2


def test_a_name_that_only_metrics_would_confuse_is_refused() -> None:
    image = Image([Topic("a.b", ID, (QueueRange(1, 1, (0,)),))])
    assert refused(create(CreateTopic(name="a_b"), image)) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused(create(CreateTopic(name="a.b"), image)) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_deletion_keeps_the_queue_ids_used() -> None:
    decision = decided(delete_topic(IMAGE, "there", broker=BrokerConfig()))
    assert decision.ops == (Delete("topics/there"),) and decision.topic is EXISTING
    assert refused(delete_topic(IMAGE, "none", broker=BrokerConfig())) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker = configured({"delete.topic.enable": "false"})
    assert refused(delete_topic(IMAGE, "there", broker=broker)) == ErrorCode.TOPIC_DELETION_DISABLED


def test_more_partitions_are_a_new_range() -> None:
    decision = decided(add_partitions(IMAGE, "there", 5, node_id=1))
    assert decision.topic.partitions == (QueueRange(1, 3, (0,)), QueueRange(10, 2, (0,)))
    assert decision.topic.topic_id == EXISTING.topic_id and decision.topic.configs == EXISTING.configs
    assert decision.ops[1] == Put(NEXT_QUEUE, b"12")


def test_more_partitions_directly_behind_grow_the_range() -> None:
    image = Image([EXISTING], next_queue_id=4)
    assert decided(add_partitions(image, "there", 5, node_id=1)).topic.partitions == (QueueRange(1, 5, (0,)),)


def test_queue_ids_take_the_journals_in_turn() -> None:
    """So the next topic goes on where this one ends."""
    decision = decided(create(CreateTopic(name="new", partitions=4), journals=(0, 1, 2)))
    assert decision.topic.partitions == (QueueRange(10, 4, (1, 2, 0)),)
    decision = decided(create(CreateTopic(name="new", partitions=4), journals=(3, 17)))
    assert decision.topic.partitions == (QueueRange(10, 4, (3, 17)),)


@pytest.mark.parametrize(
    ("journals", "ranges"),
    [
        ((0, 1), (QueueRange(1, 5, (1, 0)),)),
        ((0,), (QueueRange(1, 3, (1, 0)), QueueRange(4, 2, (0,)))),
        ((0, 1, 2), (QueueRange(1, 3, (1, 0)), QueueRange(4, 2, (1, 2, 0)))),
    ],
)
def test_new_partitions_go_to_the_journals_of_their_day(journals: Sequence[int], ranges: tuple[QueueRange]) -> None:
    image = Image([replace(EXISTING, partitions=(QueueRange(1, 3, (1, 0)),))], next_queue_id=4)
    decision = decided(add_partitions(image, "there", 5, node_id=1, journals=journals))
    assert decision.topic.partitions == ranges


GOLDEN = {
    b'{"name":"t","topic_id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[5,3],[9,2]],"configs":{},"created_ms":7}': (
        QueueRange(5, 3),
        QueueRange(9, 2),
    ),
    b'{"name":"t","topic_id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[5,3,[3,17]],[9,2,[0]]],"configs":{},'
    b'"created_ms":7}': (QueueRange(5, 3, (3, 17)), QueueRange(9, 2, (0,))),
}


@pytest.mark.parametrize("stored", GOLDEN)
def test_stored_topics_of_both_versions(stored: bytes) -> None:
    topic = decode_topic(stored)
    assert topic == Topic("t", bytes(range(16)), GOLDEN[stored], {}, 7)
    if all(each.cycle for each in topic.partitions):
        assert put_topic(topic).value == stored


@pytest.mark.parametrize("journals", [1, 2, 3, 5])
def test_topics_of_the_first_version_keep_their_journals(journals: int) -> None:
    """By the rule of that version: the rest of the queue id."""
    ranges = QueueRange(5, 7), QueueRange(20, 4), QueueRange(31, 1, (9,))
    old = replace(EXISTING, name="old", topic_id=ID, partitions=ranges)
    image = Image([EXISTING, old])
    (put,) = place_queues(image, range(journals))
    topic = decode_topic(put.value)
    was = [queue_id % journals for _, queue_id in topic.queues()][:-1]
    assert [journal for _, _, journal in topic.places()] == [*was, 9], "what has a cycle keeps it"
    assert placed(image, range(journals)) == Image([EXISTING, topic])


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("none", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("there", 3, None, ErrorCode.INVALID_PARTITIONS),
        ("there", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("there", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("there", PARTITIONS_MAX + 1, None, ErrorCode.INVALID_PARTITIONS),
        ("there", 5, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("there", 5, [[1], [2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("there", 5, [[1], [1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_added(name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode) -> None:
    assert refused(add_partitions(IMAGE, name, count, node_id=1, assignments=assignments)) == code


def test_altered_configs() -> None:
    changes = [ConfigChange("flush.ms", Operation.SET, "9"), ConfigChange("retention.ms", Operation.DELETE)]
    decision = decided(alter_configs(IMAGE, "there", changes, broker=BrokerConfig()))
    assert decision.topic.configs == {"flush.ms": "9"}
    (op,) = decision.ops
    assert isinstance(op, Put) and decode_topic(op.value) == decision.topic


def test_nothing_different_is_nothing_to_write() -> None:
    changes = [ConfigChange("retention.ms", Operation.SET, "5000"), ConfigChange("flush.ms", Operation.DELETE)]
    assert decided(alter_configs(IMAGE, "there", changes, broker=BrokerConfig())).ops == ()


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("none", ConfigChange("flush.ms", 0, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("there", ConfigChange("flush.mss", 0, "1"), ErrorCode.INVALID_CONFIG),
        ("there", ConfigChange("flush.mss", 2, "1"), ErrorCode.INVALID_CONFIG),
        ("there", ConfigChange("flush.ms", 0, "x"), ErrorCode.INVALID_CONFIG),
        ("there", ConfigChange("flush.ms", 0, None), ErrorCode.INVALID_REQUEST),
        ("there", ConfigChange("flush.ms", 2, "1"), ErrorCode.INVALID_CONFIG),
        ("there", ConfigChange("flush.ms", 4, "1"), ErrorCode.INVALID_REQUEST),
        ("there", ConfigChange("cleanup.policy", 2, "forget"), ErrorCode.INVALID_CONFIG),
        ("there", ConfigChange("cleanup.policy", 3, "delete"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_altered(name: str, change: ConfigChange, code: ErrorCode) -> None:
    assert refused(alter_configs(IMAGE, name, [change], broker=BrokerConfig())) == code


def test_a_setting_of_an_older_version_can_be_deleted() -> None:
    image = Image([Topic("old", ID, (QueueRange(1, 1, (0,)),), {"since.gone": "1"})])
    # Nothing else can be changed before: the answer says which setting is in the way.
    other = alter_configs(image, "old", [ConfigChange("flush.ms", 0, "1")], broker=BrokerConfig())
    assert isinstance(other, Refusal) and "since.gone" in other.message
    decision = decided(alter_configs(image, "old", [ConfigChange("since.gone", 1)], broker=BrokerConfig()))
    assert decision.topic.configs == {}


def test_broker_settings_of_one_and_of_all() -> None:
    one = alter_broker_configs(IMAGE, 1, [ConfigChange("cairn.split.enable", 0, "false")], broker=BrokerConfig())
    assert not isinstance(one, Refusal)
    assert one == ((Put("configs/1", b'{"cairn.split.enable":"false"}'),), {"cairn.split.enable": "false"})
    image = Image(broker_configs={"all": {"log.retention.ms": "5"}})
    off = alter_broker_configs(image, None, [ConfigChange("log.retention.ms", 1)], broker=BrokerConfig())
    assert off == ((Delete("configs/all"),), {})


@pytest.mark.parametrize(
    "change",
    [
        ConfigChange("num.partitions", 0, "3"),
        ConfigChange("queued.max.requests", 0, "3"),
        ConfigChange("sasl.jaas.config", 0, "3"),
        ConfigChange("listener.name.internal.ssl.keystore.location", 0, "3"),
        ConfigChange("cairn.no.such.name", 0, "3"),
        ConfigChange("no.such.name", 0, "x" * (1 << 20)),
        ConfigChange("log.segment.bytes", 0, "3"),
        ConfigChange("log.cleanup.policy", 2, "forget"),
    ],
)
def test_broker_settings_that_cannot_change(change: ConfigChange) -> None:
    """Kafka answers 42 for broker settings where it answers 40 for topics."""
    assert refused(alter_broker_configs(IMAGE, 1, [change], broker=BrokerConfig())) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["no.such.name", "cleanup.policy", "num.io.threads"])
def test_broker_settings_that_have_no_meaning_here_are_kept(name: str) -> None:
    """As Kafka keeps any name that it does not know: kafkajs's own tests set one of topics."""
    kept = alter_broker_configs(IMAGE, 1, [ConfigChange(name, 0, "3")], broker=BrokerConfig())
    assert not isinstance(kept, Refusal) and kept[1] == {name: "3"}
    image = Image(broker_configs={"1": kept[1]})
    gone = alter_broker_configs(image, 1, [], broker=BrokerConfig(), whole=True)
    assert gone == ((Delete("configs/1"),), {})
    listed = alter_broker_configs(image, 1, [ConfigChange(name, 2, "4")], broker=BrokerConfig())
    assert refused(listed) == ErrorCode.INVALID_CONFIG


def test_stored_former_name_of_a_broker_setting() -> None:
    image = Image(broker_configs={"1": {"cairn.journal.retain.bytes": "7"}})
    assert image.dynamic_configs(1) == {"cairn.journal.retention.bytes": "7"}
    change = ConfigChange("cairn.journal.retention.bytes", 1)
    assert alter_broker_configs(image, 1, [change], broker=BrokerConfig()) == ((Delete("configs/1"),), {})
