"""Options of format("cairnmq"): those of Spark's Kafka source and sink, and some of our own. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from cairnmq.codec.compression import CODEC_NAMES
from cairnmq.settings.definition import nearest, split_list
from cairnmq.spark.errors import OptionError
from cairnmq.spark.position import Offsets, Position, parse_offsets, parse_position

BATCH_BYTES = 900 * 1024  # of records: below what a topic takes by default
LEAST_TRANSACTION_MS = 60_000
_BATCH_OVERHEAD = 512  # a header, and what a codec adds to what it cannot make smaller

T = TypeVar("T")
Delivery: TypeAlias = Literal["exactly_once", "at_least_once"]

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"

_SHARED = (
    *("kafka.bootstrap.servers", "kafka.client.id", "kafka.security.protocol", "path"),
    *("kafka.request.timeout.ms", "kafka.default.api.timeout.ms"),
)
_READ = (
    *("subscribe", "assign", "subscribePattern"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("failOnDataLoss", "includeHeaders", "columns", "isolation", "kafka.isolation.level"),
    *("minPartitions", "maxRecordsPerPartition", "kafka.max.partition.fetch.bytes"),
)
_STREAM = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "group")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_WRITE = (
    *("topic", "includeHeaders", "delivery", "checkpointLocation", "queryName"),
    *("kafka.compression.type", "kafka.acks", "kafka.transaction.timeout.ms", "kafka.max.request.size"),
)
_LATER = ("archive", "segments")
# Settings of Kafka's clients that tune what works differently here; a job that has them runs as it is.
WITHOUT_MEANING = frozenset(
    """group.id fetch.min.bytes fetch.max.wait.ms fetch.max.bytes max.poll.records max.poll.interval.ms
    session.timeout.ms heartbeat.interval.ms metadata.max.age.ms receive.buffer.bytes send.buffer.bytes retries
    retry.backoff.ms retry.backoff.max.ms linger.ms batch.size buffer.memory max.block.ms delivery.timeout.ms
    max.request.size max.in.flight.requests.per.connection enable.idempotence
    connections.max.idle.ms reconnect.backoff.ms reconnect.backoff.max.ms check.crcs""".split()
)
_IGNORED = (
    *("groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    "partition.metadata.cache.ttl.ms",
    # What Spark's catalog notes of every table.
    *("provider", "owner", "location", "comment", "external", "is_managed_location", "collation", "table_type"),
)
_REFUSED = frozenset(
    """auto.offset.reset key.deserializer value.deserializer key.serializer value.serializer enable.auto.commit
    interceptor.classes""".split()
)
_DELAY = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, None: 0.001}
_SIZE = re.compile(r"(\d{1,15})\s*([kmgt]?)b?")


class Connection(Struct, frozen=True):
    """`timeout` is for one answer, `patience` for all attempts to get it: a broker may restart meanwhile."""

    bootstrap: str
    client_id: str
    timeout: float
    patience: float


class Selection(Struct, frozen=True):
    """What is read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    assigned: dict[str, tuple[int, ...]] = {}
    pattern: str = ""


class Limits(Struct, frozen=True):
    """How much a micro-batch takes; None: no such limit."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay: float = 900.0


class ReadOptions(Struct, frozen=True):
    connection: Connection
    selection: Selection
    starting: Position
    ending: Position
    late_is_latest: bool
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    read_committed: bool
    min_partitions: int | None
    max_records: int | None
    limits: Limits
    group: str | None
    fetch_bytes: int


class WriteOptions(Struct, frozen=True):
    connection: Connection
    topic: str | None
    delivery: Delivery
    codec: int
    acks: int
    transaction_timeout_ms: int
    batch_bytes: int


_TABLE = "option."
"""What Spark's catalog puts before the options of a table."""


