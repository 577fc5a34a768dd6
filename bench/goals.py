"""What a figure has to reach (must) and should reach (aim), and whether it did. Values in, text out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from bench.results import CAIRN, KAFKA, Run
from bench.table import figure, table

HEADS = ("goal", "CairnMQ", "Apache Kafka", "result", "must", "aim", "verdict")
OK, AIM, MISSED, COLD = "ok", "ok, aim reached", "**missed**", "Kafka cold: no verdict"

Amount = Callable[[Run], float | None]


class Goal(Struct, frozen=True):
    """`result` is what must and aim are about: a ratio, or a figure of ours alone."""

    title: str
    result: Amount
    must: float | Amount
    aim: float
    ours: Amount | None = None
    theirs: Amount | None = None
    higher: bool = False
    unit: str = ""
    beside_kafka: bool = True


def of(server: str, point: str, key: str) -> Amount:
    return lambda run: run.median(server, point, key)


def divided(above: Amount, below: Amount) -> Amount:
    def value(run: Run) -> float | None:
        top, bottom = above(run), below(run)
        return top / bottom if top is not None and bottom else None

    return value


def over_kafka(title: str, point: str, key: str, must: float, aim: float, *, higher: bool = False) -> Goal:
    """Our figure over Kafka's."""
    ours, theirs = of(CAIRN, point, key), of(KAFKA, point, key)
    return Goal(title, divided(ours, theirs), must, aim, ours, theirs, higher)


def alone(title: str, point: str, key: str, must: float, aim: float, unit: str) -> Goal:
    """Our figure as it is, smaller is better; Kafka's is shown where there is one."""
    ours = of(CAIRN, point, key)
    return Goal(title, ours, must, aim, None, of(KAFKA, point, key), unit=unit, beside_kafka=False)


def over_point(
    title: str, above: str, below: str, key: str, must: float, aim: float, *, higher: bool = False, server: str = CAIRN
) -> Goal:
    """Our figure at one point over that at another."""
    return Goal(
        title, divided(of(server, above, key), of(server, below, key)), must, aim, None, None, higher, "", False
    )


def verdict(goal: Goal, run: Run) -> str:
    result = goal.result(run)
    must = goal.must if isinstance(goal.must, float | int) else goal.must(run)
    if result is None or must is None:
        return "not measured"
    if run.quick and goal.beside_kafka:
        return COLD
    sign = 1 if goal.higher else -1
    if sign * (result - goal.aim) >= 0:
        return AIM
    return OK if sign * (result - must) >= 0 else MISSED


def line(goal: Goal, run: Run) -> list[str]:
    must = goal.must if isinstance(goal.must, float | int) else goal.must(run)
    comparison = ">=" if goal.higher else "<="
    cells = [_shown(amount(run) if amount is not None else None) for amount in (goal.ours, goal.theirs)]
    result = goal.result(run)
    shown = "" if result is None else f"**{figure(result)}**{goal.unit}"
    return [goal.title, *cells, shown, f"{comparison} {_shown(must)}", _shown(goal.aim), verdict(goal, run)]


def goal_table(goals: Sequence[Goal], run: Run) -> str:
    return table(HEADS, [line(goal, run) for goal in goals])


def _shown(value: float | None) -> str:
    return "" if value is None else figure(value)


def goal_lines(page: str) -> list[str]:
    """The lines of every table of goals on the page, headings left out."""
    found, inside = [], False
    for text in page.splitlines():
        if text.startswith(f"| {HEADS[0]} | {HEADS[1]} |"):
            inside = True
        elif inside and not text.startswith("|"):
            inside = False
        elif inside and not text.startswith("| ---"):
            found.append(text)
    return found


def summary(page: str) -> str:
    """All goals of all rows in one table, and how many were reached."""
    lines = list(dict.fromkeys(goal_lines(page)))
    reached = sum(line.endswith((f"| {OK} |", f"| {AIM} |")) for line in lines)
    aims = sum(line.endswith(f"| {AIM} |") for line in lines)
    heads = "\n".join(["| " + " | ".join(HEADS) + " |", "|" + " --- |" * len(HEADS)])
    return f"{reached} of {len(lines)} musts reached, {aims} aims.\n\n{heads}\n" + "\n".join(lines)
