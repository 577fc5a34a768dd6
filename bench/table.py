"""Figures as Markdown: medians with their range, ours over Kafka's, and the machine. Values in, text out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct

from bench.results import BUSY_PERCENT_MAX as BUSY
from bench.results import CAIRN, KAFKA, Run


class Column(Struct, frozen=True):
    key: str
    heading: str
    compared: bool = True


def figure(value: float) -> str:
    """Three digits say all that a benchmark knows; thousands are set apart."""
    if value != 0 and abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}"


def cell(values: Sequence[float]) -> str:
    """The median, and the range if there was more than one turn."""
    if not values:
        return ""
    middle = figure(statistics.median(values))
    low, high = figure(min(values)), figure(max(values))
    return middle if low == high else f"{middle} ({low} to {high})"


def ratio(run: Run, point: str, key: str) -> str:
    ours, theirs = run.median(CAIRN, point, key), run.median(KAFKA, point, key)
    return f"**{ours / theirs:.2f}**" if ours is not None and theirs else ""


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def comparison(run: Run, first: str, columns: Sequence[Column]) -> str:
    """A line per point and server, and a line of ratios where both were measured."""
    lines = []
    for point in run.points():
        servers = sorted(run.servers(point), key=lambda name: name != CAIRN)
        for server in servers:
            lines.append([point, server, *(cell(run.series(server, point, column.key)) for column in columns)])
        if {CAIRN, KAFKA} <= set(
            servers
        ) and not run.quick:  # a quick run leaves the JVM cold: its ratios would flatter us
            ratios = [ratio(run, point, column.key) if column.compared else "" for column in columns]
            lines.append([point, "ours / Kafka's", *ratios])
    return table([first, "server", *(column.heading for column in columns)], lines)


def footing(run: Run, command: str) -> str:
    """What was run, when, and what the machine could do meanwhile."""
    rounds = max(turn.round for turn in run.measurements)
    probes = {key: [turn.probes[key] for turn in run.measurements] for key in run.measurements[0].probes}
    busy = statistics.median(probes["busy_percent"])
    shared = " **The machine was busy with other things during this run: compare with care.**" if busy > BUSY else ""
    cold = " A quick run does not warm Kafka up: no comparison." if run.quick else ""
    return (
        f"`{command}`, {run.started} to {run.finished or 'unfinished'}, commit {run.commit}, "
        f"{'one turn' if rounds == 1 else f'medians of {rounds} turns (range)'}. {run.machine}. "
        f"Probes before each turn: fdatasync p50 {cell(probes['fdatasync_p50_ms'])} ms, slowest of 40 "
        f"{cell(probes['fdatasync_max_ms'])} ms; sequential write {cell(probes['write_mb_s'])} MB/s; load average "
        f"{cell(probes['load_average'])}; CPU busy with other things "
        f"{cell(probes['busy_percent'])} %. CPU steal during turns {cell(probes['steal_percent'])} %.{cold}{shared}"
    )
