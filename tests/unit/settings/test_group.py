"""Group settings: names, limits, how they are shown."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.broker import BrokerConfig, broker_config
from cairnmq.settings.definition import ConfigSource
from cairnmq.settings.group import GROUP, describe_group, validate, validate_all

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_defaults_are_valid() -> None:
    assert validate_all({name: str(setting.default) for name, setting in GROUP.items()}) is None
    assert validate_all({}) is None


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        (SESSION, "44999", "at least 45000"),
        (SESSION, "60001", "at most 60000"),
        (HEARTBEAT, "4999", "at least 5000"),
        (HEARTBEAT, "soon", "whole number"),
        ("consumer.sesion.timeout.ms", "45000", f"did you mean {SESSION}"),
        ("share.auto.offset.reset", "latest", "not supported yet"),
        ("cairn.retry.max", "3", "not supported yet"),
    ],
)
def test_refused(name: str, text: str, word: str) -> None:
    for refusal in (validate(name, text), validate_all({name: text})):
        assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.INVALID_CONFIG
        assert word in refusal.message


def test_shown_with_the_group_s_own_value_first() -> None:
    rows = {entry.name: entry for entry in describe_group({SESSION: "50000"}, BrokerConfig())}
    assert (rows[SESSION].value, rows[SESSION].source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert [each.value for each in rows[SESSION].synonyms] == ["50000", "45000"]
    assert (rows[HEARTBEAT].value, rows[HEARTBEAT].source) == ("5000", ConfigSource.DEFAULT_CONFIG)


def test_what_it_does_not_set_is_shown_under_the_name_of_the_broker_s_setting() -> None:
    """As Kafka does it since 4.3."""
    broker = broker_config({f"group.{HEARTBEAT}": "6000"})
    assert isinstance(broker, BrokerConfig)
    (heartbeat,) = (entry for entry in describe_group({}, broker) if entry.name == HEARTBEAT)
    assert (heartbeat.value, heartbeat.source) == ("6000", ConfigSource.STATIC_BROKER_CONFIG)
    assert [(each.name, each.value) for each in heartbeat.synonyms] == [
        (f"group.{HEARTBEAT}", "6000"), (f"group.{HEARTBEAT}", "5000")
    ]  # fmt: skip
