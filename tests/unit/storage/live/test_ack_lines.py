"""Requests that wait for a journal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.live.ack_lines import AckLines
from cairnmq.storage.live.ack_policy import SYNCED, WRITTEN


def waiting() -> AckLines:
    """Of a journal that is written up to 10 and synced up to 5."""
    return AckLines(cast(Journal, SimpleNamespace(end=10, synced=5)))


def test_level_that_is_reached_already_is_told_at_once() -> None:
    told: list[bool] = []
    lines = waiting()
    lines.when(WRITTEN, 10, told.append)
    lines.when(SYNCED, 5, told.append)
    lines.when_certain(SYNCED, 5, told.append)
    assert told == [True] * 3


def test_each_level_has_its_line() -> None:
    told: list[str] = []
    lines = waiting()
    lines.when(WRITTEN, 20, lambda met: told.append("written"))
    lines.when(SYNCED, 20, lambda met: told.append("synced"))
    lines.when_certain(SYNCED, 20, lambda met: told.append("certain"))
    lines.written_to(20)
    assert told == ["written"]
    lines.synced_to(19)
    assert told == ["written"]
    lines.synced_to(20)
    assert told == ["written", "synced", "certain"]


def test_earlier_position_goes_before_later_ones() -> None:
    told: list[int] = []
    lines = waiting()
    for position in (8, 20, 9):
        lines.when_synced(position, lambda met, position=position: told.append(position))  # type: ignore[misc]
    lines.synced_to(9)
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
    lines.when(SYNCED, 10, told.append)
    lines.when_certain(SYNCED, 10, certain.append)
    lines.give_up()
    assert (told, certain) == ([False], [])
    lines.synced_to(10)
    assert certain == [True]
