"""The broker's table: every topic default has its broker row, and what may change at run time is as in Kafka."""

from __future__ import annotations

import pytest

from cairnmq.errors import Refusal
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.broker_table import ALIASES, BROKER, FORMER_NAMES, with_current_names
from cairnmq.settings.cluster import CLUSTER_FIELDS, FOLLOWER, LAG, LEADER, SELECTOR
from cairnmq.settings.definition import read
from cairnmq.settings.topic_table import TOPIC

KAFKA = {
    "num.partitions": "1",
    "auto.create.topics.enable": "true",
    "delete.topic.enable": "true",
    "default.replication.factor": "1",
    "message.max.bytes": "1048588",
    "socket.request.max.bytes": "104857600",
    "connections.max.idle.ms": "600000",
    "max.connections": "2147483647",
    "fetch.max.bytes": "57671680",
    "max.incremental.fetch.session.cache.slots": "1000",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "group.initial.rebalance.delay.ms": "3000",
    "group.max.size": "2147483647",
    "offset.metadata.max.bytes": "4096",
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "producer.id.expiration.ms": "86400000",
    "log.retention.check.interval.ms": "300000",
    "log.retention.hours": "168",
    "log.retention.minutes": None,
    "log.retention.ms": None,
    "log.roll.hours": "168",
    "log.roll.ms": None,
    "log.retention.bytes": "-1",
    "log.segment.bytes": "1073741824",
    "log.index.interval.bytes": "4096",
    "log.message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}
OURS = {
    "cairn.flush": "commit",
    "cairn.journals": "1",
    "cairn.unsplit.bytes.max": "1073741824",
    "cairn.unsplit.entries.max": "1000000",
    "cairn.model": "auto",
    "cairn.split.enable": "true",
    "log.flush.interval.ms": "500",
}


@pytest.mark.parametrize(("name", "default"), [*KAFKA.items(), *OURS.items()])
def test_defaults(name: str, default: str | None) -> None:
    assert BROKER[name].default == default


@pytest.mark.parametrize("name", BROKER)
def test_every_default_is_allowed(name: str) -> None:
    default = BROKER[name].default
    assert default is None or not isinstance(read(BROKER[name], default), Refusal)


@pytest.mark.parametrize(
    "name",
    ["log.segment.bytes", "log.retention.ms", "log.roll.ms", "message.max.bytes", "min.insync.replicas",
     "max.connections", "producer.id.expiration.ms", "cairn.split.enable", "cairn.unsplit.bytes.max", "cairn.flush"],
)  # fmt: skip
def test_what_may_change_at_run_time(name: str) -> None:
    assert BROKER[name].dynamic


@pytest.mark.parametrize(
    "name",
    ["node.id", "listeners", "log.dirs", "num.partitions", "auto.create.topics.enable", "log.retention.hours",
     "log.retention.minutes", "log.roll.hours", "socket.request.max.bytes", "cairn.journals", "cairn.fault.point"],
)  # fmt: skip
def test_what_needs_a_restart(name: str) -> None:
    assert not BROKER[name].dynamic


def test_topic_defaults_have_rows() -> None:
    for row in TOPIC.values():
        for synonym in row.broker_names:
            assert synonym.name in BROKER


def test_every_row_of_the_broker_itself_reaches_someone() -> None:
    """A setting is a typed field, a default of topics, of a cluster alone, or stands for a flag; nothing else."""
    defaults = {synonym.name for row in TOPIC.values() for synonym in row.broker_names}
    flags = {"node.id", "broker.rack", "listeners", "advertised.listeners", "log.dirs", "zookeeper.connect"}
    fields = {name for name in BROKER if name.replace(".", "_") in BrokerConfig.__struct_fields__}
    read_when_needed = {LEADER, FOLLOWER, SELECTOR, LAG}
    assert set(BROKER) == fields | defaults | flags | set(CLUSTER_FIELDS.values()) | read_when_needed
    assert set(ALIASES.values()) <= flags


def test_former_names_lead_to_settings() -> None:
    assert set(FORMER_NAMES.values()) <= set(BROKER) and not set(FORMER_NAMES) & set(BROKER)


def test_current_name_wins_over_a_former_one() -> None:
    assert with_current_names({"cairn.checkpoint.ms": "1", "a": "2"}) == {"cairn.checkpoint.interval.ms": "1", "a": "2"}
    both = {"cairn.checkpoint.ms": "1", "cairn.checkpoint.interval.ms": "2"}
    assert with_current_names(both) == {"cairn.checkpoint.interval.ms": "2"}
