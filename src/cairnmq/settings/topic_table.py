"""The table of topic settings: all of Kafka 4.3's, with Kafka's defaults and limits, and ours."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from cairnmq.settings.definition import INT64_MAX, ConfigType, Setting, Value

DAY_MS = 24 * 60 * 60 * 1000
MIN_MS = 60 * 1000
HOUR_MS = 60 * MIN_MS
FOREVER = str(INT64_MAX)
FLUSH_POLICIES = ("commit", "interval", "none")
MODELS = ("dedicated", "shared", "auto")


class BrokerName(Struct, frozen=True, gc=False):
    """A broker setting that gives a topic setting its default; `factor` turns its unit into the topic's."""

    name: str
    factor: int = 1


class TopicSetting(Struct, frozen=True):
    """A topic setting and its broker names, strongest first; the last one carries the default."""

    setting: Setting
    broker_names: tuple[BrokerName, ...] = ()


def only(*allowed: Value, why: str) -> Callable[[Value], str | None]:
    """A limit: any other value is valid in Kafka, but not supported yet."""
    return lambda value: None if value in allowed else why


def _number(
    name: str,
    type: ConfigType,
    default: int | float,
    doc: str,
    *brokers: BrokerName | str,
    low: float | None = None,
    high: float | None = None,
    limit: Callable[[Value], str | None] | None = None,
    hidden: bool = False,
) -> TopicSetting:
    setting = Setting(
        name=name,
        type=type,
        default=str(default),
        doc=doc,
        low=low,
        high=high,
        limit=limit,
        dynamic=True,
        hidden=hidden,
    )
    return TopicSetting(setting, tuple(BrokerName(b) if isinstance(b, str) else b for b in brokers))


def _text(
    name: str,
    type: ConfigType,
    default: str,
    doc: str,
    *brokers: str,
    choices: tuple[str, ...] = (),
    limit: Callable[[Value], str | None] | None = None,
    hidden: bool = False,
) -> TopicSetting:
    setting = Setting(
        name=name,
        type=type,
        default=default,
        doc=doc,
        choices=choices,
        limit=limit,
        dynamic=True,
        hidden=hidden,
    )
    return TopicSetting(setting, tuple(BrokerName(b) for b in brokers))


def _gzip_level(value: Value) -> str | None:
    return None if value == -1 or (isinstance(value, int) and 1 <= value <= 9) else "must be -1 or between 1 and 9"


def _policy(value: Value) -> str | None:
    return None if value else "must not be empty"


_INSTALLS_ALONE = "installs are throttled by *.replication.throttled.rate alone"
_A_PERSON = "an unclean election is asked for by a person: `cairn cluster elect --unclean J`"
_NO_REMOTE = "tiered storage is not supported yet"
_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

