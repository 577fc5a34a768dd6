"""pytest plugin: which tests `make test` leaves to `make test-all`, and how tests are spread over processes.

A test is long if it is marked `long`, lies in a suite of LONG_SUITES, or drives a client that has to be built first.
`make test` is `pytest -m "not long"`, `make test-long` is `pytest -m long`, `make test-all` is all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interop.clients.roster import BUILT

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent
DAILY = "not long"
LONG_SUITES = {"apache_kafka", "browser", "fuzz", "interop_cluster", "load", "spark", "zookeeper"}

SHARED = {"apache_kafka", "spark"}
"""Suites whose tests share one large program (Apache Kafka, a Spark session): all of them run in one process."""
SINGLE = {"chaos", "cluster", "damage", "sim"}
"""Suites whose tests share nothing and take long, each is handed out by itself; elsewhere it is a file at a time."""

FIRST = [
    "spark",
    "apache_kafka",
    "cluster",
    "zookeeper",
    "crash",
    "interop",
    "interop_cluster",
    "chaos",
    "faults",
    "fuzz",
    "load",
    "damage",
    "sim",
    "property",
]
"""Long ones first: no process is left with one of them when the others have nothing to do."""


def suite_of(nodeid: str) -> str:
    """`tests/sim/test_campaign.py::test_x` is of `sim`."""
    parts = nodeid.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else ""


def scope_of(nodeid: str) -> str:
    """What one process gets as a whole; xdist calls it a scope."""
    suite = suite_of(nodeid)
    if suite in SHARED:
        return suite
    return nodeid if suite in SINGLE else nodeid.partition("::")[0]


def is_long(item: pytest.Item) -> bool:
    suite = suite_of(item.nodeid)
    called = getattr(item, "callspec", None)
    return suite in LONG_SUITES or (suite == "interop" and called is not None and uses_built(called.params.values()))


def uses_built(parameters: Iterable[object]) -> bool:
    return any(isinstance(parameter, str) and parameter in BUILT for parameter in parameters)


def turn_of(item: pytest.Item) -> int:
    suite = suite_of(item.nodeid)
    return FIRST.index(suite) if suite in FIRST else len(FIRST)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Each process would read suites of which it runs nothing."""
    is_left_out = config.option.markexpr == DAILY and collection_path.parent == HERE
    return True if is_left_out and collection_path.name in LONG_SUITES else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` chooses among them."""
    for item in items:
        if is_long(item):
            item.add_marker("long")
    items.sort(key=turn_of)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Scopes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    config.option.loadscopereorder = False  # they are in order, see FIRST
    return Scopes(config, log)
