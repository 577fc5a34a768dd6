"""Brokers are restarted one after the other under load, as an upgrade does it: clients notice nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from cluster.brokers import Cluster
from cluster.world import MANNERS, World

ROUNDS = 2


@pytest.mark.parametrize("rounds", [1, pytest.param(ROUNDS, marks=pytest.mark.long)])
def test_no_delivery_fails(rounds: int, make_cluster: Callable[..., Cluster]) -> None:
    """With the retries that clients have as they are shipped, idempotent or not."""
    cluster = make_cluster()
    tally: Counter[str] = Counter()
    world = World(cluster, tally, [manner._replace(retried=True) for manner in MANNERS if not manner.weak])
    with world.lived_in():
        for _ in range(rounds):
            for node in cluster.brokers:
                cluster.restart(node)
                cluster.wait_in_sync()
                world.goes_on()
    assert sum(writer.failed for writer in world.writers) == 0
    cluster.stop()
    cluster.verify()
