"""Three real brokers whose metadata are in ZooKeeper: what happens to it, and to them, while clients go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_process import wait_until
from cluster.brokers import SYNC_SECONDS, Cluster
from cluster.conftest import make_cluster  # noqa: F401 - a fixture
from cluster.world import World
from zookeeper.passages import Passages
from zookeeper.servers import Servers

SETTINGS = {"cairn.session.ms": "6000"}
PAUSE_SECONDS = 12.0  # more than a session
AWAY_SECONDS = 60.0
ROOT = "/prod/cairn"


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("zookeeper"), 3).up() as servers:
        yield servers


def url(addresses: list[str], root: str) -> str:
    return f"zookeeper://{','.join(addresses)}{root}"


def failed(world: World) -> dict[str, int]:
    """Records with acks=all that were not delivered, by the client that was told so."""
    return {writer.manner.name: writer.failed for writer in world.writers if not writer.manner.weak and writer.failed}


def judged(cluster: Cluster) -> None:
    cluster.stop()
    cluster.verify()


def test_zookeeper_away_for_a_minute_costs_no_acknowledgement(
    trio: Servers,
    make_cluster: Callable[..., Cluster],  # noqa: F811
) -> None:
    cluster = make_cluster(metadata=url(trio.addresses, "/away"), settings=SETTINGS)
    tally: Counter[str] = Counter()
    world = World(cluster, tally)
    with world.lived_in():
        before = failed(world)
        trio.kill()
        until = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < until:
            world.goes_on()
            time.sleep(1.0)
        healthy, said = cluster.health()
        assert not healthy and "cannot reach the metadata store" in said
        trio.start()
        world.goes_on()
        assert failed(world) == before == {}
        cluster.wait_in_sync()
    judged(cluster)
    assert tally["records checked"] > 0 and tally["leader changes seen"] == 0, tally


def test_brokers_and_servers_die_and_stand_still(
    trio: Servers,
    make_cluster: Callable[..., Cluster],  # noqa: F811
) -> None:
    cluster = make_cluster(metadata=url(trio.addresses, ROOT), settings=SETTINGS)
    tally: Counter[str] = Counter()
    world = World(cluster, tally)
    with world.lived_in():
        cluster.kill(cluster.controller())
        world.goes_on()
        for node in set(cluster.brokers) - set(cluster.running):
            cluster.revive(node)
        leader = trio.leader
        leader.kill()
        world.goes_on()
        trio.start()
        cluster.wait_in_sync()
        with cluster.paused(2):
            time.sleep(PAUSE_SECONDS)
        world.goes_on()
        wait_until(lambda: "registered again" in cluster.brokers[2].log(), SYNC_SECONDS, "a new session of broker 2")
        cluster.wait_in_sync()
    judged(cluster)
    assert tally["records checked"] > 0 and tally["leader changes seen"] > 0, tally


def test_a_broker_that_alone_cannot_reach_zookeeper_loses_its_session_and_comes_back(
    trio: Servers, tmp_path: Path
) -> None:
    """It lives, and others reach it: only what it leads goes to them."""
    with closing(Passages(trio.addresses)) as passages:
        cluster = Cluster(tmp_path / "cluster", metadata=url(trio.addresses, "/cut"), settings=SETTINGS)
        broker = cluster.brokers[1]
        broker.flags = tuple(
            url(passages.addresses, "/cut") if each == cluster.metadata else each for each in broker.flags
        )
        with cluster.up():
            made = cluster.cairn("topic", "create", "t", "-p", "6", "-b", cluster.bootstrap)
            assert made.returncode == 0, made.stderr
            cluster.wait_in_sync()
            for cut in (passages.silence, passages.refuse):
                cut()
                wait_until(
                    lambda: all(row.leader_id != 1 for row in cluster.told(2).values()),
                    SYNC_SECONDS,
                    "broker 1 to lead nothing",
                )
                passages.accept()
                cluster.wait_in_sync()
            assert broker.log().count("registered again") >= 2, broker.log_tail()
            cluster.stop()
            cluster.verify()


def test_a_node_brings_its_metadata_along_into_an_empty_path(trio: Servers, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", metadata=url(trio.addresses, "/moved"), settings=SETTINGS)
    first = cluster.brokers[1]
    in_cluster = first.flags
    first.flags, settings = ("--node-id", "1"), first.settings
    first.settings = {}
    first.start()
    cluster.cairn("topic", "create", "old", "-p", "3", "-b", first.bootstrap)
    assert first.stop() == 0
    first.flags, first.settings = in_cluster, settings
    with closing(cluster):
        for broker in cluster.brokers.values():  # the one that brings metadata is the first
            broker.start()
        cluster.wait_in_sync()
        made = cluster.cairn("topic", "create", "new", "-p", "3", "-b", cluster.bootstrap)
        assert made.returncode == 0, made.stderr
        cluster.wait_in_sync()
        listed = cluster.cairn("topic", "list", "-b", cluster.bootstrap).stdout
        assert {"old", "new"} <= set(listed.split()), listed
        assert (first.data / "meta.db.moved").exists() and not (first.data / "meta.db").exists()
        cluster.stop()
        cluster.verify()
