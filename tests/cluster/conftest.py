"""A cluster of three brokers that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.brokers import Cluster
from conftest import LIVE


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts one; takes Cluster's own arguments."""
    with ExitStack() as stack:

        def make(**options: object) -> Cluster:
            cluster = Cluster(tmp_path / "cluster", **options)  # type: ignore[arg-type]
            LIVE.extend(cluster.brokers.values())
            stack.callback(forget, cluster)
            return stack.enter_context(cluster.up())

        yield make


def forget(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        LIVE.remove(broker)
