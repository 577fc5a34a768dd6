"""Row `replicas`: three replicas of each partition, acks=all of at least two, on three brokers, ours and Kafka's."""

from __future__ import annotations

from msgspec.structs import replace

from bench.clusters import CLUSTERS
from bench.goals import alone, over_kafka
from bench.kinds import Kinds
from bench.load import Load, run_load
from bench.results import CAIRN, Run, Store
from bench.row import Row
from bench.servers import Server, Servers
from bench.sweep import PARTITIONS
from bench.table import Column, comparison

REPLICAS = 3
SYNCED = "CairnMQ, synced"
KINDS = Kinds(SYNCED, of_third=CAIRN)
COLUMNS = (
    Column("produce_mb_s", "produce MB/s"),
    Column("produce_cpu_s_gb", "brokers' CPU s/GB"),
    Column("client_cpu_s_gb", "client's CPU s/GB", compared=False),
    Column("batch_records", "records in a batch", compared=False),
    Column("warm_produce_mb_s", "again, partitions warm: MB/s"),
    Column("warm_produce_cpu_s_gb", "warm: CPU s/GB"),
    Column("warm_client_cpu_s_gb", "warm: client's CPU s/GB", compared=False),
    Column("warm_batch_records", "warm: records in a batch", compared=False),
    Column("pss_mb", "PSS MB under load, of a broker"),
)
GOALS = (
    over_kafka("3 replicas: MB/s, 10 partitions", "10", "produce_mb_s", 2, 4, higher=True),
    over_kafka("3 replicas: MB/s, 1,000 partitions", "1,000", "produce_mb_s", 4, 8, higher=True),
    over_kafka("3 replicas: CPU s/GB of all brokers, 10 partitions", "10", "produce_cpu_s_gb", 0.5, 0.5),
    over_kafka("3 replicas: CPU s/GB of all brokers, 1,000 partitions", "1,000", "produce_cpu_s_gb", 0.15, 0.15),
    alone("3 replicas: PSS of a broker under load, 10 partitions", "10", "pss_mb", 130, 130, " MB"),
    alone("3 replicas: PSS of a broker under load, 1,000 partitions", "1,000", "pss_mb", 130, 130, " MB"),
)


def load_of(kind: str, partitions: int, megabytes: int) -> Load:
    """Equal durability but for the third kind: all replicas have it, and none has synced it."""
    flush = {CAIRN: "interval", SYNCED: "commit"}
    config = {"min_insync_replicas": "2"} | ({"cairn_flush": flush[kind]} if kind in flush else {})
    return Load(partitions, megabytes, acks="all", idempotent=True, topic_config=config, again=True, replicas=REPLICAS)


def measure(store: Store, _servers: Servers) -> None:
    quick = store.run.quick
    megabytes = dict(zip(PARTITIONS, (200, 100) if quick else (1000, 500), strict=True))

    def warm_up(server: Server) -> None:
        """As the servers that are alone: the JVM compiles what runs often."""
        run_load(server, replace(load_of(server.name, 10, 200 if quick else 2000), again=False))
        run_load(server, replace(load_of(server.name, 1000, 50 if quick else 200), again=False))

    with Servers("replicas", warm_up, make=CLUSTERS) as servers:
        KINDS.measure(store, servers, lambda kind, partitions: load_of(kind, partitions, megabytes[partitions]))


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {
        "replicas": KINDS.picture(run, "MB/s with 3 replicas, acks=all, 1 KB records", "produce_mb_s"),
        "replicas-cpu": KINDS.picture(run, "CPU seconds of all brokers per GB, 3 replicas", "produce_cpu_s_gb"),
    }


REPLICAS_ROW = Row("replicas", measure, body, pictures, GOALS)
