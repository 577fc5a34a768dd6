"""Row `offsets`: kill -9 with 100,000 committed offsets in 10,000 groups; then start again, until they can be read."""

from __future__ import annotations

import asyncio
import time

from bench.commits import commit_once, committed, find_coordinator
from bench.first_message import seconds_to_first_message
from bench.goals import alone
from bench.killed import measure_killed
from bench.librdkafka import LoadFailed, create_topics
from bench.results import Points, Run, Store
from bench.row import Row, beside
from bench.servers import Server, Servers
from bench.table import Column, comparison
from load.wire_member import connect

TOPIC = "offsets"
PARTITIONS = 10
GROUPS, QUICK_GROUPS = 10_000, 500
CONNECTIONS = 50
CHECKED = 20  # groups
POINT = "100,000 offsets in 10,000 groups"
COLUMNS = (
    Column("first_s", "s to first acknowledged message"),
    Column("offsets_s", "s until the offsets can be read"),
    Column("pss_mb", "PSS MB when quiet"),
)
GOALS = (alone("restart after kill -9 with 100,000 offsets in 10,000 groups", POINT, "offsets_s", 2.0, 2.0, " s"),)


async def commit_groups(bootstrap: str, groups: int, offset: int) -> None:
    await find_coordinator(bootstrap, TOPIC)

    async def some(first: int) -> None:
        wire = await connect(bootstrap)
        for number in range(first, groups, CONNECTIONS):
            await commit_once(wire, f"group-{number}", TOPIC, range(PARTITIONS), offset)
        wire.close()

    await asyncio.gather(*(some(first) for first in range(CONNECTIONS)))


async def check_groups(bootstrap: str, groups: int, offset: int) -> None:
    """The first answer may have to wait for the coordinator; then groups over the whole range are looked at."""
    wire = await connect(bootstrap)
    for number in range(0, groups, max(1, groups // CHECKED)):
        found = await committed(wire, f"group-{number}", TOPIC, PARTITIONS - 1)
        if found != offset:
            raise LoadFailed(f"group-{number} committed {offset}, and {found} is there after kill -9")
    wire.close()


class Killed:
    """A server with its offsets, killed again and again; each time everything is committed anew before."""

    def __init__(self, server: Server, groups: int) -> None:
        self.server = server
        self.groups = groups
        self.offset = 0
        server.prepare()
        server.launch()
        server.wait_ready()
        create_topics(server.bootstrap, [TOPIC], PARTITIONS)

    def make_ready(self) -> None:
        self.offset += 1
        asyncio.run(commit_groups(self.server.bootstrap, self.groups, self.offset))

    def run(self) -> Points:
        self.server.kill()
        start = time.perf_counter()
        first = seconds_to_first_message(self.server, TOPIC)
        asyncio.run(check_groups(self.server.bootstrap, self.groups, self.offset))
        offsets = time.perf_counter() - start
        self.server.wait_ready()
        tree = self.server.tree()
        tree.settle()
        return {POINT: {"first_s": first, "offsets_s": offsets, "pss_mb": tree.pss_mb()}}


def measure(store: Store, _servers: Servers) -> None:
    groups = QUICK_GROUPS if store.run.quick else GROUPS
    measure_killed(store, "offsets", lambda server: Killed(server, groups))


def body(run: Run) -> str:
    return comparison(run, "killed with", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"offsets": beside(run, "Seconds from restart until committed offsets are read", run.points(), "offsets_s")}


OFFSETS = Row("offsets", measure, body, pictures, GOALS)
