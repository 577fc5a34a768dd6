"""What the row asks for: outages that do not grow with the partitions, and are short."""

from __future__ import annotations

import pytest

from bench.failover import GOALS, KILL, PAUSE, point_of
from bench.goals import AIM, MISSED, OK, verdict
from bench.results import CAIRN, Measurement, Run


def run_of(p50: dict[str, float], longest: float) -> Run:
    points = {point: {"outage_p50_s": value, "outage_max_s": longest} for point, value in p50.items()}
    return Run("failover", True, "", "", "", "", [Measurement(CAIRN, "all", 1, points, {}, "")])


def test_points_are_named_by_partitions_and_fault() -> None:
    assert (point_of(10_000, KILL), point_of(1000, PAUSE)) == ("10,000", "1,000, paused")


@pytest.mark.parametrize(
    ("many", "longest", "expected"),
    [(0.30, 1.0, {AIM}), (0.40, 1.0, {AIM, MISSED}), (0.30, 4.0, {AIM, OK}), (0.30, 6.0, {AIM, MISSED})],
)
def test_verdicts(many: float, longest: float, expected: set[str]) -> None:
    run = run_of({"10": 0.25, "1,000": 0.25, "10,000": many, "1,000, paused": 2.0}, longest)
    found = {goal.title: verdict(goal, run) for goal in GOALS}
    assert set(found.values()) == expected
    assert (found["outage after kill -9: p50, 10,000 over 10 partitions"] == MISSED) == (many > 0.325)
    assert (found["outage after kill -9, 10 partitions: max"] == MISSED) == (longest > 5)
