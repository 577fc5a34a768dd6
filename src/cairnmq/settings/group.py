"""A consumer group's settings: the table, checks, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.definition import ConfigEntry, ConfigSource, ConfigType, Setting, Synonym, nearest, read

_INT = ConfigType.INT
_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def group_settings(broker: BrokerConfig) -> dict[str, Setting]:
    """The table. Defaults and limits are the broker's; members of the classic protocol bring their own time-outs."""
    rows = (
        Setting(
            name=_SESSION,
            type=_INT,
            default=str(broker.group_consumer_session_timeout_ms),
            doc=(
                "Session timeout of the consumer protocol (KIP-848): a member without a heartbeat for this time "
                "leaves the group."
            ),
            low=broker.group_consumer_min_session_timeout_ms,
            high=broker.group_consumer_max_session_timeout_ms,
            dynamic=True,
        ),
        Setting(
            name=_HEARTBEAT,
            type=_INT,
            default=str(broker.group_consumer_heartbeat_interval_ms),
            doc="Heartbeat interval of the consumer protocol (KIP-848).",
            low=broker.group_consumer_min_heartbeat_interval_ms,
            high=broker.group_consumer_max_heartbeat_interval_ms,
            dynamic=True,
        ),
    )
    return {row.name: row for row in rows}


GROUP: dict[str, Setting] = group_settings(BrokerConfig())

_LATER = ("share.", "streams.", "cairn.")


def validate(name: str, text: str, settings: Mapping[str, Setting] = GROUP) -> Refusal | None:
    """Whether a group setting may have this text."""
    setting = settings.get(name)
    if setting is not None:
        value = read(setting, text)
        return value if isinstance(value, Refusal) else None
    if name.startswith(_LATER):
        return Refusal(ErrorCode.INVALID_CONFIG, f"Group settings {name.split('.')[0]}.* are not supported yet")
    return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown group setting {name}{nearest(name, GROUP)}")


def validate_all(configs: Mapping[str, str], settings: Mapping[str, Setting] = GROUP) -> Refusal | None:
    """Whether a group may have all these settings together."""
    for name, text in configs.items():
        refusal = validate(name, text, settings)
        if refusal is not None:
            return refusal
    # The broker's own default need not be within what groups may set.
    session, heartbeat = (int(default_text(name, configs, settings)) for name in (_SESSION, _HEARTBEAT))
    if session <= heartbeat:
        return Refusal(ErrorCode.INVALID_CONFIG, f"{_SESSION} must be larger than {_HEARTBEAT}")
    return None


def default_text(name: str, configs: Mapping[str, str], settings: Mapping[str, Setting] = GROUP) -> str:
    """The text that holds for a setting: the group's own, or the default."""
    default = settings[name].default
    assert default is not None
    return configs.get(name, default)


def describe_group(configs: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Every group setting as DescribeConfigs shows it, by name; what a group does not set is the broker's."""
    entries = []
    for name, setting in sorted(group_settings(broker).items()):
        synonyms = broker.synonyms(f"group.{name}")
        if name in configs:
            synonyms.insert(0, Synonym(name, configs[name], ConfigSource.DYNAMIC_GROUP_CONFIG))
        value, source = synonyms[0].value, synonyms[0].source
        entries.append(ConfigEntry(name, value, source, False, False, setting.type, setting.doc, tuple(synonyms)))
    return entries
