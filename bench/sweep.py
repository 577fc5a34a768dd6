"""Row `sweep`: produce and consume by librdkafka at few and at many partitions, ours and Kafka in turn."""

from __future__ import annotations

from functools import partial

from bench.goals import alone, over_kafka
from bench.load import Load, run_load
from bench.results import Points, Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Servers, turns
from bench.table import Column, comparison

PARTITIONS = (10, 1000)
COLUMNS = (
    Column("produce_mb_s", "produce MB/s"),
    Column("produce_cpu_s_gb", "broker CPU s/GB produced"),
    Column("batch_records", "records in a batch", compared=False),
    Column("warm_produce_mb_s", "again, partitions warm: MB/s"),
    Column("warm_produce_cpu_s_gb", "warm: CPU s/GB"),
    Column("warm_batch_records", "warm: records in a batch", compared=False),
    Column("pss_mb", "PSS MB under load"),
    Column("consume_mb_s", "history: MB/s"),
    Column("consume_cpu_s_gb", "broker CPU s/GB consumed"),
)
GOALS = (
    over_kafka("CPU s/GB produced, 10 partitions", "10", "produce_cpu_s_gb", 1.0, 0.5),
    over_kafka("CPU s/GB produced, 1,000 partitions", "1,000", "produce_cpu_s_gb", 0.3, 0.15),
    over_kafka("produce MB/s, 10 partitions", "10", "produce_mb_s", 1.0, 1.5, higher=True),
    over_kafka("produce MB/s, 1,000 partitions", "1,000", "produce_mb_s", 3.0, 4.0, higher=True),
    over_kafka("CPU s/GB consumed from history, 10 partitions", "10", "consume_cpu_s_gb", 1.0, 0.5),
    over_kafka("CPU s/GB consumed from history, 1,000 partitions", "1,000", "consume_cpu_s_gb", 1.0, 0.5),
    alone("PSS, 1,000 partitions under load", "1,000", "pss_mb", 100.0, 60.0, " MB"),
)


def run_sweep(servers: Servers, name: str, load: Load) -> Points:
    return {f"{load.partitions:,}": run_load(servers.get(name), load)}


def measure(store: Store, servers: Servers) -> None:
    megabytes = 100 if store.run.quick else 1000
    for number in rounds(store):
        for partitions in PARTITIONS:
            for name in turns(BOTH, number):
                load = Load(partitions, megabytes, again=True, consume=True)
                act = partial(run_sweep, servers, name, load)
                store.take(name, f"{partitions:,}", number, act, partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    points = run.points()
    return {
        "sweep-produce": beside(run, "Produce MB/s over partitions, 1 KB records, acks=1", points, "produce_mb_s"),
        "sweep-cpu": beside(run, "Broker CPU seconds per GB produced, over partitions", points, "produce_cpu_s_gb"),
        "sweep-consume": beside(run, "Broker CPU seconds per GB consumed, over partitions", points, "consume_cpu_s_gb"),
        "sweep-memory": beside(run, "Memory (PSS, MB) under load, over partitions", points, "pss_mb"),
    }


SWEEP = Row("sweep", measure, body, pictures, GOALS)
