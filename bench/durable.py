"""Row `durable`: acks=all and idempotent; ours is synced before the answer, Kafka's with `flush.messages=1`."""

from __future__ import annotations

from functools import partial

from bench.goals import over_kafka
from bench.load import Load, run_load
from bench.picture import bars
from bench.results import CAIRN, KAFKA, Points, Run, Store
from bench.row import Row, rounds
from bench.servers import Servers, turns
from bench.sweep import PARTITIONS
from bench.table import Column, comparison

UNSYNCED = "Apache Kafka, no flush"
KINDS = (CAIRN, KAFKA, UNSYNCED)
COLUMNS = (
    Column("produce_mb_s", "produce MB/s"),
    Column("produce_cpu_s_gb", "broker CPU s/GB"),
    Column("batch_records", "records in a batch", compared=False),
    Column("pss_mb", "PSS MB under load"),
)
GOALS = (
    over_kafka("acks=all synced, MB/s over flush.messages=1, 10 partitions", "10", "produce_mb_s", 2, 3, higher=True),
    over_kafka("the same, 1,000 partitions", "1,000", "produce_mb_s", 15, 25, higher=True),
)


def run_durable(servers: Servers, kind: str, load: Load) -> Points:
    return {f"{load.partitions:,}": run_load(servers.get(server_of(kind)), load)}


def server_of(kind: str) -> str:
    return KAFKA if kind == UNSYNCED else kind


def measure(store: Store, servers: Servers) -> None:
    megabytes = 50 if store.run.quick else 1000
    for number in rounds(store):
        for partitions in PARTITIONS:
            for kind in turns(KINDS if number == 1 else (CAIRN, KAFKA), number):  # the third is only shown beside
                config = {"flush_messages": "1"} if kind == KAFKA else {}
                load = Load(partitions, megabytes, acks="all", idempotent=True, topic_config=config)
                act = partial(run_durable, servers, kind, load)
                store.take(kind, f"{partitions:,}", number, act, partial(servers.get, server_of(kind)))


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    points = run.points()
    series = {kind: [run.median(kind, point, "produce_mb_s") for point in points] for kind in KINDS}
    return {"durable": bars("MB/s with acks=all, idempotent, 1 KB records", points, series)}


DURABLE = Row("durable", measure, body, pictures, GOALS)