_ROWS = (
    _text(
        "cleanup.policy", _LIST, "delete", "Delete old records (delete), keep only the last record of each key "
        "(compact), or both.",
        "log.cleanup.policy", choices=("compact", "delete"), limit=_policy,
    ),
    _number(
        "compression.gzip.level", _INT, -1, "Level for gzip when the broker compresses.", "compression.gzip.level",
        limit=_gzip_level,
    ),
    _number(
        "compression.lz4.level", _INT, 9, "Level for lz4 when the broker compresses.", "compression.lz4.level",
        low=1, high=17,
    ),
    _text(
        "compression.type", _STRING, "producer", "Codec of stored batches; producer: as the producer sent them.",
        "compression.type", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        limit=only("producer", why="batches are stored as producers send them; only producer is supported"),
    ),
    _number(
        "compression.zstd.level", _INT, 3, "Level for zstd when the broker compresses.", "compression.zstd.level",
        low=-131072, high=22,
    ),
    _number(
        "delete.retention.ms", _LONG, DAY_MS, "How long a compacted topic keeps tombstones.",
        "log.cleaner.delete.retention.ms", low=0,
    ),
    _number(
        "file.delete.delay.ms", _LONG, MIN_MS, "Delay before a file that is no longer needed is deleted from disk.",
        "log.segment.delete.delay.ms", low=0,
    ),
    _number(
        "flush.messages", _LONG, INT64_MAX, "With cairn.flush=interval: records after which the journal is synced.",
        "log.flush.interval.messages", low=1,
    ),
    _number(
        "flush.ms", _LONG, 500, "Maximum time until written records are synced.",
        "log.flush.interval.ms", low=0,
    ),
    _text(
        "follower.replication.throttled.replicas", _LIST, "", "Replicas whose replication is throttled as followers; "
        "here installs are, by follower.replication.throttled.rate alone.",
        limit=only((), why=_INSTALLS_ALONE),
    ),
    _number(
        "index.interval.bytes", _INT, 4096, "Bytes of records between two entries of the offset index.",
        "log.index.interval.bytes", low=0,
    ),
    _text(
        "leader.replication.throttled.replicas", _LIST, "", "Replicas whose replication is throttled as leaders; "
        "here installs are, by leader.replication.throttled.rate alone.",
        limit=only((), why=_INSTALLS_ALONE),
    ),
    _number(
        "local.retention.bytes", _LONG, -2, "Size kept locally with tiered storage; -2: retention.bytes.",
        "log.local.retention.bytes", low=-2,
    ),
    _number(
        "local.retention.ms", _LONG, -2, "Time kept locally with tiered storage; -2: retention.ms.",
        "log.local.retention.ms", low=-2,
    ),
    _number(
        "max.compaction.lag.ms", _LONG, INT64_MAX, "Maximum time a record may stay uncompacted.",
        "log.cleaner.max.compaction.lag.ms", low=1,
    ),
    _number(
        "max.message.bytes", _INT, 1024 * 1024 + 12, "Maximum size of a batch, as sent (after compression).",
        "message.max.bytes", low=0,
    ),
    _number(
        "message.timestamp.after.max.ms", _LONG, HOUR_MS, "How far a timestamp may be ahead of the broker's clock.",
        "log.message.timestamp.after.max.ms", low=0,
    ),
    _number(
        "message.timestamp.before.max.ms", _LONG, INT64_MAX, "How far a timestamp may be behind the broker's clock.",
        "log.message.timestamp.before.max.ms", low=0,
    ),
    _text(
        "message.timestamp.type", _STRING, "CreateTime", "Timestamps of records: set by the producer (CreateTime) "
        "or by the broker (LogAppendTime).",
        "log.message.timestamp.type", choices=("CreateTime", "LogAppendTime"),
    ),
    _number(
        "min.cleanable.dirty.ratio", _DOUBLE, 0.5, "Share of uncompacted bytes at which compaction starts.",
        "log.cleaner.min.cleanable.ratio", low=0, high=1,
    ),
    _number(
        "min.compaction.lag.ms", _LONG, 0, "Minimum time a record stays uncompacted.",
        "log.cleaner.min.compaction.lag.ms", low=0,
    ),
    _number(
        "min.insync.replicas", _INT, 1, "Replicas that must have a record before it is acknowledged with acks=all.",
        "min.insync.replicas", low=1,
    ),
    _text(
        "preallocate", _BOOLEAN, "false", "Allocate disk space for a segment when it is created.", "log.preallocate",
        limit=only(False, why="segments are not preallocated"),
    ),
    _text(
        "remote.log.copy.disable", _BOOLEAN, "false", "Stop copying segments to remote storage.",
        limit=only(False, why=_NO_REMOTE),
    ),
    _text(
        "remote.log.delete.on.disable", _BOOLEAN, "false", "Delete remote data when remote storage is switched off.",
        limit=only(False, why=_NO_REMOTE),
    ),
    _text(
        "remote.storage.enable", _BOOLEAN, "false", "Copy closed segments to remote storage.",
        limit=only(False, why=_NO_REMOTE),
    ),
    _number("retention.bytes", _LONG, -1, "Maximum size of a partition; older records are deleted; -1: no limit.",
    "log.retention.bytes"),
    _number(
        "retention.ms", _LONG, 7 * DAY_MS, "How long records are kept; -1: forever.",
        "log.retention.ms", BrokerName("log.retention.minutes", MIN_MS), BrokerName("log.retention.hours", HOUR_MS),
        low=-1,
    ),
    _number(
        "segment.bytes", _INT, 1024**3, "Size at which a partition starts a new segment.", "log.segment.bytes",
        low=1024 * 1024,
    ),
    _number(
        "segment.index.bytes", _INT, 10 * 1024 * 1024, "Size of a segment's index at which a partition starts a new "
        "segment.",
        "log.index.size.max.bytes", low=4,
    ),
    _number(
        "segment.jitter.ms", _LONG, 0, "Maximum random time subtracted from segment.ms.",
        "log.roll.jitter.ms", BrokerName("log.roll.jitter.hours", HOUR_MS), low=0,
        limit=only(0, why="jitter is not supported: the splitter spreads new segments over time"),
    ),
    _number(
        "segment.ms", _LONG, 7 * DAY_MS, "Age at which a partition starts a new segment.",
        "log.roll.ms", BrokerName("log.roll.hours", HOUR_MS), low=1,
    ),
    _text(
        "unclean.leader.election.enable", _BOOLEAN, "false", "Allow a replica that lacks acknowledged records to "
        "become leader.",
        "unclean.leader.election.enable", limit=only(False, why=_A_PERSON),
    ),
    # Kafka's own tests need small segments too, and have this name for it; never listed.
    _number(
        "internal.segment.bytes", _INT, 1024**3, "segment.bytes without its lower limit, for tests.", low=1024,
        hidden=True,
    ),
    _text(
        "cairn.flush", _STRING, "commit", "When acks=all is acknowledged: after a sync (commit), or once written "
        "(interval, none).",
        "cairn.flush", choices=FLUSH_POLICIES,
    ),
    _text(
        "cairn.model", _STRING, "auto", "How partitions are stored: own segment files (dedicated), shared packs "
        "(shared), or by size (auto).",
        "cairn.model", choices=MODELS,
    ),
    _text(
        "cairn.engine", _STRING, "journal", "Storage engine of the topic.", "cairn.engine",
        choices=("journal", "memory", "kv", "sql", "object"),
        limit=only("journal", why="other engines are not supported yet"),
    ),
    # Names that are promised and do nothing yet: refused with a reason, but not listed as if they could be set.
    _text(
        "cairn.archive", _STRING, "", "Where the topic is archived.",
        limit=only("", why="archives are not supported yet"), hidden=True,
    ),
    _text(
        "cairn.view.of", _STRING, "", "The topic this one is a view of.",
        limit=only("", why="filtered views are not supported yet"), hidden=True,
    ),
    _text(
        "cairn.view.filter", _STRING, "", "Filter of the view.",
        limit=only("", why="filtered views are not supported yet"), hidden=True,
    ),
)  # fmt: skip

TOPIC: dict[str, TopicSetting] = {row.setting.name: row for row in _ROWS}
