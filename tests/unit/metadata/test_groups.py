"""Changing a group's settings."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.groups import GROUP_CONFIGS, alter_group_configs, group_of
from cairnmq.metadata.image import Image
from cairnmq.metadata.store import Delete, Put
from cairnmq.settings.alteration import ConfigChange, Operation

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
KEY = GROUP_CONFIGS + "g%2F1"
BEFORE = Image(group_configs={"g/1": {SESSION: "50000"}})


def to(name: str, value: str) -> ConfigChange:
    return ConfigChange(name, Operation.SET, value)


def test_set_added_removed() -> None:
    assert alter_group_configs(Image(), "g/1", [to(SESSION, "50000")]) == (
        Put(KEY, b'{"%s":"50000"}' % SESSION.encode()),
    )
    both = b'{"%s":"50000","%s":"6000"}' % (SESSION.encode(), HEARTBEAT.encode())
    assert alter_group_configs(BEFORE, "g/1", [to(HEARTBEAT, "6000")]) == (Put(KEY, both),)
    assert alter_group_configs(BEFORE, "g/1", [ConfigChange(SESSION, Operation.DELETE)]) == (Delete(KEY),)
    assert group_of(KEY) == "g/1"


def test_whole() -> None:
    assert alter_group_configs(BEFORE, "g/1", [to(HEARTBEAT, "6000")], whole=True) == (
        Put(KEY, b'{"%s":"6000"}' % HEARTBEAT.encode()),
    )
    assert alter_group_configs(BEFORE, "g/1", [], whole=True) == (Delete(KEY),)


def test_what_changes_nothing_writes_nothing() -> None:
    assert alter_group_configs(BEFORE, "g/1", [to(SESSION, "50000")]) == ()
    assert alter_group_configs(BEFORE, "g/1", []) == ()
    assert alter_group_configs(Image(), "g/1", [ConfigChange("no.such", Operation.DELETE)]) == ()


@pytest.mark.parametrize(
    ("group", "change", "code"),
    [
        ("", to(SESSION, "50000"), ErrorCode.INVALID_REQUEST),
        ("g", to(SESSION, "1"), ErrorCode.INVALID_CONFIG),
        ("g", to("no.such", "1"), ErrorCode.INVALID_CONFIG),
        ("g", ConfigChange("no.such", Operation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("g", ConfigChange(SESSION, Operation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("g", ConfigChange(SESSION, Operation.SET), ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused(group: str, change: ConfigChange, code: ErrorCode) -> None:
    answer = alter_group_configs(Image(), group, [change])
    assert isinstance(answer, Refusal) and answer.code == code and answer.message
