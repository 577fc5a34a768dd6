"""A topic's settings: checks, what holds in the end (topic over broker over default), and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.broker_table import BROKER
from cairnmq.settings.definition import ConfigEntry, ConfigSource, Synonym, Value, nearest, read
from cairnmq.settings.topic_table import TOPIC, BrokerName, TopicSetting

Flush = Literal["commit", "interval", "none"]
Model = Literal["dedicated", "shared", "auto"]
# Compaction may make batches longer, and an index holds no positions behind 2^31 - 1.
COMPACTED_SEGMENT_BYTES_MAX = 0x70000000


class LogConfig(Struct, frozen=True, kw_only=True, gc=False):
    """What storage needs to know of a topic's settings. The defaults are those of a topic that sets nothing."""

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    max_message_bytes: int = 1024 * 1024 + 12
    append_time: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3600 * 1000
    flush: Flush = "commit"
    flush_ms: int = 500
    flush_messages: int = 2**63 - 1
    file_delete_delay_ms: int = 60_000
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    model: Model = "auto"
    compact: bool = False
    delete: bool = True
    delete_retention_ms: int = 24 * 3600 * 1000
    compaction_lag_min_ms: int = 0
    compaction_lag_max_ms: int = 2**63 - 1
    dirty_ratio_min: float = 0.5


def validate(name: str, value: str) -> Refusal | None:
    """Whether a topic setting may have this text."""
    row = TOPIC.get(name)
    if row is None:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown topic setting {name}{nearest(name, TOPIC)}")
    found = read(row.setting, value)
    return found if isinstance(found, Refusal) else None


def validate_all(configs: Mapping[str, str], broker: BrokerConfig) -> Refusal | None:
    """Whether a topic may have all these settings together."""
    for name, text in configs.items():
        refusal = validate(name, text)
        if refusal is not None:
            return refusal
    low, high = (_value(name, configs, broker) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if cast(int, low) > cast(int, high):
        why = f"min.compaction.lag.ms ({low}) is larger than max.compaction.lag.ms ({high})"
        return Refusal(ErrorCode.INVALID_CONFIG, why)
    return None


def effective(configs: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """What holds for a topic with these (valid) settings on a broker with those."""

    def number(name: str) -> int:
        return cast(int, _value(name, configs, broker))

    small = "internal.segment.bytes"
    policies = cast(tuple[str, ...], _value("cleanup.policy", configs, broker))
    model = cast(Model, _value("cairn.model", configs, broker))  # packs of compacted topics only where asked for
    compact, lag_max_ms = "compact" in policies, number("max.compaction.lag.ms")
    segment_bytes = number(small if small in configs else "segment.bytes")
    return LogConfig(
        segment_bytes=min(segment_bytes, COMPACTED_SEGMENT_BYTES_MAX) if compact else segment_bytes,
        # only closed segments are compacted, so they close in time for it
        segment_ms=min(number("segment.ms"), lag_max_ms) if compact else number("segment.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        index_bytes_max=number("segment.index.bytes"),
        retention_ms=number("retention.ms") if "delete" in policies else -1,
        retention_bytes=number("retention.bytes") if "delete" in policies else -1,
        max_message_bytes=number("max.message.bytes"),
        append_time=_value("message.timestamp.type", configs, broker) == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        flush=cast(Flush, _value("cairn.flush", configs, broker)),
        flush_ms=number("flush.ms"),
        flush_messages=number("flush.messages"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        min_insync_replicas=number("min.insync.replicas"),
        compression_type=cast(str, _value("compression.type", configs, broker)),
        model="dedicated" if compact and model == "auto" else model,
        compact=compact,
        delete="delete" in policies,
        delete_retention_ms=number("delete.retention.ms"),
        compaction_lag_min_ms=number("min.compaction.lag.ms"),
        compaction_lag_max_ms=lag_max_ms,
        dirty_ratio_min=cast(float, _value("min.cleanable.dirty.ratio", configs, broker)),
    )


def describe_topic(configs: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Every topic setting as DescribeConfigs shows it, by name."""
    entries = []
    for name in sorted(TOPIC):
        row = TOPIC[name]
        if row.setting.hidden and name not in configs:
            continue
        text, source = _text(row, configs, broker)
        chain = _synonyms(row, configs, broker)
        entries.append(ConfigEntry(name, text, source, False, False, row.setting.type, row.setting.doc, tuple(chain)))
    return entries


def default_text(name: str, broker: BrokerConfig) -> str:
    """The text a topic setting has when the topic does not set it."""
    return _text(TOPIC[name], {}, broker)[0]


def _value(name: str, configs: Mapping[str, str], broker: BrokerConfig) -> Value:
    row = TOPIC[name]
    value = read(row.setting, _text(row, configs, broker)[0])
    assert not isinstance(value, Refusal), value
    return value


def _text(row: TopicSetting, configs: Mapping[str, str], broker: BrokerConfig) -> tuple[str, ConfigSource]:
    if row.setting.name in configs:
        return configs[row.setting.name], ConfigSource.DYNAMIC_TOPIC_CONFIG
    for synonym in row.broker_names:
        found = broker.layers.lookup(synonym.name)
        if found is not None:
            return _converted(found[0], synonym), found[1]
    assert row.setting.default is not None
    return row.setting.default, ConfigSource.DEFAULT_CONFIG


def _converted(text: str, synonym: BrokerName) -> str:
    """A broker's text in the topic's unit; every negative time means no limit."""
    if synonym.factor == 1:
        return text
    number = int(text)
    return str(number * synonym.factor if number >= 0 else -1)


def _synonyms(row: TopicSetting, configs: Mapping[str, str], broker: BrokerConfig) -> list[Synonym]:
    name = row.setting.name
    chain = [Synonym(name, configs[name], ConfigSource.DYNAMIC_TOPIC_CONFIG)] if name in configs else []
    for synonym in row.broker_names:
        chain.extend(broker.layers.chain(synonym.name))
    if not row.broker_names:
        return [*chain, Synonym(name, row.setting.default, ConfigSource.DEFAULT_CONFIG)]
    last = row.broker_names[-1].name
    return [*chain, Synonym(last, BROKER[last].default, ConfigSource.DEFAULT_CONFIG)]
