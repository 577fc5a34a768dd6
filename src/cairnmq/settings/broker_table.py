"""The table of broker settings that have a meaning here: Kafka's names, and ours with the prefix cairn."""

from __future__ import annotations

from collections.abc import Callable

from cairnmq.settings.definition import ConfigType, Setting, Value
from cairnmq.settings.topic_table import TOPIC, TopicSetting, only

JOURNALS_MAX = 16

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_SHORT, _LONG, _LIST = ConfigType.SHORT, ConfigType.LONG, ConfigType.LIST

# Other names for the same thing: the first is Kafka's older one.
ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}


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


_NO_CLUSTER = "clusters are not supported yet"
_ONE_REPLICA = only(1, -1, why="one broker holds one replica; clusters are not supported yet")

_ROWS = (
    _row("node.id", _INT, 1, "Number of this broker.", low=0),
    _row("broker.rack", _STRING, None, "Rack of this broker, told to clients."),
    _row("listeners", _LIST, "127.0.0.1:9092", "Address the broker listens on; port 0 takes any free one."),
    _row("advertised.listeners", _LIST, None, "Address told to clients, if another."),
    _row("log.dirs", _LIST, "./cairn-data", "The data directory (one)."),
    _row("zookeeper.connect", _STRING, None, "Metadata in ZooKeeper.", limit=only("", why=_NO_CLUSTER)),
    _row("num.partitions", _INT, 1, "Partitions of a topic created without a number.", low=1),
    _row("auto.create.topics.enable", _BOOLEAN, True, "Create a topic when a client first asks for it."),
    _row("default.replication.factor", _INT, 1, "Replicas of a topic created without a number.", limit=_ONE_REPLICA),
    _row("delete.topic.enable", _BOOLEAN, True, "Allow topics to be deleted."),
    _row("socket.request.max.bytes", _INT, 100 * 1024 * 1024, "The largest request read from a connection.", low=1),
    _row("socket.send.buffer.bytes", _INT, -1,
         "What the system may hold of answers for one connection; -1: as it likes.", low=-1),
    _row("socket.receive.buffer.bytes", _INT, -1,
         "What the system may hold of requests for one connection; -1: as it likes.", low=-1),
    _row("connections.max.idle.ms", _LONG, 600_000, "Idle connections are closed after this time."),
    _row("max.connections", _INT, 2**31 - 1, "Connections open at one time.", low=0, dynamic=True),
    _row("cairn.request.bytes.max", _LONG, 48 * 1024**2,
         "Bytes of requests that are read and not answered, over all connections; at this reading pauses.", low=1),
    _row("cairn.answer.bytes.max", _LONG, 48 * 1024**2,
         "Bytes of answers that clients have not taken yet, over all connections; at this fetches wait.", low=1),
    _row("cairn.fetch.session.partitions.max", _INT, 100_000,
         "Partitions in all fetch sessions; who exceeds it fetches without a session.", low=0),
    _row("cairn.group.bytes.max", _LONG, 64 * 1024**2,
         "Bytes of metadata, assignments and subscriptions that members of groups may bring; beyond it they are sent "
         "away to retry.",
         low=1),
    _row("cairn.groups.max", _INT, 100_000,
         "Groups with members, and as many with offsets, committed or pending; no more are made.", low=0),
    _row("cairn.transactional.ids.max", _INT, 100_000,
         "Transactional ids; for more, those unused longest are forgotten.", low=0),
    _row("cairn.unpacked.bytes.max", _LONG, 32 * 1024**2,
         "The most a batch may expand to when it is decompressed: for a lookup by time, or for a compacted topic.",
         low=1024),
    _row("cairn.partitions.max", _INT, 1_000_000, "Partitions of all topics; no more are created.", low=0,
         dynamic=True),
    _row("fetch.max.bytes", _INT, 55 * 1024 * 1024, "The most a fetch is answered with.", low=1024),
    _row("max.incremental.fetch.session.cache.slots", _INT, 1000, "Fetch sessions kept.", low=0),
    _row("group.min.session.timeout.ms", _INT, 6_000, "The shortest session a group member may ask for.", low=0),
    _row("group.max.session.timeout.ms", _INT, 1_800_000, "The longest session a group member may ask for.", low=0),
    _row("group.initial.rebalance.delay.ms", _INT, 3_000, "How long an empty group waits for more members.", low=0),
    _row("group.max.size", _INT, 2**31 - 1, "Members of one group.", low=1),
    _row("group.consumer.session.timeout.ms", _INT, 45_000,
         "A member of the consumer protocol that is silent for so long is out of its group.", low=1),
    _row("group.consumer.min.session.timeout.ms", _INT, 45_000, "The shortest such time a group may set.", low=1),
    _row("group.consumer.max.session.timeout.ms", _INT, 60_000, "The longest such time a group may set.", low=1),
    _row("group.consumer.heartbeat.interval.ms", _INT, 5_000,
         "How often members of the consumer protocol are told to send heartbeats.", low=1),
    _row("group.consumer.min.heartbeat.interval.ms", _INT, 5_000, "The shortest interval a group may set.", low=1),
    _row("group.consumer.max.heartbeat.interval.ms", _INT, 15_000, "The longest interval a group may set.", low=1),
    _row("group.consumer.max.size", _INT, 2**31 - 1, "Members of one group of the consumer protocol.", low=1),
    _row("group.consumer.assignors", _LIST, "uniform,range",
         "Assignors that members may ask for; the first is the default.", choices=("uniform", "range")),
    _row("group.consumer.migration.policy", _STRING, "bidirectional",
         "Which live groups may change over between the classic and the consumer protocol.",
         choices=("bidirectional", "upgrade", "downgrade", "disabled")),
    _row("offset.metadata.max.bytes", _INT, 4096, "The longest text committed with an offset."),
    _row("offsets.retention.minutes", _INT, 7 * 24 * 60, "How long offsets of a group without members live.", low=1),
    _row("offsets.retention.check.interval.ms", _LONG, 600_000, "How often old offsets are looked for.", low=1),
    _row("transaction.max.timeout.ms", _INT, 900_000, "The longest time a transaction may ask for.", low=1),
    _row("transactional.id.expiration.ms", _INT, 604_800_000, "How long transactional ids live that nobody uses.",
         low=1),
    _row("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000,
         "How often transactions that took too long are looked for.", low=1),
    _row("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000,
         "How often transactional ids that nobody uses are looked for.", low=1),
    _row("producer.id.expiration.ms", _INT, 86_400_000, "Idle producers are forgotten after this time.", low=1,
         dynamic=True),
    _row("log.retention.check.interval.ms", _LONG, 300_000, "How often retention looks for old records.", low=1),
    _row("cairn.journals", _INT, 1, "Number of journals.", low=1, high=JOURNALS_MAX),
    _row("cairn.journal.segment.bytes", _LONG, 256 * 1024 * 1024, "Size at which a journal begins a new file.",
         low=64 * 1024),
    _row("cairn.journal.retain.bytes", _LONG, 0, "Journal kept behind the checkpoint.", low=0, dynamic=True),
    _row("cairn.unsplit.bytes.max", _LONG, 1024**3, "Bytes the splitter may be behind before producers are delayed.",
         low=64 * 1024, dynamic=True),
    _row("cairn.unsplit.entries.max", _LONG, 1_000_000, "Entries the splitter may be behind, likewise.", low=1,
         dynamic=True),
    _row("cairn.reserve.bytes", _LONG, 4 * 1024 * 1024,
         "Kept free per journal and on the read disk for checkpoints and cuts when the disk is full.", low=0),
    _row("cairn.checkpoint.ms", _LONG, 5000, "The longest that what is split waits for a checkpoint.", low=1),
    _row("cairn.split.enable", _BOOLEAN, True, "Run the splitter.", dynamic=True),
    _row("cairn.log.level", _STRING, "info", "How much the broker logs.",
         choices=("debug", "info", "warning", "error"), dynamic=True),
    _row("cairn.log.format", _STRING, "text", "Lines for people, or a JSON object per line.",
         choices=("text", "json")),
    _row("cairn.fault.point", _STRING, None, "Place in the code where the process kills itself (tests)."),
    _row("cairn.follower.read.max.lag.ms", _LONG, None, "How far behind a follower may serve reads.",
         limit=lambda value: _NO_CLUSTER),
)  # fmt: skip


def _topic_default(row: TopicSetting, place: int) -> Setting:
    """The broker's row behind a topic setting. Kafka lets only the strongest name change at run time."""
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
