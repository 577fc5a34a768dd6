"""Settings of a cluster: other defaults than on one node, and a secret that nobody is shown."""

from __future__ import annotations

import pytest

from cairnmq.errors import Refusal
from cairnmq.settings.broker import BrokerConfig, broker_config, describe_broker
from cairnmq.settings.cluster import CLUSTER_FIELDS, ClusterConfig, cluster_config
from cairnmq.settings.sources import load

SECRET = "sixteen letters!"


def made(static: dict[str, str] | None = None) -> BrokerConfig:
    config = broker_config(static or {}, in_cluster=True)
    assert isinstance(config, BrokerConfig), config
    return config


def test_defaults() -> None:
    config = cluster_config(made())
    assert (config.session_ms, config.lag_max_ms, config.journals_led, config.coordinator_factor) == (
        6000,
        10_000,
        2,
        3,
    )
    assert config.secret is None and config.internal_advertise is None
    assert set(ClusterConfig.__struct_fields__) == set(CLUSTER_FIELDS)


def test_what_is_set() -> None:
    given = {"cairn.session.ms": "2000", "cairn.internal.advertise": "h:1", "cairn.cluster.secret": SECRET}
    config = cluster_config(made(given))
    assert (config.session_ms, config.internal_advertise, config.secret) == (2000, "h:1", SECRET)
    assert SECRET not in repr(config)


def test_a_cluster_has_other_defaults_than_one_node() -> None:
    alone = broker_config({})
    assert isinstance(alone, BrokerConfig)
    assert (alone.default_replication_factor, alone.cairn_journal_retention_bytes) == (1, 0)
    config = made()
    assert (config.default_replication_factor, config.cairn_journal_retention_bytes) == (3, 2 * 1024**3)
    assert config.text("default.replication.factor") == "3"
    assert {entry.name: entry.value for entry in describe_broker(config)}["default.replication.factor"] == "3"
    changed = config.changed({}, {"num.partitions": "4"})
    assert isinstance(changed, BrokerConfig) and changed.default_replication_factor == 3


@pytest.mark.parametrize(("factor", "served"), [("1", True), ("2", True), ("5", True), ("0", False)])
def test_replication_factor(factor: str, served: bool) -> None:
    loaded = load(sets=[("default.replication.factor", factor)], in_cluster=True)
    assert isinstance(loaded, Refusal) != served
    assert isinstance(load(sets=[("default.replication.factor", factor)]), Refusal) == (factor != "1")


def test_the_secret_is_never_shown() -> None:
    short = broker_config({"cairn.cluster.secret": "too-short"}, in_cluster=True)
    assert isinstance(short, Refusal) and "at least 16 characters" in short.message and "too-short" not in short.message
    (shown,) = [e for e in describe_broker(made({"cairn.cluster.secret": SECRET})) if e.name == "cairn.cluster.secret"]
    assert shown.value is None and shown.sensitive and SECRET not in repr(shown)
