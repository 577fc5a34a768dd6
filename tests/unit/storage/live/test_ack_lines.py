"""Requests that wait for a journal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.live.ack_lines import AckLines
from cairnmq.storage.live.ack_policy import DURABLE, REPLICATED, WRITTEN


def waiting(*, alone: bool = True) -> AckLines:
    """Of a journal that is written up to 10 and durable up to 5; with several replicas it is replicated up to 8."""
    ends = SimpleNamespace(end=10, replicated_end=10 if alone else 8, durable_end=5)
    return AckLines(cast(Journal, ends), alone=alone)


@pytest.mark.parametrize("alone", [True, False])
def test_level_that_is_reached_already_is_told_at_once(alone: bool) -> None:
    told: list[bool] = []
    lines = waiting(alone=alone)
    lines.when(WRITTEN, 10, told.append)
    lines.when(REPLICATED, 8, told.append)
    lines.when(DURABLE, 5, told.append)
    lines.when_certain(DURABLE, 5, told.append)
    lines.when_certain(REPLICATED, 8, told.append)
    assert told == [True] * 5


def test_each_level_has_its_line() -> None:
    told: list[str] = []
    lines = waiting(alone=False)
    for level in (WRITTEN, REPLICATED, DURABLE):
        lines.when(level, 20, lambda met, level=level: told.append(level.name))  # type: ignore[misc]
    lines.when_certain(DURABLE, 20, lambda met: told.append("certain"))
    lines.written_to(20)
    assert told == ["WRITTEN"]
    lines.replicated_to(19)
    assert told == ["WRITTEN"]
    lines.replicated_to(20)
    assert told == ["WRITTEN", "REPLICATED"]
    lines.durable_to(19)
    assert told == ["WRITTEN", "REPLICATED"]
    lines.durable_to(20)
    assert told == ["WRITTEN", "REPLICATED", "DURABLE", "certain"]


def test_with_one_replica_what_is_written_is_replicated() -> None:
    told: list[str] = []
    lines = waiting()
    lines.when(REPLICATED, 15, lambda met: told.append("replicated"))
    lines.when(WRITTEN, 20, lambda met: told.append("written"))
    lines.when(REPLICATED, 25, lambda met: told.append("later"))
    lines.written_to(20)
    assert told == ["replicated", "written"]
    lines.taken_back(20)
    assert told == ["replicated", "written", "later"]


def test_all_hear_once_that_another_broker_leads() -> None:
    told: list[tuple[str, bool]] = []
    lines = waiting(alone=False)
    for level in (WRITTEN, REPLICATED, DURABLE):
        lines.when(level, 20, lambda met, level=level: told.append((level.name, met)))  # type: ignore[misc]
    lines.when(REPLICATED, 9, lambda met: told.append(("written before", met)))
    lines.when_certain(DURABLE, 20, lambda met: told.append(("certain", met)))
    lines.led_elsewhere()
    assert sorted(told) == [(name, False) for name in ("DURABLE", "REPLICATED", "WRITTEN", "certain", "written before")]
    lines.written_to(30)
    lines.replicated_to(30)
    lines.durable_to(30)
    assert len(told) == 5


def test_earlier_position_goes_before_later_ones() -> None:
    told: list[int] = []
    lines = waiting()
    for position in (8, 20, 9):
        lines.when_durable(position, lambda met, position=position: told.append(position))  # type: ignore[misc]
    lines.durable_to(9)
    assert told == [8, 9]


def test_lost_write_is_told_to_the_last_first() -> None:
    told: list[tuple[int, bool]] = []
    lines = waiting()
    for position in (15, 20, 25):
        lines.when_written(position, lambda met, position=position: told.append((position, met)))  # type: ignore[misc]
    lines.taken_back(15)
    assert told == [(25, False), (20, False)]
    lines.written_to(15)
    assert told[2:] == [(15, True)]


def test_stopped_journal_leaves_open_what_is_not_certain() -> None:
    told: list[bool] = []
    certain: list[bool] = []
    lines = waiting()
    lines.when(DURABLE, 10, told.append)
    lines.when_certain(DURABLE, 10, certain.append)
    lines.give_up()
    assert (told, certain) == ([False], [])
    lines.durable_to(10)
    assert certain == [True]
