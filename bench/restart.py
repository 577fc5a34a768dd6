"""Row `restart`: kill -9 with gigabytes stored, a thousand queues and much that is not split yet; then start again."""

from __future__ import annotations

from bench.first_message import seconds_to_first_message
from bench.goals import alone
from bench.killed import measure_killed
from bench.librdkafka import LoadFailed, create_topics
from bench.load import Load, produce_load, stored_records
from bench.results import Points, Run, Store
from bench.row import Row, beside
from bench.servers import Server, Servers
from bench.table import Column, comparison

TOPIC = "restart"
PARTITIONS = 1000
UNSPLIT_MB = 512
POINT = "5 GB, 1,000 queues, 512 MB unsplit"
COLUMNS = (
    Column("first_s", "s to first acknowledged message"),
    Column("quiet_s", "s until quiet", compared=False),
    Column("unsplit_mb", "unsplit MB when killed", compared=False),
    Column("pss_mb", "PSS MB when quiet"),
)
GOALS = (alone("restart after kill -9 with 5 GB, 1,000 queues, 512 MB unsplit", POINT, "first_s", 3.0, 1.0, " s"),)


class Killed:
    """A server with its records, which is killed again and again; what was acknowledged must be there each time."""

    def __init__(self, server: Server, megabytes: int, unsplit_mb: int) -> None:
        self.server = server
        self.unsplit = Load(PARTITIONS, unsplit_mb)
        self.records = 0
        self.unsplit_mb = 0.0
        server.prepare()
        server.launch()
        server.wait_ready()
        create_topics(server.bootstrap, [TOPIC], PARTITIONS)
        self.add(Load(PARTITIONS, megabytes - unsplit_mb))

    def add(self, load: Load, *, settles: bool = True) -> None:
        produce_load(self.server, TOPIC, load, settles=settles)
        self.records += load.stored

    def make_ready(self) -> None:
        self.server.hold_back()
        self.add(self.unsplit, settles=False)  # there is no rest while work is held back
        self.unsplit_mb = (self.server.backlog_bytes() or 0.0) / 1e6

    def run(self) -> Points:
        self.server.kill()
        seconds = seconds_to_first_message(self.server, TOPIC)
        self.server.wait_ready()
        self.records += 1
        found = stored_records(self.server, TOPIC, PARTITIONS)
        if found != self.records:
            raise LoadFailed(f"{self.records} records acknowledged, {found} there after kill -9")
        tree = self.server.tree()
        quiet = tree.quiet_after(600)
        values = {"first_s": seconds, "quiet_s": quiet, "pss_mb": tree.pss_mb()}
        return {POINT: values | ({"unsplit_mb": self.unsplit_mb} if self.unsplit_mb else {})}


def measure(store: Store, _servers: Servers) -> None:
    quick = store.run.quick
    measure_killed(store, "restart", lambda server: Killed(server, 200 if quick else 5000, 50 if quick else UNSPLIT_MB))


def body(run: Run) -> str:
    return comparison(run, "killed with", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"restart": beside(run, "Seconds from restart to first acknowledged message", run.points(), "first_s")}


RESTART = Row("restart", measure, body, pictures, GOALS)
