"""Raw results of a row, kept as JSON after every measurement: an interrupted run goes on where it stopped."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.page_cache import PageCache
from bench.probes import CpuMeter, busy_percent, disk_probes, machine

Values = dict[str, float]
Points = dict[str, Values]
ROOT = Path(__file__).parent.parent
HOME = ROOT / ".bench"
BUSY_PERCENT_MAX = 15
BUSY_PATIENCE = 10
PROBE_MEGABYTES = 128
CAIRN, KAFKA = "CairnMQ", "Apache Kafka"


class Measurement(Struct):
    """One turn of one server; a turn may give several points (the steps of a scenario)."""

    server: str
    name: str
    round: int
    points: Points
    probes: Values
    at: str


class Run(Struct):
    """One row of the bench: every turn of every server."""

    row: str
    quick: bool
    commit: str
    machine: str
    started: str
    finished: str | None = None
    measurements: list[Measurement] = []

    def series(self, server: str, point: str, key: str) -> list[float]:
        """All values of one figure, in the order measured."""
        points = [turn.points[point] for turn in self.measurements if turn.server == server and point in turn.points]
        return [values[key] for values in points if key in values]

    def median(self, server: str, point: str, key: str) -> float | None:
        values = self.series(server, point, key)
        return statistics.median(values) if values else None

    def points(self) -> list[str]:
        """In the order in which they were first measured."""
        return list(dict.fromkeys(point for turn in self.measurements for point in turn.points))

    def servers(self, point: str) -> list[str]:
        return sorted({turn.server for turn in self.measurements if point in turn.points})


class Store:
    """The file of one row. A finished run, or one of other code, is begun anew."""

    def __init__(
        self,
        row: str,
        quick: bool,
        home: Path = HOME,
        probe: Callable[[], Values] = lambda: probe_all(HOME),
        busy: Callable[[], float] = busy_percent,
        fill: Callable[[], object] | None = None,
    ) -> None:
        """`fill`: the page cache, before each turn."""
        self.probe = probe
        self.busy = busy
        self.fill = fill or PageCache(home / "page-cache").fill
        self.path = home / "results" / f"{row}{'-quick' if quick else ''}.json"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.run = Run(row, quick, commit(), machine(), now())
        kept = self.kept(row, quick, home)
        if kept is not None and kept.finished is None and kept.commit == self.run.commit:
            self.run = kept

    @staticmethod
    def kept(row: str, quick: bool, home: Path = HOME) -> Run | None:
        """What the last run left, finished or not."""
        path = home / "results" / f"{row}{'-quick' if quick else ''}.json"
        return msgspec.json.decode(path.read_bytes(), type=Run) if path.exists() else None

    def take(
        self,
        server: str,
        name: str,
        number: int,
        measure: Callable[[], Points],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """Measures, unless an interrupted run already did. `before` (a server, started and warm) is not measured."""
        for turn in self.run.measurements:
            if (turn.server, turn.name, turn.round) == (server, name, number):
                return
        before()
        self.turn(server, name, number, measure)

    def turn(self, server: str, name: str, number: int, measure: Callable[[], Points]) -> None:
        self.fill()
        probes = self.probe()
        for _ in range(BUSY_PATIENCE):  # a server may still be deleting files of the turn before
            if probes["busy_percent"] <= BUSY_PERCENT_MAX:
                break
            probes["busy_percent"] = self.busy()
        if probes["busy_percent"] > BUSY_PERCENT_MAX:
            say(f"WARNING: the machine is {probes['busy_percent']:.0f} % busy with something else: no fair figures")
        meter = CpuMeter()
        started = now()
        points = measure()
        probes["steal_percent"] = meter.steal_percent()
        self.run.measurements.append(Measurement(server, name, number, points, probes, started))
        self.save()
        for point, values in points.items():
            say(f"{self.run.row} {point} {server} #{number}: " + ", ".join(f"{k} {v:.4g}" for k, v in values.items()))

    def finish(self) -> Run:
        self.run.finished = now()
        self.save()
        return self.run

    def save(self) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(self.run), indent=1))
        draft.replace(self.path)


def probe_all(directory: Path) -> Values:
    os.sync()  # what the turn before left in the page cache is not the next one's load
    return {**disk_probes(directory, PROBE_MEGABYTES), "busy_percent": busy_percent()}


def commit() -> str:
    """The code that is measured; a `+` says that it was changed since."""
    known = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD", "--", "src"], check=False).returncode
    return known.stdout.strip() + ("+" if changed else "")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def say(line: str) -> None:
    """Progress, for whoever watches."""
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {line}\n")
    sys.stderr.flush()
