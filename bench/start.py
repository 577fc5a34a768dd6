"""Row `start`: from the start of a process to the first acknowledged message; memory at rest and with connections."""

from __future__ import annotations

from functools import partial

from bench.first_message import seconds_to_first_message
from bench.goals import alone
from bench.results import Points, Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Servers, turns
from bench.table import Column, comparison
from cairnmq.cli.bench_pipe import Pipe

POINT = "empty directory"
COLUMNS = (
    Column("first_s", "s to first acknowledged message"),
    Column("idle_pss_mb", "idle PSS MB"),
    Column("connections_pss_mb", "PSS MB more with idle connections"),
    Column("connections", "connections", compared=False),
)


def run_start(servers: Servers, name: str, connections: int) -> Points:
    server = servers.fresh(name)
    server.prepare()
    first = seconds_to_first_message(server, "first")
    server.wait_ready()
    tree = server.tree()
    tree.settle()
    idle = tree.pss_mb()
    pipes = [Pipe(server.port) for _ in range(connections)]
    tree.settle()
    more = tree.pss_mb() - idle
    for pipe in pipes:
        pipe.close()
    servers.end(name)
    values = {"first_s": first, "idle_pss_mb": idle, "connections_pss_mb": more, "connections": float(connections)}
    return {POINT: values}


def measure(store: Store, _servers: Servers) -> None:
    connections = 1000 if store.run.quick else 5000
    with Servers("start") as servers:
        for number in rounds(store, 5):
            for name in turns(BOTH, number):
                store.take(name, "start", number, partial(run_start, servers, name, connections))


def body(run: Run) -> str:
    return comparison(run, "start on", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"start": beside(run, "Seconds from start to first acknowledged message", run.points(), "first_s")}


GOALS = (
    alone("start to first acknowledged message", POINT, "first_s", 1.0, 0.4, " s"),
    alone("PSS, idle", POINT, "idle_pss_mb", 45.0, 30.0, " MB"),
    alone("PSS, 5,000 idle connections (increase)", POINT, "connections_pss_mb", 100.0, 50.0, " MB"),
)
START = Row("start", measure, body, pictures, GOALS)
