"""Topics and their settings through each client's own admin interface."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop.clients.contract import Client, Refused, Sent

NewTopic = Callable[..., str]
UNKNOWN_TOPIC = 3
INVALID_TOPIC = 17
TOPIC_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40


@pytest.mark.case("Create a topic with partitions and settings", needs=["admin"])
def test_create_topic(client: Client, free_name: str) -> None:
    client.create_topic(free_name, 5, {"retention.ms": "123456", "max.message.bytes": "2000"})
    assert client.partitions(free_name) == 5
    configs = client.topic_configs(free_name)
    assert (configs["retention.ms"], configs["max.message.bytes"]) == ("123456", "2000")


@pytest.mark.case("Create a topic twice", needs=["admin"])
def test_create_twice(client: Client, free_name: str) -> None:
    client.create_topic(free_name, 2)
    with pytest.raises(Refused) as refused:
        client.create_topic(free_name, 3)
    assert refused.value.code == TOPIC_EXISTS
    assert client.partitions(free_name) == 2


@pytest.mark.case("An invalid topic name is refused: {variant}", needs=["admin"])
@pytest.mark.parametrize("name", ["bad/name", "..", "x" * 250], ids=["slash", "dots", "too-long"])
def test_invalid_name(name: str, client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(name)
    assert refused.value.code == INVALID_TOPIC
    assert client.partitions(name) == 0


@pytest.mark.case("A setting nobody knows, or with an impossible value, is refused at creation", needs=["admin"])
def test_invalid_config_at_creation(client: Client, free_name: str) -> None:
    for configs in ({"retention.msec": "1"}, {"retention.ms": "soon"}):
        with pytest.raises(Refused) as refused:
            client.create_topic(free_name, 1, configs)
        assert refused.value.code == INVALID_CONFIG
    assert client.partitions(free_name) == 0


@pytest.mark.case("Delete a topic; a new one of the same name is empty", needs=["admin"])
def test_delete_topic(client: Client, free_name: str) -> None:
    client.create_topic(free_name, 2)
    client.produce(free_name, [Sent(b"old")] * 3)
    client.delete_topic(free_name)
    assert client.partitions(free_name) == 0
    with pytest.raises(Refused) as refused:
        client.delete_topic(free_name)
    assert refused.value.code == UNKNOWN_TOPIC
    client.create_topic(free_name)
    assert client.bounds(free_name, 0) == (0, 0)
    client.produce(free_name, [Sent(b"new")])
    assert [(record.offset, record.value) for record in client.read(free_name)] == [(0, b"new")]


@pytest.mark.case("More partitions, never fewer; records stay", needs=["admin"])
def test_add_partitions(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    client.produce(topic, [Sent(b"before", partition=1)])
    client.add_partitions(topic, 4)
    assert client.partitions(topic) == 4
    client.produce(topic, [Sent(b"after", partition=3)])
    assert sorted((record.partition, record.value) for record in client.read(topic, range(4))) == [
        (1, b"before"),
        (3, b"after"),
    ]
    with pytest.raises(Refused) as refused:
        client.add_partitions(topic, 3)
    assert refused.value.code == INVALID_PARTITIONS
    assert client.partitions(topic) == 4


@pytest.mark.case("Describe settings: Kafka's names and defaults", needs=["admin"])
def test_describe_configs(client: Client, new_topic: NewTopic) -> None:
    configs = client.topic_configs(new_topic())
    expected = {
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "segment.bytes": "1073741824",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "compression.type": "producer",
        "min.insync.replicas": "1",
    }
    assert {name: configs.get(name) for name in expected} == expected


@pytest.mark.case("Describe the settings of a topic that does not exist", needs=["admin", "describe error"])
def test_describe_unknown(client: Client, free_name: str) -> None:
    with pytest.raises(Refused) as refused:
        client.topic_configs(free_name)
    assert refused.value.code == UNKNOWN_TOPIC


@pytest.mark.case("Change settings while running", needs=["admin", "incremental alter"])
def test_alter_configs(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Sent(b"x" * 3000)])
    client.alter_configs(topic, {"max.message.bytes": "2000", "retention.ms": "1000000"})
    configs = client.topic_configs(topic)
    assert (configs["max.message.bytes"], configs["retention.ms"]) == ("2000", "1000000")
    assert client.bounds(topic, 0) == (0, 1)  # whoever leads it has heard of them then
    with pytest.raises(Refused):
        client.produce(topic, [Sent(b"x" * 3000)])
    for wrong in ({"max.message.bites": "1"}, {"max.message.bytes": "many"}):
        with pytest.raises(Refused) as refused:
            client.alter_configs(topic, wrong)
        assert refused.value.code == INVALID_CONFIG
    assert client.topic_configs(topic) == configs
