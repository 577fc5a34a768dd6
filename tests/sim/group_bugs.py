"""Bugs of coordinators on replicas, planted one at a time: the simulation must find each within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.storage.live.ack_lines import AckLines, Released
from cairnmq.storage.live.ack_policy import REPLICATED, WRITTEN, AckLevel

Plant = Callable[[pytest.MonkeyPatch], None]


def _answer_at(patch: pytest.MonkeyPatch, level: AckLevel) -> None:
    when_certain = AckLines.when_certain

    def hasty(lines: AckLines, wanted: AckLevel, position: int, released: Released) -> None:
        when_certain(lines, min(wanted, level), position, released)

    patch.setattr(AckLines, "when_certain", hasty)


def commits_are_answered_when_written(patch: pytest.MonkeyPatch) -> None:
    """A later leader may not have them."""
    _answer_at(patch, WRITTEN)


def commits_are_answered_when_replicated(patch: pytest.MonkeyPatch) -> None:
    """Before all have synced them: a power loss of all may take them back."""
    _answer_at(patch, REPLICATED)
