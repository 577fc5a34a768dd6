"""A broker loses a disk, or was away for longer than journals are kept: its replicas come back by themselves, under
load, and have what the others have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_process import wait_until
from cluster.brokers import SYNC_SECONDS, Cluster
from cluster.lost_disks import JOURNALS, LITTLE_KEPT, WIPES, installs, wipe_both
from cluster.world import MANNERS, World


def nothing(data: Path) -> None:
    """It was away for too long."""


EACH = [
    wipe_both,
    nothing,
    *(pytest.param(one, marks=pytest.mark.long) for one in WIPES.values() if one is not wipe_both),
]


@pytest.mark.parametrize("wipe", EACH)
def test_a_replica_comes_back(wipe: Callable[[Path], None], make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(settings=LITTLE_KEPT, direct=True)
    world = World(cluster, Counter(), [manner for manner in MANNERS if not manner.weak])
    with world.lived_in():
        world.goes_on(300)
        cluster.kill(3)
        world.goes_on(300)
        wait_until(lambda: removed(cluster), SYNC_SECONDS, "a journal that begins later")
        wipe(cluster.brokers[3].data)
        world.goes_on(50)
        cluster.revive(3)
        cluster.wait_in_sync()
        world.goes_on()
    assert installs(cluster, 3) > 0
    cluster.stop()
    cluster.verify()


def removed(cluster: Cluster) -> bool:
    """A journal has let its beginning go, whichever of the others leads it."""
    firsts = [firsts_of(cluster.brokers[node].data / JOURNALS) for node in (1, 2)]
    return any(all(each.get(number, 0) > 0 for each in firsts) for number in firsts[0])


def firsts_of(directory: Path) -> dict[str, int]:
    return {
        each.name: min((int(file.stem) for file in each.glob("*.jnl")), default=0)
        for each in directory.iterdir()
        if each.is_dir()
    }


LATER = [pytest.param(point, marks=pytest.mark.long) for point in ("install-complete", "install-packs-moved")]


@pytest.mark.parametrize("point", ["", "install-journal-removed", *LATER])
def test_a_broker_that_dies_meanwhile_begins_again(point: str, make_cluster: Callable[..., Cluster]) -> None:
    """While it receives, or at a step of the start that puts it in place."""
    cluster = make_cluster(settings=LITTLE_KEPT, direct=True)
    broker = cluster.brokers[3]
    world = World(cluster, Counter(), [manner for manner in MANNERS if not manner.weak])
    with world.lived_in():
        world.goes_on(300)
        cluster.kill(3)
        world.goes_on(300)
        wait_until(lambda: removed(cluster), SYNC_SECONDS, "a journal that begins later")
        wipe_both(broker.data)
        broker.settings |= {"cairn.fault.point": point} if point else {"follower.replication.throttled.rate": "500"}
        cluster.revive(3)
        if point:
            wait_until(lambda: not broker.running, SYNC_SECONDS, f"its death at {point}")
        else:
            wait_until(lambda: list((broker.data / "installs").glob("*/*.pack")), SYNC_SECONDS, "some of an install")
        cluster.kill(3)
        del broker.settings["cairn.fault.point" if point else "follower.replication.throttled.rate"]
        world.goes_on(50)
        cluster.revive(3)
        cluster.wait_in_sync()
        world.goes_on()
    assert installs(cluster, 3) > 0
    cluster.stop()
    cluster.verify()
