"""Transactions over three real brokers, whose coordinators, partitions and groups are anywhere, under kills."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import wait_until
from cluster.brokers import Cluster
from cluster.transactors import PARTITIONS, SOURCE, TOPIC, Transactor, judge

WRITERS = 4
KILLS = 4
MORE = 8
GOES_ON_SECONDS = 100.0  # only a failure uses it up


def goes_on(transactors: list[Transactor], more: int = MORE) -> None:
    """Every writer hears of further ends."""
    aims = [(one, len(one.told) + more) for one in transactors]
    try:
        wait_until(
            lambda: all(len(one.told) >= aim for one, aim in aims), GOES_ON_SECONDS, "further ends of transactions"
        )
    except AssertionError as problem:
        raise AssertionError(f"{problem}: {[one.state for one in transactors]}") from None


def begun(cluster: Cluster, seed: int) -> list[Transactor]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in (TOPIC, SOURCE)]
    for future in admin.create_topics(new, request_timeout=60.0).values():
        future.result(60)
    cluster.wait_in_sync()
    transactors = [Transactor(cluster, f"writer-{n}", seed + n, f"group-{n}") for n in range(WRITERS)]
    for one in transactors:
        one.start()
    goes_on(transactors)
    return transactors


def test_killed_brokers_leave_transactions_whole(make_cluster: Callable[..., Cluster]) -> None:
    seed = time.time_ns() // 1_000_000
    print(f"seed {seed}")
    cluster, random = make_cluster(), Random(seed)
    transactors = begun(cluster, seed)
    for _ in range(KILLS):
        node = random.choice(list(cluster.brokers))
        cluster.kill(node)
        time.sleep(random.uniform(0.0, 3.0))
        cluster.revive(node)
        goes_on(transactors, 3)
    for one in transactors:
        one.stop()
    cluster.wait_in_sync()
    tally = judge(cluster, transactors)
    assert tally["commits"] and tally["aborts"], tally
    print(dict(tally))
