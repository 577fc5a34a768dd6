"""Row `sustained`: 10 GB at a stretch, longer than any buffer: the splitter has to keep up, its backlog is watched."""

from __future__ import annotations

from functools import partial

from bench.goals import alone, over_kafka
from bench.load import Load
from bench.results import Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Servers, turns
from bench.sweep import PARTITIONS, run_sweep
from bench.table import Column, comparison

BACKLOG_MB_MAX = 1074.0  # cairn.unsplit.bytes.max, 1 GiB
COLUMNS = (
    Column("produce_mb_s", "produce MB/s"),
    Column("produce_cpu_s_gb", "broker CPU s/GB"),
    Column("batch_records", "records in a batch", compared=False),
    Column("pss_mb", "PSS MB under load"),
    Column("backlog_mb", "largest backlog MB", compared=False),
    Column("quiet_s", "s until quiet", compared=False),
)
GOALS = (
    over_kafka("10 GB sustained, MB/s, 10 partitions", "10", "produce_mb_s", 0.7, 1.0, higher=True),
    over_kafka("10 GB sustained, MB/s, 1,000 partitions", "1,000", "produce_mb_s", 2.0, 4.0, higher=True),
    alone("backlog during 10 GB, 10 partitions", "10", "backlog_mb", BACKLOG_MB_MAX, BACKLOG_MB_MAX / 2, " MB"),
    alone("backlog during 10 GB, 1,000 partitions", "1,000", "backlog_mb", BACKLOG_MB_MAX, BACKLOG_MB_MAX / 2, " MB"),
)


def measure(store: Store, servers: Servers) -> None:
    megabytes = 200 if store.run.quick else 10_000
    for number in rounds(store):
        for partitions in PARTITIONS:
            for name in turns(BOTH, number):
                act = partial(run_sweep, servers, name, Load(partitions, megabytes, watched=True))
                store.take(name, f"{partitions:,}", number, act, partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"sustained": beside(run, "MB/s over 10 GB, 1 KB records, acks=1", run.points(), "produce_mb_s")}


SUSTAINED = Row("sustained", measure, body, pictures, GOALS)