class _Reader:
    """Options by name, whatever the case of their letters."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        given = {name.lower(): (name, str(text)) for name, text in options.items()}
        # Spark's catalog hands on the options of a table as option.NAME, sometimes beside the plain ones.
        repeated = {name.removeprefix(_TABLE): found for name, found in given.items() if name.startswith(_TABLE)}
        self._given = {**repeated, **{name: found for name, found in given.items() if not name.startswith(_TABLE)}}
        names = {name.lower() for name in known}
        for lowered, (name, _) in self._given.items():
            if lowered not in names:
                _judge_unknown(name, known)

    @property
    def empty(self) -> bool:
        return not self._given

    def text(self, name: str) -> str | None:
        found = self._given.get(name.lower())
        return None if found is None else found[1]

    def read(self, name: str, parse: Callable[[str, str], T], default: T) -> T:
        text = self.text(name)
        return default if text is None else parse(name, text)


def read_options(options: Mapping[str, str], *, stream: bool) -> ReadOptions:
    """Checks all of them; OptionError says what is wrong with the first that is."""
    reader = _Reader(options, (*_SHARED, *_READ, *_STREAM))
    _check_place(reader, _BATCH_ONLY if stream else _STREAM, "a batch query" if stream else "a streaming query")
    isolation = reader.read("isolation", _isolation, None)
    kafka_isolation = reader.read("kafka.isolation.level", _isolation, None)
    starting = _position(reader, "starting", Position("latest" if stream else "earliest"))
    ending = _position(reader, "ending", Position("latest"))
    if not stream and starting.kind == "latest":
        raise OptionError("startingOffsets of a batch query cannot be latest: there would be nothing to read")
    if ending.kind == "earliest" or any(-2 in part.values() for part in ending.offsets.values()):
        raise OptionError("endingOffsets cannot be earliest: there would be nothing to read")
    return ReadOptions(
        connection=_connection(reader, "cairnmq-spark-source"),
        selection=_selection(reader),
        starting=starting,
        ending=ending,
        late_is_latest=reader.read("startingOffsetsByTimestampStrategy", _strategy, False),
        fail_on_data_loss=reader.read("failOnDataLoss", _flag, True),
        columns=_columns(reader),
        read_committed=(isolation or kafka_isolation or "read_committed") == "read_committed",
        min_partitions=reader.read("minPartitions", _positive, None),
        max_records=reader.read("maxRecordsPerPartition", _positive, None),
        limits=_limits(reader),
        group=reader.read("group", _name, None),
        fetch_bytes=reader.read("kafka.max.partition.fetch.bytes", _positive, None) or 8 * 1024 * 1024,
    )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a table, which are asked for before it is known whether a batch or a stream will be read."""
    return _columns(_Reader(options, (*_SHARED, *_READ, *_STREAM)))


def table_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those that a table of Spark's catalog was created with."""
    named = ((name[: len(_TABLE)].lower(), name[len(_TABLE) :], text) for name, text in options.items())
    return {name: str(text) for prefix, name, text in named if prefix == _TABLE}


def write_options(options: Mapping[str, str], *, stream: bool) -> WriteOptions:
    reader = _Reader(options, (*_SHARED, *_WRITE))
    usual: Delivery = "exactly_once" if stream else "at_least_once"
    delivery = reader.read("delivery", _delivery, usual)
    acks = reader.read("kafka.acks", _acks, -1)
    if delivery == "exactly_once" and acks != -1:
        raise OptionError("delivery=exactly_once needs kafka.acks=all")
    timeout_ms = reader.read("kafka.transaction.timeout.ms", _positive, None) or 900_000
    if delivery == "exactly_once" and timeout_ms < LEAST_TRANSACTION_MS:
        raise OptionError(
            f"option kafka.transaction.timeout.ms must be at least {LEAST_TRANSACTION_MS}, not {timeout_ms}: it "
            "must cover writing a whole batch and committing it after a broker outage"
        )
    largest = reader.read("kafka.max.request.size", _positive, None)
    return WriteOptions(
        connection=_connection(reader, "cairnmq-spark-sink"),
        topic=reader.read("topic", _name, None),
        delivery=delivery,
        codec=reader.read("kafka.compression.type", _codec, 0),
        acks=acks,
        transaction_timeout_ms=timeout_ms,
        batch_bytes=BATCH_BYTES if largest is None else min(max(1, largest - _BATCH_OVERHEAD), BATCH_BYTES),
    )


def _judge_unknown(name: str, known: tuple[str, ...]) -> None:
    lowered = name.lower()
    setting = lowered.removeprefix("kafka.")
    if lowered in (each.lower() for each in _LATER):
        raise OptionError(f"option {name} is not supported yet")
    if lowered in (each.lower() for each in _IGNORED):
        return
    if setting != lowered:
        if setting in WITHOUT_MEANING:
            return
        if setting in _REFUSED:
            raise OptionError(f"option {name} cannot be set: the source sets it itself, like Spark's Kafka source")
        if setting.startswith(("ssl.", "sasl.")):
            raise OptionError(f"option {name}: TLS and SASL are not supported yet")
    names = [*known, *(f"kafka.{each}" for each in sorted(WITHOUT_MEANING))]
    spelled = {each.lower(): each for each in names}
    hint = nearest(lowered, spelled)
    for low, proper in spelled.items():
        hint = hint.replace(f" {low}?", f" {proper}?")
    raise OptionError(f"unknown option {name}{hint}")


def _check_place(reader: _Reader, names: tuple[str, ...], place: str) -> None:
    for name in names:
        if reader.text(name) is not None:
            raise OptionError(f"option {name} is for {place}")


def _connection(reader: _Reader, client_id: str) -> Connection:
    bootstrap = reader.text("kafka.bootstrap.servers")
    if not bootstrap:
        # Spark hides the options of a table of its catalog from whoever writes to it.
        hint = "; to write to a table, INSERT INTO ... WITH (...)" if reader.empty else ""
        advice = f'.option("kafka.bootstrap.servers", "HOST:PORT"){hint}'
        raise OptionError(f"option kafka.bootstrap.servers is missing: {advice}")
    if reader.text("path") is not None:
        raise OptionError("load() and save() take no path: name the topic with the options subscribe or topic")
    protocol = reader.text("kafka.security.protocol")
    if protocol is not None and protocol.upper() != "PLAINTEXT":
        raise OptionError(f"option kafka.security.protocol={protocol}: TLS and SASL are not supported yet")
    timeout = reader.read("kafka.request.timeout.ms", _positive, None) or 30_000
    patience = reader.read("kafka.default.api.timeout.ms", _positive, None) or 120_000
    return Connection(bootstrap, reader.text("kafka.client.id") or client_id, timeout / 1000, patience / 1000)


