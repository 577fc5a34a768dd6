"""The settings that have a meaning only in a cluster, as one typed value."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.errors import Refusal
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.definition import read

CLUSTER_FIELDS = {
    "session_ms": "cairn.session.ms",
    "lag_max_ms": "replica.lag.time.max.ms",
    "journals_led": "cairn.journals.led",
    "coordinator_factor": "offsets.topic.replication.factor",
    "secret": "cairn.cluster.secret",
    "internal_advertise": "cairn.internal.advertise",
}


class ClusterConfig(Struct, frozen=True, kw_only=True):
    """All of them need a restart. `secret` is not in `repr`: nobody may see it in a log."""

    session_ms: int
    lag_max_ms: int
    journals_led: int
    coordinator_factor: int
    secret: str | None = None
    internal_advertise: str | None = None

    def __repr__(self) -> str:
        return f"ClusterConfig(session_ms={self.session_ms}, lag_max_ms={self.lag_max_ms}, ...)"


def cluster_config(config: BrokerConfig) -> ClusterConfig:
    """What a broker's settings say about its cluster."""
    table, fields = config.layers.table, dict[str, object]()
    for field, name in CLUSTER_FIELDS.items():
        text = config.text(name)
        value = None if not text else read(table[name], text)
        assert not isinstance(value, Refusal), value
        fields[field] = value
    return ClusterConfig(**fields)  # type: ignore[arg-type]


LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"


def throttled_rate(config: BrokerConfig, name: str) -> int:
    """Bytes per second of installs, as it is set by now."""
    value = read(config.layers.table[name], config.text(name) or "")
    assert isinstance(value, int), value
    return value


SELECTOR, LAG = "replica.selector.class", "cairn.follower.read.max.lag.ms"


def reads_from_followers(config: BrokerConfig) -> bool:
    """Whether consumers that name their rack may read from followers there (KIP-392)."""
    return bool(config.text(SELECTOR))


def follower_lag_max_ms(config: BrokerConfig) -> int:
    """How far a follower may be behind and still serve reads, as it is set by now."""
    value = read(config.layers.table[LAG], config.text(LAG) or "")
    assert isinstance(value, int), value
    return value
