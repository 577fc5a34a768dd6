"""One server and three, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from unit.metadata.second_process import SecondProcess
from zookeeper.harness import ZookeeperHarness
from zookeeper.servers import Servers


@pytest.fixture(scope="module")
def second() -> Iterator[SecondProcess]:
    with closing(SecondProcess()) as process:
        yield process


@pytest.fixture(scope="module", params=[1, 3], ids=["one-server", "three-servers"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with Servers(directory, request.param).up() as servers:
        yield servers


@pytest.fixture
def harness(servers: Servers, second: SecondProcess) -> Iterator[ZookeeperHarness]:
    with closing(ZookeeperHarness(servers, second)) as harness:
        yield harness
