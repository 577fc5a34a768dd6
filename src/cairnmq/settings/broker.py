"""The broker's settings as one typed value, from what was given at start and what was changed since."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, structs

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.broker_table import BROKER, IN_CLUSTER, with_current_names
from cairnmq.settings.definition import (
    ConfigEntry,
    ConfigSource,
    ConfigType,
    Setting,
    Synonym,
    Value,
    invalid,
    nearest,
    read,
    split_list,
)
from cairnmq.settings.known import CHANGEABLE, WITHOUT_MEANING, is_known

OURS = "cairn."


class Layers(Struct, frozen=True):
    """The texts that were set: at start, for every broker at run time, for this broker at run time. `in_cluster`: some
    settings have other defaults and limits there."""

    static: dict[str, str] = {}
    dynamic_default: dict[str, str] = {}
    dynamic: dict[str, str] = {}
    in_cluster: bool = False

    @property
    def table(self) -> Mapping[str, Setting]:
        """All settings, with the defaults that hold here."""
        return IN_CLUSTER if self.in_cluster else BROKER

    def lookup(self, name: str) -> tuple[str, ConfigSource] | None:
        """The strongest text set for a name."""
        for values, source in self._ordered():
            if name in values:
                return values[name], source
        return None

    def chain(self, name: str) -> list[Synonym]:
        """Everything set for a name, strongest first, without the default."""
        return [Synonym(name, values[name], source) for values, source in self._ordered() if name in values]

    def _ordered(self) -> tuple[tuple[dict[str, str], ConfigSource], ...]:
        return (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        )


class BrokerConfig(Struct, frozen=True, kw_only=True):
    """Typed access: a field is its setting's name with underscores.

    Settings that are defaults of topics are read through `topic.effective`; those that stand for a flag of
    `cairn serve` (listeners, log.dirs, node.id, ...) stay texts in `layers`, because the flags win over them.
    """

    layers: Layers = Layers()
    num_partitions: int = 1
    auto_create_topics_enable: bool = True
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    connections_max_idle_ms: int = 600_000
    max_connections: int = 2**31 - 1
    cairn_request_bytes_max: int = 48 * 1024**2
    cairn_response_bytes_max: int = 48 * 1024**2
    cairn_fetch_session_partitions_max: int = 100_000
    cairn_group_bytes_max: int = 64 * 1024**2
    cairn_groups_max: int = 100_000
    cairn_transactional_ids_max: int = 100_000
    cairn_decompressed_bytes_max: int = 32 * 1024**2
    cairn_partitions_max: int = 1_000_000
    fetch_max_bytes: int = 55 * 1024 * 1024
    max_incremental_fetch_session_cache_slots: int = 1000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    producer_id_expiration_ms: int = 86_400_000
    log_retention_check_interval_ms: int = 300_000
    message_max_bytes: int = 1024 * 1024 + 12
    min_insync_replicas: int = 1
    cairn_flush: str = "commit"
    cairn_model: str = "auto"
    cairn_journals: int = 1
    cairn_journal_segment_bytes: int = 256 * 1024 * 1024
    cairn_journal_retention_bytes: int = 0
    cairn_unsplit_bytes_max: int = 1024**3
    cairn_unsplit_entries_max: int = 1_000_000
    cairn_split_enable: bool = True
    cairn_reserve_bytes: int = 4 * 1024 * 1024
    cairn_checkpoint_interval_ms: int = 5000
    cairn_log_level: str = "info"
    cairn_log_format: str = "text"
    cairn_fault_point: str | None = None

    def text(self, name: str) -> str | None:
        """The effective text of a setting: as set, or the default."""
        found = self.layers.lookup(name)
        return found[0] if found else self.layers.table[name].default

    def synonyms(self, name: str) -> list[Synonym]:
        """All texts given for a setting, strongest first, and the default."""
        default = self.layers.table[name].default
        given = self.layers.chain(name)
        return given if default is None else [*given, Synonym(name, default, ConfigSource.DEFAULT_CONFIG)]

    def changed(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]) -> BrokerConfig | Refusal:
        """The same start settings under other run-time settings."""
        return broker_config(
            self.layers.static, dynamic=dynamic, dynamic_default=dynamic_default, in_cluster=self.layers.in_cluster
        )


def broker_config(
    static: Mapping[str, str],
    *,
    dynamic: Mapping[str, str] | None = None,
    dynamic_default: Mapping[str, str] | None = None,
    in_cluster: bool = False,
) -> BrokerConfig | Refusal:
    """Check every text and build the typed value. Names without effect are accepted: sources.py warns about them."""
    layers = Layers(
        with_current_names(static),
        with_current_names(dynamic_default or {}),
        with_current_names(dynamic or {}),
        in_cluster,
    )
    for values in (layers.static, layers.dynamic_default, layers.dynamic):
        for name, text in values.items():
            known = name in BROKER or values is layers.static
            refusal = validate(name, text, layers.table) if known else None
            if refusal is not None:
                return refusal
    fields: dict[str, Value | None] = {}
    for name, setting in layers.table.items():
        field = name.replace(".", "_")
        if field not in BrokerConfig.__struct_fields__:
            continue
        found = layers.lookup(name)
        text_or_none = found[0] if found else setting.default
        if text_or_none is None:
            continue
        value = read(setting, text_or_none)
        assert not isinstance(value, Refusal), value
        fields[field] = None if value == "" else value
    return BrokerConfig(layers=layers, **fields)  # type: ignore[arg-type]


def validate(name: str, text: str, table: Mapping[str, Setting] = BROKER) -> Refusal | None:
    """Whether a broker setting may have this text."""
    setting = table.get(name)
    if setting is None:
        if is_known(name):
            return None
        hint = nearest(name, [*BROKER, *WITHOUT_MEANING])
        return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown broker setting {name}{hint}")
    value = read(setting, text)
    if isinstance(value, Refusal):
        return value
    if name.startswith("log.retention.") and name.rpartition(".")[2] in ("ms", "minutes", "hours") and value == 0:
        return invalid(name, text, "must be -1 or at least 1")
    if name in ("listeners", "advertised.listeners"):
        why = _wrong_listeners(split_list(text))
        return invalid(name, text, why) if why else None
    if name == "log.dirs" and len(split_list(text)) != 1:
        return invalid(name, text, "must be one directory")
    return None


def validate_dynamic(name: str, text: str) -> Refusal | None:
    """Whether a broker setting may be changed to this text at run time. Kafka responds with 42 here, not 40.

    As in Kafka, unknown names are accepted and kept: tools and plugins have settings of their own.
    """
    setting = BROKER.get(name)
    if setting is not None and not setting.dynamic:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"{name} cannot be changed at run time; set it and restart the broker"
        )
    if setting is None and not name.startswith(OURS):
        if is_known(name) and name not in CHANGEABLE:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{name} is a Kafka setting that has no effect here")
        return None
    refusal = validate(name, text)
    return None if refusal is None else Refusal(ErrorCode.INVALID_REQUEST, refusal.message)


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """Every broker setting as DescribeConfigs shows it, by name. The value of an unknown one is hidden."""
    entries = []
    for name in {**config.layers.dynamic_default, **config.layers.dynamic}.keys() - BROKER.keys():
        secret = name not in CHANGEABLE
        given = tuple(structs.replace(each, value=None) if secret else each for each in config.layers.chain(name))
        entries.append(
            ConfigEntry(name, given[0].value, given[0].source, secret, secret, ConfigType.UNKNOWN, "", given)
        )
    for name, setting in config.layers.table.items():
        if setting.hidden:
            continue
        secret = setting.is_secret
        synonyms = tuple(structs.replace(each, value=None) if secret else each for each in config.synonyms(name))
        value, source = (synonyms[0].value, synonyms[0].source) if synonyms else (None, ConfigSource.DEFAULT_CONFIG)
        entries.append(
            ConfigEntry(name, value, source, not setting.dynamic, secret, setting.type, setting.doc, synonyms)
        )
    return sorted(entries, key=lambda entry: entry.name)


def _wrong_address(listener: str) -> bool:
    host, colon, port = listener.rpartition("://")[2].rpartition(":")
    bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    return not colon or bare_v6 or not port.isdecimal() or int(port) > 65535


def _wrong_listeners(listeners: tuple[str, ...]) -> str | None:
    if len(listeners) != 1:
        return "must be one listener"
    protocol, separator, _ = listeners[0].rpartition("://")
    if separator and protocol.upper() in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        return "TLS and SASL are not supported yet"
    return "must be HOST:PORT or NAME://HOST:PORT" if _wrong_address(listeners[0]) else None
