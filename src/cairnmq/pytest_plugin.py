"""Fixtures for tests of applications: `cairn_broker`, one per test session, and `cairn_topic`, a new one per test.

Each worker of pytest-xdist has a broker of its own, on a free port and in a temporary directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from cairnmq.local_broker import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cairnmq")
    group.addoption(
        "--cairn-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the broker that the fixture cairn_broker starts; repeatable",
    )
    parser.addini(
        "cairn_settings",
        "settings of the broker that the fixture cairn_broker starts, one NAME=VALUE per line",
        type="linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cairn_topic(partitions=1, **configs): partitions and settings of the topic of cairn_topic"
    )


@pytest.fixture(scope="session")
def cairn_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker; `cairn_broker.bootstrap` is its address."""
    lines = [*request.config.getini("cairn_settings"), *request.config.getoption("--cairn-set")]
    with Broker(settings=dict(map(_setting, lines))) as broker:
        yield broker


@pytest.fixture
def cairn_topic(request: pytest.FixtureRequest, cairn_broker: Broker) -> Iterator[str]:
    """The name of a new topic that no other test uses; it is deleted afterwards."""
    marker = request.node.get_closest_marker("cairn_topic")
    configs = dict(marker.kwargs) if marker is not None else {}
    partitions = configs.pop("partitions", 1)
    name = f"test-{uuid.uuid4().hex[:12]}"
    cairn_broker.create_topic(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
    yield name
    if cairn_broker.running:
        cairn_broker.delete_topic(name)


def _setting(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals or not name.strip():
        raise pytest.UsageError(f"cairn_settings: {line!r} is not NAME=VALUE")
    return name.strip(), value.strip()
