"""The table of broker settings that have a meaning here: Kafka's names, and ours with the prefix cairn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from cairnmq.settings.definition import ConfigType, Setting, Value
from cairnmq.settings.topic_table import TOPIC, TopicSetting, only

JOURNALS_MAX = 16
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SECRET_LENGTH_MIN = 16

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_SHORT, _LONG, _LIST = ConfigType.SHORT, ConfigType.LONG, ConfigType.LIST
_PASSWORD = ConfigType.PASSWORD

# Kafka's other names for the same settings.
ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
# Names that our own settings had before. They keep working wherever a setting can be given or was stored.
FORMER_NAMES = {
    "cairn.answer.bytes.max": "cairn.response.bytes.max",
    "cairn.unpacked.bytes.max": "cairn.decompressed.bytes.max",
    "cairn.checkpoint.ms": "cairn.checkpoint.interval.ms",
    "cairn.journal.retain.bytes": "cairn.journal.retention.bytes",
}


def current_name(name: str) -> str:
    """The name that a setting has today."""
    return FORMER_NAMES.get(name, name)


def with_current_names(texts: Mapping[str, str]) -> dict[str, str]:
    """The same texts under today's names; a text given under today's name wins over one under a former name."""
    return {current_name(name): text for name, text in texts.items() if FORMER_NAMES.get(name) not in texts}


def _row(
    name: str,
    type: ConfigType,
    default: object,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
    limit: Callable[[Value], str | None] | None = None,
) -> Setting:
    text = str(default).lower() if isinstance(default, bool) else None if default is None else str(default)
    return Setting(
        name=name, type=type, default=text, doc=doc, low=low, high=high, choices=choices, dynamic=dynamic, limit=limit
    )


def _short_secret(value: Value) -> str | None:
    if not value or len(str(value)) >= SECRET_LENGTH_MIN:
        return None
    return f"must have at least {SECRET_LENGTH_MIN} characters"


def _wrong_selector(value: Value) -> str | None:
    return None if value in ("", RACK_AWARE) else f"must be empty or {RACK_AWARE}"


_ONE_REPLICA = only(
    1, -1, why="a broker that is alone holds one replica; brokers that share metadata (--metadata) take more"
)

_ROWS = (
    _row("node.id", _INT, 1, "ID of this broker.", low=0),
    _row("broker.rack", _STRING, None,
         "Rack or availability zone of this broker. Replicas are spread over racks, and consumers with the same "
         "client.rack may read here."),
    _row("listeners", _LIST, "127.0.0.1:9092", "Address the broker listens on; port 0 picks a free port."),
    _row("advertised.listeners", _LIST, None,
         "Address that clients are told to connect to, if it differs from listeners."),
    _row("log.dirs", _LIST, "./cairn-data", "The data directory (exactly one)."),
    _row("zookeeper.connect", _STRING, None,
         "Metadata in ZooKeeper, for brokers on several machines: HOST:PORT,HOST:PORT,HOST:PORT/PATH."),
    _row("num.partitions", _INT, 1, "Partitions of a topic that is created without a partition count.", low=1),
    _row("auto.create.topics.enable", _BOOLEAN, True, "Create a missing topic when a client first uses it."),
    _row("default.replication.factor", _INT, 1,
         "Replicas of a topic that is created without a replication factor.", limit=_ONE_REPLICA),
    _row("delete.topic.enable", _BOOLEAN, True, "Allow topics to be deleted."),
    _row("socket.request.max.bytes", _INT, 100 * 1024 * 1024, "Maximum size of a request.", low=1),
    _row("socket.send.buffer.bytes", _INT, -1,
         "Socket send buffer of a connection (SO_SNDBUF); -1: default of the operating system.", low=-1),
    _row("socket.receive.buffer.bytes", _INT, -1,
         "Socket receive buffer of a connection (SO_RCVBUF); -1: default of the operating system.", low=-1),
    _row("connections.max.idle.ms", _LONG, 600_000, "Time after which an idle connection is closed."),
    _row("max.connections", _INT, 2**31 - 1, "Maximum number of open connections.", low=0, dynamic=True),
    _row("cairn.request.bytes.max", _LONG, 48 * 1024**2,
         "Memory for requests in flight, over all connections; at the limit the broker stops reading.", low=1),
    _row("cairn.response.bytes.max", _LONG, 48 * 1024**2,
         "Memory for responses that clients have not read yet, over all connections; at the limit fetches wait.",
         low=1),
    _row("cairn.fetch.session.partitions.max", _INT, 100_000,
         "Maximum number of partitions in all fetch sessions; clients beyond it fetch without a session.", low=0),
    _row("cairn.group.bytes.max", _LONG, 64 * 1024**2,
         "Memory for metadata, assignments and subscriptions of group members; at the limit further joins get a "
         "retriable error.",
         low=1),
    _row("cairn.groups.max", _INT, 100_000,
         "Maximum number of groups with members, and likewise of groups with offsets, committed or pending.", low=0),
    _row("cairn.transactional.ids.max", _INT, 100_000,
         "Maximum number of transactional ids; at the limit the least recently used one is dropped for each new "
         "one.", low=0),
    _row("cairn.decompressed.bytes.max", _LONG, 32 * 1024**2,
         "Maximum size of a batch after decompression, for lookups by time and for compacted topics.",
         low=1024),
    _row("cairn.partitions.max", _INT, 1_000_000, "Maximum number of partitions of all topics.", low=0,
         dynamic=True),
    _row("fetch.max.bytes", _INT, 55 * 1024 * 1024, "Maximum size of a fetch response.", low=1024),
    _row("max.incremental.fetch.session.cache.slots", _INT, 1000, "Maximum number of fetch sessions.", low=0),
    _row("group.min.session.timeout.ms", _INT, 6_000, "Minimum session timeout that a group member may set.", low=0),
    _row("group.max.session.timeout.ms", _INT, 1_800_000,
         "Maximum session timeout that a group member may set.", low=0),
    _row("group.initial.rebalance.delay.ms", _INT, 3_000,
         "How long an empty group waits for more members before its first rebalance.", low=0),
    _row("group.max.size", _INT, 2**31 - 1, "Maximum number of members of a group.", low=1),
    _row("group.consumer.session.timeout.ms", _INT, 45_000,
         "Session timeout of the consumer protocol: a member without a heartbeat for this time leaves its group.",
         low=1),
    _row("group.consumer.min.session.timeout.ms", _INT, 45_000, "Minimum session timeout that a group may set.", low=1),
    _row("group.consumer.max.session.timeout.ms", _INT, 60_000, "Maximum session timeout that a group may set.", low=1),
    _row("group.consumer.heartbeat.interval.ms", _INT, 5_000,
         "Heartbeat interval of the consumer protocol.", low=1),
    _row("group.consumer.min.heartbeat.interval.ms", _INT, 5_000,
         "Minimum heartbeat interval that a group may set.", low=1),
    _row("group.consumer.max.heartbeat.interval.ms", _INT, 15_000,
         "Maximum heartbeat interval that a group may set.", low=1),
    _row("group.consumer.max.size", _INT, 2**31 - 1,
         "Maximum number of members of a group of the consumer protocol.", low=1),
    _row("group.consumer.assignors", _LIST, "uniform,range",
         "Assignors that members may choose; the first is the default.", choices=("uniform", "range")),
    _row("group.consumer.migration.policy", _STRING, "bidirectional",
         "Which groups with members may migrate between the classic and the consumer protocol.",
         choices=("bidirectional", "upgrade", "downgrade", "disabled")),
    _row("offsets.topic.replication.factor", _SHORT, 3,
         "Brokers that must be live before a cluster places its coordinators, and replicas of what they store. One "
         "node ignores it.", low=1),
    _row("offset.metadata.max.bytes", _INT, 4096, "Maximum size of the metadata committed with an offset."),
    _row("offsets.retention.minutes", _INT, 7 * 24 * 60,
         "How long the offsets of a group without members are kept.", low=1),
    _row("offsets.retention.check.interval.ms", _LONG, 600_000, "Interval between checks for expired offsets.", low=1),
    _row("transaction.max.timeout.ms", _INT, 900_000, "Maximum transaction timeout that a producer may set.", low=1),
    _row("transactional.id.expiration.ms", _INT, 604_800_000, "Time after which an unused transactional id expires.",
         low=1),
    _row("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000,
         "Interval between checks for transactions past their timeout.", low=1),
    _row("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000,
         "Interval between checks for expired transactional ids.", low=1),
    _row("producer.id.expiration.ms", _INT, 86_400_000,
         "Time after which the state of an idle producer expires.", low=1,
         dynamic=True),
    _row("log.retention.check.interval.ms", _LONG, 300_000, "Interval between retention checks.", low=1),
    _row("cairn.journals", _INT, 1,
         "Number of journals for new topics and partitions; existing partitions stay where they are.",
         low=1, high=JOURNALS_MAX),
    _row("cairn.journal.segment.bytes", _LONG, 256 * 1024 * 1024, "Size at which a journal starts a new segment file.",
         low=64 * 1024),
    _row("cairn.journal.retention.bytes", _LONG, 0,
         "Journal bytes before the checkpoint that are kept. In a cluster (default 2 GiB) the most that is kept for "
         "replicas that are behind or away.", low=0, dynamic=True),
    _row("cairn.unsplit.bytes.max", _LONG, 1024**3,
         "Bytes the splitter may lag behind the journals before producers are delayed.",
         low=64 * 1024, dynamic=True),
    _row("cairn.unsplit.entries.max", _LONG, 1_000_000,
         "Entries the splitter may lag behind the journals before producers are delayed.", low=1,
         dynamic=True),
    _row("cairn.reserve.bytes", _LONG, 4 * 1024 * 1024,
         "Disk space reserved per journal and on the read disk, so that checkpoints and truncation work on a full "
         "disk.", low=0),
    _row("cairn.checkpoint.interval.ms", _LONG, 5000,
         "Maximum interval between checkpoints while there is new data.", low=1),
    _row("cairn.split.enable", _BOOLEAN, True, "Whether the splitter runs.", dynamic=True),
    _row("cairn.log.level", _STRING, "info", "Log level.",
         choices=("debug", "info", "warning", "error"), dynamic=True),
    _row("cairn.log.format", _STRING, "text", "Log format: readable text, or one JSON object per line.",
         choices=("text", "json")),
    _row("replica.lag.time.max.ms", _LONG, 10_000,
         "Time after which a replica that lags behind leaves the in-sync replicas.", low=1),
    _row("leader.replication.throttled.rate", _LONG, 2**63 - 1,
         "Bytes per second that this broker sends, as a leader, to replicas that take over a whole journal. Copying of "
         "journals is never throttled.", low=1, dynamic=True),
    _row("follower.replication.throttled.rate", _LONG, 64 * 1024**2,
         "Bytes per second that this broker takes while it takes over a whole journal from its leader. Copying of "
         "journals is never throttled.", low=1, dynamic=True),
    _row("cairn.session.ms", _INT, 6_000,
         "Time without a sign of life after which the cluster takes a broker for dead.", low=100),
    _row("cairn.journals.led", _INT, 2,
         "Journals per replication factor that each broker of a cluster is the preferred leader of.",
         low=1, high=JOURNALS_MAX),
    _row("cairn.cluster.secret", _PASSWORD, None,
         "Secret that the brokers of a cluster share and prove to one another; at least 16 characters.",
         limit=_short_secret),
    _row("cairn.internal.advertise", _STRING, None,
         "Address that other brokers are told to connect to, if it differs from the internal listener's."),
    _row("cairn.fault.point", _STRING, None, "Point in the code where the process kills itself (for tests)."),
    _row("replica.selector.class", _STRING, RACK_AWARE,
         "Which replica consumers with a client.rack read from: that class of Kafka's name stands for an in-sync "
         "replica in their rack; empty: always the leader.", limit=_wrong_selector),
    _row("cairn.follower.read.max.lag.ms", _LONG, 10_000,
         "How far a follower may be behind its leader and still serve reads; beyond that consumers are sent back to "
         "the leader.", low=1, dynamic=True),
)  # fmt: skip


def _topic_default(row: TopicSetting, place: int) -> Setting:
    """The broker setting that gives a topic setting its default. As in Kafka, only the strongest name is dynamic."""
    synonym = row.broker_names[place]
    last = place == len(row.broker_names) - 1
    default = row.setting.default if last else None
    low, limit = row.setting.low, row.setting.limit
    if synonym.factor != 1:
        default = str(int(default) // synonym.factor) if default is not None else None
        low = None if low is None else -1 if low < 0 else 1 if low else 0
    return Setting(
        name=synonym.name,
        type=row.setting.type if synonym.factor == 1 else _INT,
        default=default,
        doc=f"Default of the topic setting {row.setting.name}.",
        low=low,
        high=row.setting.high,
        choices=row.setting.choices,
        limit=limit,
        dynamic=place == 0,
    )


BROKER: dict[str, Setting] = {row.name: row for row in _ROWS} | {
    synonym.name: _topic_default(row, place) for row in TOPIC.values() for place, synonym in enumerate(row.broker_names)
}

IN_CLUSTER: dict[str, Setting] = BROKER | {
    "default.replication.factor": replace(BROKER["default.replication.factor"], default="3", low=1, limit=None),
    "cairn.journal.retention.bytes": replace(BROKER["cairn.journal.retention.bytes"], default=str(2 * 1024**3)),
}
"""The same table for a broker whose metadata are in a store that it shares with others."""
