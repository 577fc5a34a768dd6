"""What a setting is: its name, type, default and limits, and how its text is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from enum import IntEnum
from math import isnan
from typing import TypeAlias

from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """Kafka's numbers, as DescribeConfigs sends them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value came from; Kafka's numbers. Java's admin client fails on any number outside them."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


Value: TypeAlias = bool | int | float | str | tuple[str, ...]


class Setting(Struct, frozen=True, kw_only=True):
    """One row of a table. `limit` comes last: it rejects values that are valid in Kafka but not supported here."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    limit: Callable[[Value], str | None] | None = None
    dynamic: bool = False
    hidden: bool = False

    @property
    def is_secret(self) -> bool:
        """Whether nobody may be shown its value."""
        return self.type is ConfigType.PASSWORD


class Synonym(Struct, frozen=True, gc=False):
    """A value in the chain that decides an effective value, strongest first."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(Struct, frozen=True):
    """One row of a DescribeConfigs response. A sensitive value is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    doc: str
    synonyms: tuple[Synonym, ...]


_BOUNDS = {
    ConfigType.INT: (-(2**31), INT32_MAX),
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.LONG: (-(2**63), INT64_MAX),
}


def invalid(name: str, text: str, why: str) -> Refusal:
    """The error for a bad value, with the same text for every source of settings."""
    return Refusal(ErrorCode.INVALID_CONFIG, f"Invalid value {text!r} for {name}: {why}")


def read(setting: Setting, text: str) -> Value | Refusal:
    """The typed value of a setting's text, or why it is not one."""
    value = _typed(setting, text)
    if isinstance(value, Refusal):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if setting.low is not None and value < setting.low:
            return invalid(setting.name, text, f"must be at least {setting.low}")
        if setting.high is not None and value > setting.high:
            return invalid(setting.name, text, f"must be at most {setting.high}")
    if setting.choices:
        for part in value if isinstance(value, tuple) else (value,):
            if part not in setting.choices:
                return invalid(setting.name, text, f"must be one of {', '.join(setting.choices)}")
    why = setting.limit(value) if setting.limit else None
    if why is None:
        return value
    return invalid(setting.name, "(hidden)" if setting.is_secret else text, why)


def _typed(setting: Setting, text: str) -> Value | Refusal:
    stripped = text.strip()
    match setting.type:
        case ConfigType.BOOLEAN:
            lowered = stripped.lower()
            if lowered not in ("true", "false"):
                return invalid(setting.name, text, "must be true or false")
            return lowered == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            if not stripped.lstrip("+-").isdecimal() or not stripped.isascii():
                return invalid(setting.name, text, "must be a whole number")
            try:
                number = int(stripped)
            except ValueError:
                return invalid(setting.name, text, "must be a whole number")
            low, high = _BOUNDS[setting.type]
            if not low <= number <= high:
                return invalid(setting.name, text, f"must be within {low} and {high}")
            return number
        case ConfigType.DOUBLE:
            try:
                real = float(stripped)
            except ValueError:
                return invalid(setting.name, text, "must be a number")
            return invalid(setting.name, text, "must be a number") if isnan(real) else real
        case ConfigType.LIST:
            return split_list(stripped)
        case _:
            return stripped


def split_list(text: str) -> tuple[str, ...]:
    """Kafka's list notation: comma-separated, blanks around items are ignored."""
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text.strip() else ()


def nearest(name: str, names: Iterable[str]) -> str:
    """ "; did you mean NAME?" with the known name most similar to a wrong one, or an empty text."""
    found = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
