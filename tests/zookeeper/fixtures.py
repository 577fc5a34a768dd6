"""Servers for all tests of a file, and how the suite of stores uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from unit.metadata.second_process import SecondProcess
from zookeeper.harness import ZookeeperHarness
from zookeeper.servers import Servers


@pytest.fixture(scope="module")
def second() -> Iterator[SecondProcess]:
    with closing(SecondProcess()) as process:
        yield process


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One."""
    with Servers(tmp_path_factory.mktemp("zookeeper")).up() as servers:
        yield servers


@pytest.fixture
def harness(servers: Servers, second: SecondProcess) -> Iterator[ZookeeperHarness]:
    with closing(ZookeeperHarness(servers, second)) as harness:
        yield harness
