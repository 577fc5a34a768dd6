"""A consumer group's settings: the table, checks, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.definition import ConfigEntry, ConfigSource, ConfigType, Setting, Synonym, nearest, read

_INT = ConfigType.INT
_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

# The limits are the defaults of Kafka's group.consumer.{min,max}.*. Members of the classic protocol bring their own
# time-outs, in Kafka too.
GROUP: dict[str, Setting] = {
    row.name: row
    for row in (
        Setting(
            name=_SESSION,
            type=_INT,
            default="45000",
            doc="A member of the consumer protocol (KIP-848) that is silent for so long is out of the group.",
            low=45_000,
            high=60_000,
            dynamic=True,
        ),
        Setting(
            name=_HEARTBEAT,
            type=_INT,
            default="5000",
            doc="How often members of the consumer protocol (KIP-848) are told to send heartbeats.",
            low=5_000,
            high=15_000,
            dynamic=True,
        ),
    )
}

_LATER = ("share.", "streams.", "cairn.")


def validate(name: str, text: str) -> Refusal | None:
    """Whether a group setting may have this text."""
    setting = GROUP.get(name)
    if setting is not None:
        value = read(setting, text)
        return value if isinstance(value, Refusal) else None
    if name.startswith(_LATER):
        return Refusal(ErrorCode.INVALID_CONFIG, f"Group settings {name.split('.')[0]}.* are not supported yet")
    return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown group setting {name}{nearest(name, GROUP)}")


def validate_all(configs: Mapping[str, str]) -> Refusal | None:
    """Whether a group may have all these settings together."""
    for name, text in configs.items():
        refusal = validate(name, text)
        if refusal is not None:
            return refusal
    session, heartbeat = (read(GROUP[name], default_text(name, configs)) for name in (_SESSION, _HEARTBEAT))
    if cast(int, session) <= cast(int, heartbeat):
        return Refusal(ErrorCode.INVALID_CONFIG, f"{_SESSION} must be larger than {_HEARTBEAT}")
    return None


def default_text(name: str, configs: Mapping[str, str]) -> str:
    """The text that holds for a setting: the group's own, or the default."""
    default = GROUP[name].default
    assert default is not None
    return configs.get(name, default)


def describe_group(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every group setting as DescribeConfigs shows it, by name."""
    entries = []
    for name in sorted(GROUP):
        setting = GROUP[name]
        synonyms = [Synonym(name, setting.default, ConfigSource.DEFAULT_CONFIG)]
        if name in configs:
            synonyms.insert(0, Synonym(name, configs[name], ConfigSource.DYNAMIC_GROUP_CONFIG))
        value, source = synonyms[0].value, synonyms[0].source
        entries.append(ConfigEntry(name, value, source, False, False, setting.type, setting.doc, tuple(synonyms)))
    return entries
