"""Topic settings: Kafka's limits, our refusals, the order topic > broker > default, and how they are described."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.broker import BrokerConfig, broker_config
from cairnmq.settings.definition import ConfigEntry, ConfigSource, ConfigType, Synonym
from cairnmq.settings.topic import LogConfig, default_text, describe_topic, effective, validate, validate_all
from cairnmq.settings.topic_table import MODELS, TOPIC

DEFAULT = BrokerConfig()


def broker(
    static: dict[str, str], dynamic: dict[str, str] | None = None, dynamic_default: dict[str, str] | None = None
) -> BrokerConfig:
    config = broker_config(static, dynamic=dynamic, dynamic_default=dynamic_default)
    assert isinstance(config, BrokerConfig), config
    return config


def entry(name: str, configs: dict[str, str], config: BrokerConfig) -> ConfigEntry:
    (found,) = [entry for entry in describe_topic(configs, config) if entry.name == name]
    return found


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("segment.bytes", ["1048576", "2147483647"], ["1048575", "2147483648", "x", ""]),
        ("segment.ms", ["1", "9223372036854775807"], ["0", "-1"]),
        ("segment.index.bytes", ["4"], ["3"]),
        ("flush.ms", ["0", "500"], ["-1"]),
        ("flush.messages", ["1"], ["0"]),
        ("retention.ms", ["-1", "0", "1"], ["-2"]),
        ("retention.bytes", ["-1", "0", "5"], ["x"]),
        ("max.message.bytes", ["0", "1"], ["-1"]),
        ("index.interval.bytes", ["0"], ["-1"]),
        ("delete.retention.ms", ["0"], ["-1"]),
        ("min.compaction.lag.ms", ["0"], ["-1"]),
        ("max.compaction.lag.ms", ["1"], ["0"]),
        ("min.cleanable.dirty.ratio", ["0", "1", "0.3"], ["1.1", "-0.1", "nan"]),
        ("min.insync.replicas", ["1", "2"], ["0"]),
        ("message.timestamp.type", ["CreateTime", "LogAppendTime"], ["createtime", ""]),
        ("message.timestamp.before.max.ms", ["0"], ["-1"]),
        ("compression.gzip.level", ["-1", "1", "9"], ["0", "10"]),
        ("compression.lz4.level", ["1", "17"], ["0", "18"]),
        ("compression.zstd.level", ["-131072", "22"], ["23", "-131073"]),
        ("local.retention.ms", ["-2", "-1", "0"], ["-3"]),
        ("cairn.flush", ["commit", "interval", "none"], ["always"]),
    ],
)
def test_kafkas_limits(name: str, good: list[str], bad: list[str]) -> None:
    for text in good:
        assert validate(name, text) is None, text
    for text in bad:
        refusal = validate(name, text)
        assert refusal is not None and refusal.code == ErrorCode.INVALID_CONFIG and name in refusal.message, text


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("cleanup.policy", "", "empty"),
        ("cleanup.policy", "forget", "one of"),
        ("compression.type", "gzip", "producer"),
        ("remote.storage.enable", "true", "tiered"),
        ("unclean.leader.election.enable", "true", "an unclean election is asked for by a person"),
        ("leader.replication.throttled.replicas", "0:1", "installs are throttled by"),
        ("cairn.engine", "memory", "engines"),
        ("cairn.archive", "file:///a", "archive"),
        ("cairn.view.of", "other", "views"),
        ("segment.jitter.ms", "5", "jitter"),
        ("preallocate", "true", "preallocated"),
    ],
)
def test_what_cannot_be_had_yet_is_said(name: str, text: str, word: str) -> None:
    refusal = validate(name, text)
    assert refusal is not None and refusal.code == ErrorCode.INVALID_CONFIG
    assert word in refusal.message


def test_what_does_nothing_yet_is_not_listed() -> None:
    listed = {entry.name for entry in describe_topic({}, DEFAULT)}
    assert not any(name.startswith(("cairn.archive", "cairn.view.")) for name in listed)
    assert {"cairn.flush", "retention.ms"} <= listed


def test_an_unknown_name_suggests_the_nearest() -> None:
    refusal = validate("retention.msec", "5")
    assert refusal is not None and "retention.ms?" in refusal.message


def test_lags_must_fit_together_also_with_the_brokers() -> None:
    assert validate_all({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, DEFAULT) is None
    assert validate_all({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, DEFAULT) is not None
    assert validate_all({"min.compaction.lag.ms": "6"}, broker({"log.cleaner.max.compaction.lag.ms": "5"})) is not None
    assert validate_all({"segment.bytes": "x"}, DEFAULT) is not None


def test_defaults_of_the_struct_are_those_of_the_table() -> None:
    assert effective({}, DEFAULT) == LogConfig()


def test_the_cleanup_policy_decides_what_retention_means() -> None:
    times = {"retention.ms": "5", "retention.bytes": "6", "segment.ms": "100", "max.compaction.lag.ms": "50"}
    kept = effective({**times, "cleanup.policy": "compact"}, DEFAULT)
    assert (kept.compact, kept.retention_ms, kept.retention_bytes, kept.segment_ms) == (True, -1, -1, 50)
    both = effective({**times, "cleanup.policy": "compact,delete"}, DEFAULT)
    assert (both.compact, both.retention_ms, both.retention_bytes, both.segment_ms) == (True, 5, 6, 50)
    only = effective({**times, "cleanup.policy": "delete"}, DEFAULT)
    assert (only.compact, only.retention_ms, only.retention_bytes, only.segment_ms) == (False, 5, 6, 100)
    models = {model: effective({"cleanup.policy": "compact", "cairn.model": model}, DEFAULT).model for model in MODELS}
    assert models == {"auto": "dedicated", "dedicated": "dedicated", "shared": "shared"}


def test_every_field_follows_its_setting() -> None:
    configs = {
        "segment.bytes": "2000000",
        "segment.ms": "11",
        "index.interval.bytes": "12",
        "segment.index.bytes": "13",
        "retention.ms": "14",
        "retention.bytes": "15",
        "max.message.bytes": "16",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "17",
        "message.timestamp.after.max.ms": "18",
        "cairn.flush": "interval",
        "flush.ms": "19",
        "flush.messages": "20",
        "file.delete.delay.ms": "21",
        "min.insync.replicas": "22",
        "compression.type": "producer",
        "delete.retention.ms": "23",
        "min.compaction.lag.ms": "24",
        "max.compaction.lag.ms": "25",
        "min.cleanable.dirty.ratio": "0.26",
    }
    assert validate_all(configs, DEFAULT) is None
    assert effective(configs, DEFAULT) == LogConfig(
        segment_bytes=2000000,
        segment_ms=11,
        index_interval_bytes=12,
        index_bytes_max=13,
        retention_ms=14,
        retention_bytes=15,
        max_message_bytes=16,
        append_time=True,
        timestamp_before_max_ms=17,
        timestamp_after_max_ms=18,
        flush="interval",
        flush_ms=19,
        flush_messages=20,
        file_delete_delay_ms=21,
        min_insync_replicas=22,
        delete_retention_ms=23,
        compaction_lag_min_ms=24,
        compaction_lag_max_ms=25,
        dirty_ratio_min=0.26,
    )


def test_segments_of_compacted_topics_leave_room_for_what_compaction_adds() -> None:
    largest = {"segment.bytes": str(2**31 - 1)}
    assert effective(largest, DEFAULT).segment_bytes == 2**31 - 1
    for policy in ("compact", "compact,delete"):
        assert effective({**largest, "cleanup.policy": policy}, DEFAULT).segment_bytes == 7 << 28
    assert effective({"segment.bytes": "2000000", "cleanup.policy": "compact"}, DEFAULT).segment_bytes == 2000000


def test_tests_can_have_small_segments() -> None:
    assert effective({"internal.segment.bytes": "1024", "segment.bytes": "5000000"}, DEFAULT).segment_bytes == 1024
    assert "internal.segment.bytes" not in {entry.name for entry in describe_topic({}, DEFAULT)}


@pytest.mark.parametrize(
    ("static", "dynamic_default", "dynamic", "wanted"),
    [
        ({}, {}, {}, 604800000),
        ({"log.retention.hours": "2"}, {}, {}, 7200000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {}, {}, 180000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, {}, {}, 4),
        ({"log.retention.ms": "4"}, {"log.retention.ms": "5"}, {}, 5),
        ({"log.retention.ms": "4"}, {"log.retention.ms": "5"}, {"log.retention.ms": "6"}, 6),
        ({"log.retention.minutes": "3"}, {}, {"log.retention.ms": "6"}, 6),
        ({"log.retention.hours": "-1"}, {}, {}, -1),
    ],
)
def test_the_strongest_broker_name_wins(
    static: dict[str, str], dynamic_default: dict[str, str], dynamic: dict[str, str], wanted: int
) -> None:
    config = broker(static, dynamic, dynamic_default)
    assert effective({}, config).retention_ms == wanted
    assert effective({"retention.ms": "99"}, config).retention_ms == 99
    assert default_text("retention.ms", config) == str(wanted)


def test_roll_hours_and_flush_reach_topics() -> None:
    config = broker({"log.roll.hours": "1", "cairn.flush": "none", "log.flush.interval.ms": "77"})
    log = effective({}, config)
    assert (log.segment_ms, log.flush, log.flush_ms) == (3600000, "none", 77)


def test_description_of_a_default() -> None:
    found = entry("segment.bytes", {}, DEFAULT)
    assert (found.value, found.source, found.type) == ("1073741824", ConfigSource.DEFAULT_CONFIG, ConfigType.INT)
    assert not found.read_only and not found.sensitive
    assert found.synonyms == (Synonym("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),)


def test_description_of_a_whole_chain() -> None:
    config = broker(
        {"log.segment.bytes": "3000000"}, {"log.segment.bytes": "4000000"}, {"log.segment.bytes": "5000000"}
    )
    found = entry("segment.bytes", {"segment.bytes": "2000000"}, config)
    assert (found.value, found.source) == ("2000000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert found.synonyms == (
        Synonym("segment.bytes", "2000000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        Synonym("log.segment.bytes", "4000000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        Synonym("log.segment.bytes", "5000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("log.segment.bytes", "3000000", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    )


def test_description_converts_units() -> None:
    found = entry("retention.ms", {}, broker({"log.retention.hours": "1"}))
    assert (found.value, found.source) == ("3600000", ConfigSource.STATIC_BROKER_CONFIG)
    assert found.synonyms[0] == Synonym("log.retention.hours", "1", ConfigSource.STATIC_BROKER_CONFIG)


def test_every_description_is_what_java_accepts() -> None:
    """Java's admin client fails on a source or type outside its lists, and Kafka Connect reads cleanup.policy."""
    entries = describe_topic({"flush.ms": "1"}, DEFAULT)
    assert [entry.name for entry in entries] == sorted(name for name, row in TOPIC.items() if not row.setting.hidden)
    for found in entries:
        assert 1 <= found.source <= 6 and 1 <= found.type <= 9 and found.value is not None
        assert not isinstance(validate(found.name, found.value), Refusal)
        assert all(1 <= synonym.source <= 6 for synonym in found.synonyms)
    assert entry("cleanup.policy", {}, DEFAULT).value == "delete"
