"""pytest plugin: spreads a case over the clients that can express it, and writes the table in docs/features.md.

A test marked `case(title, needs=...)` runs once per client (fixture `client`) or pair (`writer`, `reader`). A client
that lacks a need is not asked, and the table says so. `pytest tests/interop --write-features` replaces the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from interop.clients.roster import CLIENTS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "features.md"
BEGIN, END = "<!-- clients: begin, written by `pytest tests/interop --write-features` -->", "<!-- clients: end -->"
ROLES = ("client", "writer", "reader")
YES, NOT_OFFERED, FAILED = "yes", "not offered by client", "FAILED"


class Case(NamedTuple):
    """One row of the table: a test, or one variant of it."""

    title: str
    test: str

    @property
    def label(self) -> str:
        return f"{self.title} (`{self.test}`)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-features", action="store_true", help="write the client x case table into docs/features.md"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("case")
    if marker is None:
        return
    needs = marker.kwargs.get("needs", ())
    able = [name for name, client in CLIENTS.items() if not set(needs) & set(client.lacks)]
    for role in ROLES:
        if role in metafunc.fixturenames:
            metafunc.parametrize(role, able, indirect=True, ids=able)


def split_id(parameters: str) -> tuple[str, list[str]]:
    """A test's bracketed id as (variant, clients): `gzip-librdkafka-kcat` is gzip with two clients."""
    pieces = [piece for piece in parameters.split("-") if piece]
    return "-".join(piece for piece in pieces if piece not in CLIENTS), [piece for piece in pieces if piece in CLIENTS]


def row_name(test: str, variant: str) -> str:
    return f"{test}[{variant}]" if variant else test


def case_of(item: pytest.Item) -> tuple[Case, list[str]] | None:
    """The row a test belongs to, and the clients it speaks for; None for tests that are no case."""
    marker = item.get_closest_marker("case")
    callspec = getattr(item, "callspec", None)
    if marker is None or callspec is None:
        return None
    variant, clients = split_id(callspec.id)
    name = row_name(getattr(item, "originalname", item.name), variant)
    return Case(marker.args[0].format(variant=variant), name), clients


def reasons(cases: Iterable[Case], cells: dict[tuple[Case, str], str], needs: dict[Case, tuple[str, ...]]) -> list[str]:
    """One line for each thing a client lacks and a case needs."""
    lines = []
    for name, client in CLIENTS.items():
        for need, why in client.lacks.items():
            if any(need in needs[case] and cells.get((case, name)) is None for case in cases):
                lines.append(f"- {name}, {need}: {why}.")
    return lines


class Table:
    """Gathers outcomes during the run; a row fails for a client if any of its tests failed."""

    def __init__(self) -> None:
        self.cells: dict[tuple[Case, str], str] = {}
        self.needs: dict[Case, tuple[str, ...]] = {}
        self.by_node: dict[str, tuple[Case, list[str]]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            found = case_of(item)
            marker = item.get_closest_marker("case")
            if found is not None and marker is not None:
                self.by_node[item.nodeid] = found
                self.needs[found[0]] = tuple(marker.kwargs.get("needs", ()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self.by_node or (report.when != "call" and report.passed):
            return
        case, clients = self.by_node[report.nodeid]
        for client in clients:
            worse = self.cells.get((case, client)) == FAILED or not report.passed
            self.cells[case, client] = FAILED if worse else YES

    def text(self) -> str:
        names = list(CLIENTS)
        lines = ["| case | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for case in self.needs:
            row = [self.cells.get((case, name), NOT_OFFERED) for name in names]
            lines.append("| " + " | ".join([case.label, *row]) + " |")
        return "\n".join([*lines, "", *reasons(self.needs, self.cells, self.needs)])

    def pytest_sessionfinish(self) -> None:
        page = PAGE.read_text()
        before, rest = page.split(BEGIN)
        _, after = rest.split(END)
        PAGE.write_text(f"{before}{BEGIN}\n{self.text()}\n{END}{after}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-features"):
        if config.getoption("numprocesses", None):
            raise pytest.UsageError("--write-features gathers what one process saw: leave out -n")
        config.pluginmanager.register(Table(), "features-table")


def table_of(page: str) -> dict[tuple[str, str], str]:
    """(test, client) -> cell, as docs/features.md has it."""
    body = page.split(BEGIN)[1].split(END)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines() if line.startswith("|")]
    if len(rows) < 2:
        return {}
    names = rows[0][1:]
    cells = {}
    for row in rows[2:]:
        test = re.search(r"\(`([^`]+)`\)$", row[0])
        assert test is not None, f"the table's row {row[0]!r} names no test"
        cells.update({(test[1], name): cell for name, cell in zip(names, row[1:], strict=True)})
    return cells