def _selection(reader: _Reader) -> Selection:
    names = ("subscribe", "assign", "subscribePattern")
    given = [name for name in names if reader.text(name) is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise OptionError(f"set exactly one of subscribe, assign and subscribePattern; found {found}")
    text = (reader.text(given[0]) or "").strip()
    if not text:
        raise OptionError(f"option {given[0]} is empty")
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(split_list(text)))
        if not topics:
            raise OptionError(f"option subscribe names no topic: {text!r}")
        return Selection(topics=topics)
    if given[0] == "assign":
        return Selection(assigned=_assigned(text))
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error}") from None
    return Selection(pattern=text)


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    try:
        found = msgspec.json.decode(text, type=dict[str, tuple[int, ...]])
    except msgspec.DecodeError as error:
        raise OptionError(f'option assign is not valid JSON: {error}; write JSON like {{"topic": [0, 1]}}') from None
    if not any(found.values()) or any(index < 0 for indexes in found.values() for index in indexes):
        raise OptionError('assign must name partitions, like {"topic": [0, 1]}')
    return {topic: tuple(sorted(set(indexes))) for topic, indexes in found.items()}


def _limits(reader: _Reader) -> Limits:
    least, most = (reader.read(f"{side}OffsetsPerTrigger", _positive, None) for side in ("min", "max"))
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
    delay = reader.read("maxTriggerDelay", _delay, 900.0)
    return Limits(most, reader.read("maxBytesPerTrigger", _size, None), least, delay)


def _position(reader: _Reader, side: str, default: Position) -> Position:
    """The most special of the three ways to say it counts, as in Spark's Kafka source."""
    timestamp = reader.read(f"{side}Timestamp", _natural, None)
    if timestamp is not None:
        return Position("timestamp", timestamp=timestamp)
    by_time = reader.text(f"{side}OffsetsByTimestamp")
    if by_time is not None:
        times: Offsets = parse_offsets(f"{side}OffsetsByTimestamp", by_time, least=0)
        return Position("timestamps", times)
    return reader.read(f"{side}Offsets", parse_position, default)


def _columns(reader: _Reader) -> tuple[str, ...]:
    with_headers = reader.read("includeHeaders", _flag, False)
    everything = (*COLUMNS, HEADERS)
    text = reader.text("columns")
    if text is None:
        return everything if with_headers else COLUMNS
    wanted = split_list(text)
    for name in wanted:
        if name not in everything:
            raise OptionError(f"option columns: unknown column {name}{nearest(name, everything)}")
    if not wanted or len(set(wanted)) != len(wanted):
        raise OptionError(f"columns must name each column at most once, out of {', '.join(everything)}")
    return wanted


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name} must be true or false, not {text!r}")
    return text.strip().lower() == "true"


def _natural(name: str, text: str) -> int | None:
    if not re.fullmatch(r"\s*\d{1,18}\s*", text):
        raise OptionError(f"option {name} must be a whole number of at least 0, not {text!r}")
    return int(text)


def _positive(name: str, text: str) -> int | None:
    number = _natural(name, text)
    if number == 0:
        raise OptionError(f"option {name} must be at least 1")
    return number


def _delay(name: str, text: str) -> float:
    found = _DELAY.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"option {name} must be a time like 30s or 15m, not {text!r}")
    return int(found[1]) * _SECONDS[found[2]]


def _size(name: str, text: str) -> int | None:
    """As Spark writes sizes: a k is 1024 bytes."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise OptionError(f"option {name} must be a number of bytes like 1000000 or 64m, not {text!r}")
    return int(found[1]) * int(1024 ** " kmgt".index(found[2] or " "))


def _isolation(name: str, text: str) -> str | None:
    return _choice(name, text, ("read_committed", "read_uncommitted"))


def _strategy(name: str, text: str) -> bool:
    return _choice(name, text, ("error", "latest")) == "latest"


def _delivery(name: str, text: str) -> Delivery:
    return (
        "exactly_once" if _choice(name, text, ("exactly_once", "at_least_once")) == "exactly_once" else "at_least_once"
    )


def _codec(name: str, text: str) -> int:
    return CODEC_NAMES.index(_choice(name, text, CODEC_NAMES))


def _acks(name: str, text: str) -> int:
    return {"all": -1, "-1": -1, "1": 1}[_choice(name, text, ("all", "-1", "1"))]


def _name(name: str, text: str) -> str | None:
    if not text.strip():
        raise OptionError(f"option {name} is empty")
    return text.strip()


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    lowered = text.strip().lower()
    if lowered not in choices:
        raise OptionError(f"option {name} must be one of {', '.join(choices)}, not {text!r}")
    return lowered
