"""Row `durable`: acks=all and idempotent; ours is synced before the answer, Kafka's with `flush.messages=1`."""

from __future__ import annotations

from bench.goals import over_kafka
from bench.kinds import Kinds
from bench.load import Load
from bench.results import KAFKA, Run, Store
from bench.row import Row
from bench.servers import Servers
from bench.table import Column, comparison

KINDS = Kinds("Apache Kafka, no flush", of_third=KAFKA)
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


def measure(store: Store, servers: Servers) -> None:
    megabytes = 50 if store.run.quick else 1000

    def load_of(kind: str, partitions: int) -> Load:
        config = {"flush_messages": "1"} if kind == KAFKA else {}
        return Load(partitions, megabytes, acks="all", idempotent=True, topic_config=config)

    KINDS.measure(store, servers, load_of)


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"durable": KINDS.picture(run, "MB/s with acks=all, idempotent, 1 KB records", "produce_mb_s")}


DURABLE = Row("durable", measure, body, pictures, GOALS)
