"""Goals say what was reached and what was not: directions, limits that depend on Kafka, quick runs, the summary."""

from __future__ import annotations

import pytest

from bench.goals import (
    AIM,
    COLD,
    MISSED,
    OK,
    Goal,
    alone,
    goal_table,
    line,
    of,
    over_kafka,
    over_point,
    summary,
    verdict,
)
from bench.results import CAIRN, KAFKA, Measurement, Run


def run_of(figures: dict[tuple[str, str], float], quick: bool = False) -> Run:
    taken = [Measurement(server, point, 1, {point: {"x": v}}, {}, "then") for (server, point), v in figures.items()]
    return Run("row", quick, "abc", "a machine", "then", "later", taken)


@pytest.mark.parametrize(("ours", "expected"), [(4.0, AIM), (5.0, AIM), (7.0, OK), (10.0, OK), (10.1, MISSED)])
def test_smaller_is_better_unless_said(ours: float, expected: str) -> None:
    goal = over_kafka("cpu", "10", "x", 1.0, 0.5)
    assert verdict(goal, run_of({(CAIRN, "10"): ours, (KAFKA, "10"): 10.0})) == expected


@pytest.mark.parametrize(("ours", "expected"), [(40.0, AIM), (30.0, OK), (29.0, MISSED)])
def test_throughput_has_to_be_higher(ours: float, expected: str) -> None:
    goal = over_kafka("speed", "10", "x", 3.0, 4.0, higher=True)
    assert verdict(goal, run_of({(CAIRN, "10"): ours, (KAFKA, "10"): 10.0})) == expected


def test_a_line_has_both_figures_and_the_ratio() -> None:
    goal = over_kafka("cpu", "10", "x", 1.0, 0.5)
    run = run_of({(CAIRN, "10"): 2.0, (KAFKA, "10"): 8.0})
    assert line(goal, run) == ["cpu", "2", "8", "**0.25**", "<= 1", "0.5", AIM]


def test_a_quick_run_judges_only_what_needs_no_kafka() -> None:
    run = run_of({(CAIRN, "10"): 2.0, (KAFKA, "10"): 8.0}, quick=True)
    assert verdict(over_kafka("cpu", "10", "x", 1.0, 0.5), run) == COLD
    assert verdict(alone("size", "10", "x", 3.0, 1.0, " MB"), run) == OK


def test_points_of_ours_are_compared_with_each_other() -> None:
    goal = over_point("flat", "10,000", "10", "x", 0.8, 0.95, higher=True)
    assert verdict(goal, run_of({(CAIRN, "10,000"): 90.0, (CAIRN, "10"): 100.0})) == OK


def test_a_must_may_depend_on_kafka() -> None:
    goal = Goal("p99", of(CAIRN, "hot", "x"), lambda run: run.median(KAFKA, "hot", "x"), 1.0)
    assert verdict(goal, run_of({(CAIRN, "hot"): 3.0, (KAFKA, "hot"): 4.0})) == OK
    assert verdict(goal, run_of({(CAIRN, "hot"): 5.0, (KAFKA, "hot"): 4.0})) == MISSED


def test_nothing_is_reached_without_a_measurement() -> None:
    assert verdict(over_kafka("cpu", "10", "x", 1.0, 0.5), run_of({(CAIRN, "10"): 1.0})) == "not measured"


def test_the_summary_holds_every_goal_of_the_page_once() -> None:
    good, bad = run_of({(CAIRN, "10"): 1.0, (KAFKA, "10"): 8.0}), run_of({(CAIRN, "10"): 9.0, (KAFKA, "10"): 8.0})
    tables = [goal_table([over_kafka(title, "10", "x", 1.0, 0.5)], run) for title, run in (("a", good), ("b", bad))]
    text = summary(f"# page\n\n{tables[0]}\n\nwords\n\n| other | table |\n| --- | --- |\n| 1 | 2 |\n\n{tables[1]}\n")
    assert text.startswith("1 of 2 musts reached, 1 aims.")
    assert [row.split(" | ")[0] for row in text.splitlines() if row.startswith("|")] == [
        "| goal",
        "| ---",
        "| a",
        "| b",
    ]
