"""The log's formats: times have their zone, JSON has a line per record."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator

import pytest

from cairnmq.broker.logs import JsonFormat, TextFormat, zoned


@pytest.fixture(params=[("UTC", "+00:00"), ("Etc/GMT-5", "+05:00"), ("Etc/GMT+3", "-03:00")], ids=lambda zone: zone[0])
def offset(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A time zone for the process, while the test runs."""
    name, offset = request.param
    monkeypatch.setenv("TZ", name)
    time.tzset()
    yield offset
    monkeypatch.undo()
    time.tzset()


def record(message: str, *arguments: object, failure: bool = False) -> logging.LogRecord:
    found = sys.exc_info() if failure else None
    made = logging.LogRecord("cairnmq.broker", logging.WARNING, __file__, 1, message, arguments, found)
    made.created = 1_700_000_000.042
    return made


def test_times_have_their_zone(offset: str) -> None:
    assert zoned(1_700_000_000.042)[10:11] == "T"
    assert zoned(1_700_000_000.042).endswith(f".042{offset}")
    assert TextFormat().format(record("disk %s", "full")).endswith(f"{offset} WARNING cairnmq.broker: disk full")


def test_json_is_one_line_also_with_an_exception() -> None:
    try:
        raise ValueError('a "quoted"\nline')
    except ValueError:
        text = JsonFormat().format(record("it failed:\n%s", "twice", failure=True))
    assert "\n" not in text
    found = json.loads(text)
    assert (found["level"], found["logger"]) == ("warning", "cairnmq.broker")
    assert found["message"] == "it failed:\ntwice"
    assert 'ValueError: a "quoted"\nline' in found["exception"]
