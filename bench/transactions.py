"""Row `transactions`: transactions a second of ten librdkafka producers, with records for 1 and for 100 partitions
each, beside Apache Kafka at equal durability."""

from __future__ import annotations

import time
from functools import partial

from bench.child import Child
from bench.goals import over_kafka
from bench.librdkafka import create_topics, delete_topic
from bench.load import stored_records
from bench.results import Points, Run, Store, Values
from bench.row import Row, beside, rounds
from bench.servers import BOTH, DURABILITY, SYNCED, UNSYNCED, Server, Servers, rest, turns
from bench.table import Column, comparison
from broker_process import wait_until

PARTITIONS = (1, 100)
PRODUCERS = 10
MARKERS_SECONDS = 30.0
COLUMNS = (
    Column("txn_s", "transactions/s"),
    Column("cpu_ms", "broker CPU ms per transaction"),
    Column("commit_p50_ms", "p50 ms of a transaction"),
    Column("commit_p99_ms", "p99 ms"),
)


def point(partitions: int, durability: str) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''} each, {durability}"


GOALS = tuple(
    over_kafka(f"transactions/s, {point(partitions, durability)}", point(partitions, durability), "txn_s", 1.0, 2.0,
               higher=True)
    for durability in (UNSYNCED, SYNCED)
    for partitions in PARTITIONS
)  # fmt: skip


def run_transactions(server: Server, partitions: int, seconds: float, replicas: int = 1) -> Values:
    """Ten producers, one transaction after another; every one of their records and markers must be there in the end."""
    topic = f"transactions-{partitions}-{time.monotonic_ns()}"
    create_topics(server.bootstrap, [topic], partitions, replicas, min_insync_replicas=str(min(replicas, 2)))
    tree = server.tree()
    with Child("transact", server.bootstrap, topic, partitions, PRODUCERS, seconds) as load:
        cpu = tree.cpu()
        elapsed, took = load.result()
    took.sort()
    wait_until(  # Kafka writes markers after it has answered
        lambda: stored_records(server, topic, partitions) == 2 * partitions * len(took),
        MARKERS_SECONDS,
        f"the records and markers of {len(took)} transactions",
    )
    spent = rest(server).cpu - cpu
    delete_topic(server.bootstrap, topic)
    return {
        "txn_s": len(took) / elapsed,
        "cpu_ms": spent * 1000 / len(took),
        "commit_p50_ms": took[len(took) // 2] * 1000,
        "commit_p99_ms": took[len(took) * 99 // 100] * 1000,
    }


def run_all(servers: Servers, name: str, durability: str, seconds: float, replicas: int = 1) -> Points:
    server = servers.get(name)
    return {point(number, durability): run_transactions(server, number, seconds, replicas) for number in PARTITIONS}


def measure(store: Store, _servers: Servers) -> None:
    quick = store.run.quick
    seconds, warm_seconds = (1.0, 1.0) if quick else (6.0, 10.0)

    def warm_up(server: Server) -> None:
        for partitions in PARTITIONS:
            run_transactions(server, partitions, warm_seconds)

    for durability, settings in DURABILITY.items():
        with Servers(f"transactions-{durability.replace(' ', '-')}", warm_up, settings) as servers:
            for number in rounds(store):
                for name in turns(BOTH, number):
                    act = partial(run_all, servers, name, durability, seconds)
                    store.take(name, durability, number, act, partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "transactions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"transactions": beside(run, "Transactions a second, ten producers", run.points(), "txn_s")}


TRANSACTIONS = Row("transactions", measure, body, pictures, GOALS)
