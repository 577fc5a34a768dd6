"""Row `small`: records of 100 bytes, counted in messages a second."""

from __future__ import annotations

from functools import partial

from bench.goals import over_kafka
from bench.load import Load
from bench.results import Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Servers, turns
from bench.sweep import PARTITIONS, run_sweep
from bench.table import Column, comparison

SIZE = 100
COLUMNS = (
    Column("produce_msg_s", "msg/s"),
    Column("produce_cpu_s_gb", "broker CPU s/GB"),
    Column("batch_records", "records in a batch", compared=False),
    Column("pss_mb", "PSS MB under load"),
)
GOALS = (
    over_kafka("100 B records, msg/s, 10 partitions", "10", "produce_msg_s", 1.0, 1.3, higher=True),
    over_kafka("100 B records, msg/s, 1,000 partitions", "1,000", "produce_msg_s", 1.5, 2.5, higher=True),
)


def measure(store: Store, servers: Servers) -> None:
    megabytes = 20 if store.run.quick else 250
    for number in rounds(store):
        for partitions in PARTITIONS:
            for name in turns(BOTH, number):
                act = partial(run_sweep, servers, name, Load(partitions, megabytes, SIZE))
                store.take(name, f"{partitions:,}", number, act, partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"small": beside(run, "Messages of 100 B a second, acks=1", run.points(), "produce_msg_s")}


SMALL = Row("small", measure, body, pictures, GOALS)
