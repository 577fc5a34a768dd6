"""Row `sweep`: produce and consume by librdkafka at few and at many partitions, ours and Kafka in turn."""

from __future__ import annotations

from functools import partial

from bench.librdkafka import Load, run_load
from bench.results import Points, Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Server, Servers, turns
from bench.table import Column, comparison

PARTITIONS = (10, 1000)
COLUMNS = (
    Column("produce_mb_s", "produce MB/s"),
    Column("produce_cpu_s_gb", "broker CPU s/GB produced"),
    Column("batch_records", "records in a batch", compared=False),
    Column("pss_mb", "PSS MB under load"),
    Column("consume_mb_s", "consume MB/s"),
    Column("consume_cpu_s_gb", "broker CPU s/GB consumed"),
    Column("setup_cpu_ms", "set-up: CPU ms per partition", compared=False),
)


def run_sweep(servers: Servers, name: str, load: Load) -> Points:
    return {f"{load.partitions:,}": run_load(servers.get(name), load)}


def measure(store: Store) -> None:
    quick = store.run.quick
    megabytes = 200 if quick else 1000

    def warm_up(server: Server) -> None:
        """The JVM compiles what runs often: its first gigabytes take twice the CPU of later ones."""
        for partitions, warm_mb in ((10, 200), (1000, 100)) if quick else ((10, 3000), (1000, 1500)):
            run_load(server, Load(partitions, warm_mb))

    with Servers("sweep", warm_up) as servers:
        for number in rounds(store):
            for partitions in PARTITIONS:
                for name in turns(BOTH, number):
                    store.take(
                        name, f"{partitions:,}", number, partial(run_sweep, servers, name, Load(partitions, megabytes))
                    )


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    points = run.points()
    return {
        "sweep-produce": beside(run, "Produce MB/s over partitions, 1 KB records, acks=1", points, "produce_mb_s"),
        "sweep-cpu": beside(run, "Broker CPU seconds per GB produced, over partitions", points, "produce_cpu_s_gb"),
        "sweep-memory": beside(run, "Memory (PSS, MB) under load, over partitions", points, "pss_mb"),
    }


SWEEP = Row("sweep", measure, body, pictures)
