"""Broker settings: typed, layered, and what is wrong with a wrong one."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.broker import BrokerConfig, broker_config, describe_broker, validate, validate_dynamic
from cairnmq.settings.definition import ConfigSource, ConfigType, Synonym


def made(
    static: dict[str, str], dynamic: dict[str, str] | None = None, dynamic_default: dict[str, str] | None = None
) -> BrokerConfig:
    config = broker_config(static, dynamic=dynamic, dynamic_default=dynamic_default)
    assert isinstance(config, BrokerConfig), config
    return config


def test_defaults_of_the_struct_are_those_of_the_table() -> None:
    assert made({}) == BrokerConfig()


def test_typed_values() -> None:
    config = made({"num.partitions": "6", "auto.create.topics.enable": "FALSE", "cairn.fault.point": "after-write"})
    assert (config.num_partitions, config.auto_create_topics_enable) == (6, False)
    assert config.cairn_fault_point == "after-write"


def test_layers() -> None:
    config = made({"max.connections": "1"}, {"max.connections": "3"}, {"max.connections": "2"})
    assert config.max_connections == 3 and config.text("max.connections") == "3"
    assert made({"max.connections": "1"}, {}, {"max.connections": "2"}).max_connections == 2
    changed = config.changed({}, {})
    assert isinstance(changed, BrokerConfig) and changed.max_connections == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "x"),
        ("node.id", "-1"),
        ("log.segment.bytes", "1000"),
        ("log.retention.ms", "0"),
        ("log.retention.hours", "0"),
        ("log.retention.minutes", "-2"),
        ("log.roll.hours", "0"),
        ("log.cleanup.policy", "forget"),
        ("default.replication.factor", "3"),
        ("cairn.journals", "0"),
        ("cairn.journals", "17"),
        ("cairn.follower.read.max.lag.ms", "0"),
        ("replica.selector.class", "com.example.Nearest"),
        ("log.dirs", "/a,/b"),
        ("log.dirs", ""),
        ("listeners", "a:1,b:2"),
        ("listeners", "localhost"),
        ("listeners", "localhost:99999"),
        ("listeners", "::1:9092"),
        ("listeners", "SSL://localhost:9092"),
        ("advertised.listeners", "SASL_PLAINTEXT://localhost:9092"),
    ],
)
def test_wrong_values(name: str, text: str) -> None:
    refusal = validate(name, text)
    assert refusal is not None and refusal.code == ErrorCode.INVALID_CONFIG and name in refusal.message
    assert isinstance(broker_config({name: text}), Refusal)


@pytest.mark.parametrize("text", ["localhost:9092", "PLAINTEXT://:9092", "127.0.0.1:0", "PLAINTEXT://[::1]:9092"])
def test_listeners(text: str) -> None:
    assert validate("listeners", text) is None


def test_names() -> None:
    wrong = validate("log.retention.hour", "1")
    assert wrong is not None and "log.retention.hours?" in wrong.message
    assert validate("num.io.threads", "8") is None
    assert validate("listener.name.internal.ssl.keystore.location", "/x") is None


def test_run_time_changes() -> None:
    assert validate_dynamic("cairn.split.enable", "false") is None
    for name in ("num.io.threads", "confluent.tier.enable", "cleanup.policy"):
        assert validate_dynamic(name, "2") is None, "has no meaning here, and is kept, as Kafka keeps it"
    for name, text in (
        ("cairn.split.enable", "maybe"), ("cairn.split.enabel", "true"), ("num.partitions", "2"),
        ("process.roles", "x"), ("ssl.client.auth", "required"),
    ):  # fmt: skip
        refusal = validate_dynamic(name, text)
        assert refusal is not None and refusal.code == ErrorCode.INVALID_REQUEST and name in refusal.message


def test_names_that_nobody_knows_are_shown_without_their_values() -> None:
    """They may be secrets of somebody's plugin."""
    config = made({}, {"my.password": "x", "num.io.threads": "3"}, {"my.password": "y", "my.own": "z"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    assert list(entries) == sorted(entries)
    secret, other, known = entries["my.password"], entries["my.own"], entries["num.io.threads"]
    assert (secret.value, secret.sensitive, secret.read_only, secret.type) == (None, True, True, ConfigType.UNKNOWN)
    assert [each.value for each in secret.synonyms] == [None, None]
    assert other.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert (known.value, known.sensitive, known.read_only) == ("3", False, False)


def test_description() -> None:
    config = made({"max.connections": "1", "broker.rack": "r1"}, {"max.connections": "3"}, {"max.connections": "2"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    limit = entries["max.connections"]
    assert (limit.value, limit.source, limit.read_only) == ("3", ConfigSource.DYNAMIC_BROKER_CONFIG, False)
    assert limit.synonyms == (
        Synonym("max.connections", "3", ConfigSource.DYNAMIC_BROKER_CONFIG),
        Synonym("max.connections", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("max.connections", "1", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("max.connections", "2147483647", ConfigSource.DEFAULT_CONFIG),
    )
    rack = entries["broker.rack"]
    assert (rack.value, rack.source, rack.read_only) == ("r1", ConfigSource.STATIC_BROKER_CONFIG, True)
    unset = entries["log.retention.ms"]
    assert (unset.value, unset.source, unset.synonyms) == (None, ConfigSource.DEFAULT_CONFIG, ())
    assert list(entries) == sorted(entries)
    assert all(1 <= entry.source <= 6 and 1 <= entry.type <= 9 for entry in entries.values())
