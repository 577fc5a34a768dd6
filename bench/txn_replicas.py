"""Row `txn-replicas`: as `transactions`, on three brokers: partitions, coordinators and their facts have three replicas
each, and at least two are in sync."""

from __future__ import annotations

from functools import partial

from bench.clusters import CLUSTERS
from bench.goals import over_kafka
from bench.replicas import REPLICAS
from bench.results import Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, DURABILITY, SYNCED, UNSYNCED, Server, Servers, turns
from bench.table import comparison
from bench.transactions import COLUMNS, PARTITIONS, point, run_all, run_transactions

GOALS = tuple(
    over_kafka(
        f"3 replicas: transactions/s, {point(partitions, durability)}",
        point(partitions, durability), "txn_s", 1.0, 2.0, higher=True,
    )
    for durability in (UNSYNCED, SYNCED)
    for partitions in PARTITIONS
)  # fmt: skip


def measure(store: Store, _servers: Servers) -> None:
    quick = store.run.quick
    seconds, warm_seconds = (2.0, 2.0) if quick else (6.0, 10.0)

    def warm_up(server: Server) -> None:
        for partitions in PARTITIONS:
            run_transactions(server, partitions, warm_seconds, REPLICAS)

    for durability, settings in DURABILITY.items():
        with Servers(f"txn-replicas-{durability.replace(' ', '-')}", warm_up, settings, make=CLUSTERS) as servers:
            for number in rounds(store):
                for name in turns(BOTH, number):
                    act = partial(run_all, servers, name, durability, seconds, REPLICAS)
                    store.take(name, durability, number, act, partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "transactions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"txn-replicas": beside(run, "Transactions a second on three brokers", run.points(), "txn_s")}


TXN_REPLICAS = Row("txn-replicas", measure, body, pictures, GOALS)
