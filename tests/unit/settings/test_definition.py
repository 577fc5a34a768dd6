"""Texts become typed values, or a refusal that says why."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.definition import ConfigType, Setting, Value, nearest, read, split_list


def setting(type: ConfigType, **more: object) -> Setting:
    return Setting(name="x", type=type, default=None, doc="", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " False ", False),
        (ConfigType.INT, " -12 ", -12),
        (ConfigType.INT, "+7", 7),
        (ConfigType.INT, "2147483647", 2**31 - 1),
        (ConfigType.SHORT, "-32768", -32768),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.LIST, " a, b ,,c", ("a", "b", "c")),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, " text ", "text"),
    ],
)
def test_read(type: ConfigType, text: str, value: Value) -> None:
    assert read(setting(type), text) == value
    assert isinstance(read(setting(type), text), value.__class__)


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, ""),
        (ConfigType.INT, "1.5"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "0x10"),
        (ConfigType.INT, "--1"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "1" * 5000),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_unreadable(type: ConfigType, text: str) -> None:
    answer = read(setting(type), text)
    assert isinstance(answer, Refusal) and answer.code == ErrorCode.INVALID_CONFIG and "x" in answer.message


def test_limits_are_inclusive() -> None:
    row = setting(ConfigType.INT, low=1, high=3)
    assert [isinstance(read(row, str(number)), Refusal) for number in range(5)] == [True, False, False, False, True]


def test_choices_hold_for_every_item() -> None:
    row = setting(ConfigType.LIST, choices=("a", "b"))
    assert read(row, "b,a") == ("b", "a")
    assert isinstance(read(row, "a,c"), Refusal)
    assert isinstance(read(setting(ConfigType.STRING, choices=("a", "b")), "A"), Refusal)


def test_a_limit_is_asked_last_and_says_its_reason() -> None:
    row = setting(ConfigType.INT, low=0, limit=lambda value: "because" if value == 7 else None)
    assert read(row, "6") == 6
    answer = read(row, "7")
    assert isinstance(answer, Refusal) and "because" in answer.message


def test_a_boolean_is_no_number() -> None:
    assert read(setting(ConfigType.BOOLEAN, low=5), "true") is True


def test_nearest() -> None:
    assert nearest("num.partiton", ["num.partitions", "node.id"]) == "; did you mean num.partitions?"
    assert nearest("zzzzz", ["num.partitions"]) == ""


def test_split_list() -> None:
    assert split_list(" ") == () and split_list("a") == ("a",)
