"""IncrementalAlterConfigs: SET, DELETE, APPEND, SUBTRACT."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.alteration import ConfigChange, Operation, alter, replacement
from cairnmq.settings.definition import ConfigType, Setting

TABLE = {
    "list": Setting(name="list", type=ConfigType.LIST, default="x,y", doc=""),
    "number": Setting(name="number", type=ConfigType.INT, default="1", doc=""),
}


def altered(configs: dict[str, str], *changes: ConfigChange) -> dict[str, str] | Refusal:
    return alter(configs, changes, setting=TABLE.get, default=lambda name: TABLE[name].default)


def test_set_and_delete() -> None:
    before = {"number": "5", "list": "a"}
    assert altered(before, ConfigChange("number", Operation.SET, "6")) == {"number": "6", "list": "a"}
    assert altered(before, ConfigChange("number", Operation.DELETE)) == {"list": "a"}
    assert altered(before, ConfigChange("none", Operation.DELETE)) == before
    assert before == {"number": "5", "list": "a"}


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        ("a,b", Operation.APPEND, "c", "a,b,c"),
        ("a,b", Operation.APPEND, "b,c", "a,b,c"),
        ("a,b", Operation.APPEND, "b", "a,b"),
        (None, Operation.APPEND, "c", "x,y,c"),
        ("a,b,c", Operation.SUBTRACT, "b", "a,c"),
        ("a,b", Operation.SUBTRACT, "z", "a,b"),
        ("a", Operation.SUBTRACT, "a", ""),
        (None, Operation.SUBTRACT, "x", "y"),
    ],
)
def test_lists(before: str | None, operation: Operation, value: str, after: str) -> None:
    configs = {} if before is None else {"list": before}
    assert altered(configs, ConfigChange("list", operation, value)) == {"list": after}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([ConfigChange("number", Operation.SET, None)], ErrorCode.INVALID_REQUEST),
        ([ConfigChange("list", Operation.APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([ConfigChange("number", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([ConfigChange("number", -1, "1")], ErrorCode.INVALID_REQUEST),
        ([ConfigChange("number", Operation.APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([ConfigChange("number", Operation.SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([ConfigChange("number", 0, "1"), ConfigChange("number", 1)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals(changes: list[ConfigChange], code: ErrorCode) -> None:
    answer = altered({"number": "5"}, *changes)
    assert isinstance(answer, Refusal) and answer.code == code


def test_a_replacement_removes_what_is_not_named() -> None:
    wanted = [ConfigChange("a", Operation.SET, "1"), ConfigChange("new", Operation.SET, "2")]
    assert replacement({"a": "0", "b": "0"}, wanted) == [*wanted, ConfigChange("b", Operation.DELETE)]
    assert replacement({}, wanted) == wanted
