"""Row `groups`: records through a consumer group, from the first one sent to the last one read and committed; and
commits of offsets a second; beside Apache Kafka at equal durability."""

from __future__ import annotations

import time
import uuid
from functools import partial

from bench.child import Child
from bench.goals import over_kafka
from bench.librdkafka import LoadFailed, create_topics, delete_topic
from bench.load import Load, produce_load
from bench.results import Points, Run, Store, Values
from bench.row import Row, beside, rounds
from bench.servers import BOTH, DURABILITY, SYNCED, UNSYNCED, Server, Servers, rest, turns
from bench.table import Column, comparison

MEMBERS = 2
PARTITIONS = 12
COMMITTERS = 50
ACKS = {UNSYNCED: "1", SYNCED: "all"}
COLUMNS = (
    Column("mb_s", "MB/s through a group"),
    Column("cpu_s_gb", "broker CPU s/GB"),
    Column("commits_s", "offset commits/s"),
    Column("commit_cpu_us", "broker CPU us per commit"),
)
GOALS = tuple(
    over_kafka(f"{title}, {durability}", durability, key, 1.0, 2.0, higher=True)
    for durability in (UNSYNCED, SYNCED)
    for title, key in (("group end to end, MB/s", "mb_s"), ("offset commits/s", "commits_s"))
)


def run_group(server: Server, megabytes: int, acks: str) -> Values:
    """A producer and the members of a group, at the same time; members commit what they have read."""
    topic, group = f"group-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    create_topics(server.bootstrap, [topic], PARTITIONS)
    load = Load(PARTITIONS, megabytes, acks=acks)
    members = [Child("member", server.bootstrap, topic, group) for _ in range(MEMBERS)]
    try:
        tree = server.tree()
        cpu, start = tree.cpu(), time.monotonic()
        produce_load(server, topic, load, settles=False)
        results = [member.result() for member in members]
    finally:
        for member in members:
            member.close()
    count, end = sum(count for count, _ in results), max(last for _, last in results)
    if count != load.stored:
        raise LoadFailed(f"{load.stored} records sent, {count} read by the group")
    used = rest(server).cpu - cpu
    delete_topic(server.bootstrap, topic)
    gigabytes = load.stored * load.size / 1e9
    return {"mb_s": gigabytes * 1000 / (end - start), "cpu_s_gb": used / gigabytes}


def run_commits(server: Server, seconds: float) -> Values:
    """Groups without members, a connection each, one commit of one partition after another."""
    topic = f"commits-{uuid.uuid4().hex[:8]}"
    create_topics(server.bootstrap, [topic], COMMITTERS)
    tree = server.tree()
    with Child("commit", server.bootstrap, topic, COMMITTERS, seconds) as load:
        cpu = tree.cpu()
        count = load.result()
    spent = rest(server).cpu - cpu
    delete_topic(server.bootstrap, topic)
    return {"commits_s": count / seconds, "commit_cpu_us": spent * 1e6 / count}


def run_all(servers: Servers, name: str, durability: str, megabytes: int, seconds: float) -> Points:
    server = servers.get(name)
    through = run_group(server, megabytes, ACKS[durability])
    return {durability: through | run_commits(server, seconds)}


def measure(store: Store, _servers: Servers) -> None:
    megabytes, seconds = (20, 1.0) if store.run.quick else (500, 6.0)

    def warm_up(server: Server) -> None:
        run_group(server, megabytes, "1")
        run_commits(server, seconds)

    for durability, settings in DURABILITY.items():
        with Servers(f"groups-{durability.replace(' ', '-')}", warm_up, settings) as servers:
            for number in rounds(store):
                for name in turns(BOTH, number):
                    act = partial(run_all, servers, name, durability, megabytes, seconds)
                    store.take(name, durability, number, act, partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "durability", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {
        "groups": beside(run, "MB/s through a consumer group", run.points(), "mb_s"),
        "commits": beside(run, "Offset commits a second", run.points(), "commits_s"),
    }


GROUPS = Row("groups", measure, body, pictures, GOALS)
