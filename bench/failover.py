"""Row `failover`: kill -9 of the broker that leads most, again and again; how long does a partition stand still?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import cast

from msgspec import Struct

from bench.clusters import CLUSTERS, QUICK_SESSION, Cluster, described
from bench.goals import alone, over_point
from bench.librdkafka import LoadFailed, create_topics
from bench.probe import Probes, leader_of_most
from bench.results import CAIRN, KAFKA, Points, Run, Store, say
from bench.row import Row, beside
from bench.servers import START_SECONDS, Servers
from bench.table import Column, comparison

REPLICAS = 3
TOPIC = "probe"
PROBED = 6  # ours has six journals, two led by each broker: a partition in each
TOPIC_PARTITIONS = 1000
PARTITIONS = {CAIRN: (10, 1000, 10_000), KAFKA: (10, 1000)}
PAUSED_PARTITIONS = 1000
SETTLE_SECONDS = 2.0
WATCH_SECONDS = 4.0  # after a kill: twice the session
BACK_SECONDS = 60.0
CALM_SECONDS = 0.5
COLUMNS = (
    Column("outage_p50_s", "outage p50 s"),
    Column("outage_max_s", "outage max s"),
    Column("faults", "kills or pauses", compared=False),
    Column("in_sync_s", "s from a start until all is in sync", compared=False),
    Column("create_s", "s to create the partitions", compared=False),
)
GOALS = (
    over_point("outage after kill -9: p50, 10,000 over 10 partitions", "10,000", "10", "outage_p50_s", 1.3, 1.3),
    alone("outage of a paused broker, 1,000 partitions: p50", "1,000, paused", "outage_p50_s", 3.0, 3.0, " s"),
    alone("outage of a paused broker, 1,000 partitions: max", "1,000, paused", "outage_max_s", 5.0, 5.0, " s"),
    *(
        goal
        for point in ("10", "1,000", "10,000")
        for goal in (
            alone(f"outage after kill -9, {point} partitions: p50", point, "outage_p50_s", 3.0, 3.0, " s"),
            alone(f"outage after kill -9, {point} partitions: max", point, "outage_max_s", 5.0, 1.5, " s"),
        )
    ),
)


class Fault(Struct, frozen=True):
    done: str
    begin: Callable[[Cluster, int], None]
    end: Callable[[Cluster, int], None]


KILL = Fault("killed", lambda cluster, node: cluster.brokers[node].kill(), Cluster.revive)
PAUSE = Fault("paused", Cluster.pause, Cluster.resume)


def point_of(partitions: int, fault: Fault) -> str:
    return f"{partitions:,}" if fault is KILL else f"{partitions:,}, {fault.done}"


def create(cluster: Cluster, partitions: int) -> None:
    create_topics(cluster.bootstrap, [TOPIC], PROBED, REPLICAS, min_insync_replicas="2")
    left, number = partitions - PROBED, 0
    while left > 0:
        some = min(left, TOPIC_PARTITIONS)
        create_topics(cluster.bootstrap, [f"more-{number}"], some, REPLICAS, min_insync_replicas="2")
        left, number = left - some, number + 1
    cluster.wait_in_sync()


def wait_for_all(probes: Probes, deadline: float) -> bool:
    """Until every partition is served; False: time is up."""
    while not probes.all_since(time.monotonic() - CALM_SECONDS):
        if time.monotonic() > deadline:
            return False
        time.sleep(CALM_SECONDS / 10)
    return True


def outage_of(cluster: Cluster, probes: Probes, fault: Fault) -> tuple[float, float]:
    """The outage, and how long it then took until all was in sync again."""
    rows = next(iter(described(cluster.port, [TOPIC]).topics)).partitions
    victim = leader_of_most(row.leader_id for row in rows)
    begin = time.monotonic()
    fault.begin(cluster, victim)
    time.sleep(WATCH_SECONDS)
    if not wait_for_all(probes, begin + BACK_SECONDS):
        say(f"WARNING: {cluster.name}: a partition still stands still, {BACK_SECONDS:g} s after a fault")
    outage = probes.longest(begin)
    start = time.monotonic()
    fault.end(cluster, victim)
    in_sync = time.monotonic() - start
    if not wait_for_all(probes, start + START_SECONDS):
        raise LoadFailed(f"{cluster.name}: a partition stands still although all replicas are in sync")
    time.sleep(SETTLE_SECONDS)
    say(f"{cluster.name}: broker {victim} {fault.done}, a partition stood still for {outage:.2f} s")
    return outage, in_sync


def run_failover(servers: Servers, name: str, partitions: int, fault: Fault, times: int) -> Points:
    cluster = cast(Cluster, servers.get(name))
    start = time.monotonic()
    create(cluster, partitions)
    created = time.monotonic() - start
    with Probes(cluster.ports, TOPIC, PROBED) as probes:
        time.sleep(SETTLE_SECONDS)
        taken = [outage_of(cluster, probes, fault) for _ in range(times)]
    servers.end(name)
    outages, in_sync = zip(*taken, strict=True)
    values = {"outage_p50_s": statistics.median(outages), "outage_max_s": max(outages), "faults": float(times)}
    return {point_of(partitions, fault): values | {"in_sync_s": statistics.median(in_sync), "create_s": created}}


def measure(store: Store, _servers: Servers) -> None:
    """One cluster at a time: what another one does at rest, with thousands of partitions, would count."""
    kills = {CAIRN: 10, KAFKA: 3 if store.run.quick else 10}
    with Servers("failover", settings=QUICK_SESSION, make=CLUSTERS) as servers:
        for name, sizes in PARTITIONS.items():
            wanted = [(partitions, KILL, kills[name]) for partitions in sizes]
            wanted.append((PAUSED_PARTITIONS, PAUSE, 3 if store.run.quick else 5))
            for partitions, fault, times in wanted:
                act = partial(run_failover, servers, name, partitions, fault, times)
                store.take(name, point_of(partitions, fault), 1, act, partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    title = "Seconds that a partition stands still after kill -9 of its leader (median)"
    return {"failover": beside(run, title, run.points(), "outage_p50_s")}


FAILOVER = Row("failover", measure, body, pictures, GOALS)
