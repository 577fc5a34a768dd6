"""Row `neighbour`: a small queue beside a hot one, and beside a reader of history that is no longer in memory."""

from __future__ import annotations

import os
import time
import uuid
from functools import partial

from bench.child import Child
from bench.goals import Amount, Goal, divided, of
from bench.librdkafka import create_topics, delete_topic
from bench.load import Load, produce_load
from bench.pace import OpenLoop, Phase, between, percentiles
from bench.picture import bars
from bench.results import CAIRN, KAFKA, Points, Run, Store, Values
from bench.row import Row, rounds
from bench.servers import BOTH, Server, Servers, evict, rest, turns
from bench.table import Column, comparison

RATE = 100
SHARE = 0.7
PARTITIONS = 10
WARM_SECONDS = 2
LIMIT_SECONDS = 4
ALONE, HOT, HISTORY = "alone", "beside a hot queue at 70 % of its limit", "during a read of evicted history"
COLUMNS = (
    Column("produce_p50_ms", "p50 ms"),
    Column("produce_p99_ms", "p99 ms"),
    Column("produce_p999_ms", "p99.9 ms"),
    Column("neighbour_mb_s", "the neighbour's MB/s"),
)


class Street:
    """One server with its 5 GB of history, made once; the topic of the small queue is new in each turn."""

    def __init__(self, server: Server, megabytes: int) -> None:
        self.server = server
        self.history = f"history-{uuid.uuid4().hex[:8]}"
        self.load = Load(PARTITIONS, megabytes)
        create_topics(server.bootstrap, [self.history], PARTITIONS)
        produce_load(server, self.history, self.load)

    def run(self, seconds: float) -> Points:
        bootstrap = self.server.bootstrap
        small, hot = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("small", "hot"))
        create_topics(bootstrap, [small], 1)
        create_topics(bootstrap, [hot], PARTITIONS)
        # What the turn before left: pages to be written, blocks of deleted files to be given back.
        rest(self.server)
        os.sync()
        points = {ALONE: self.small(self.warm(small), seconds)}
        with Child("flood", bootstrap, hot, PARTITIONS, LIMIT_SECONDS) as flood:
            limit = flood.result()
        self.server.tree().settle()
        loop = self.warm(small)
        with Child("pace", bootstrap, hot, PARTITIONS, limit * SHARE, seconds + 2) as pace:
            loop.run(Phase(1.0, RATE))  # meanwhile the neighbour connects, and catches up
            points[HOT] = self.small(loop, seconds)
            points[HOT]["neighbour_mb_s"] = pace.result() / 1000
        self.server.tree().settle()
        evict(self.server)
        loop = self.warm(small)
        with Child("read", bootstrap, self.history, PARTITIONS, self.load.stored) as read:
            points[HISTORY] = self.small(loop, seconds, read)
            points[HISTORY]["neighbour_mb_s"] = self.load.stored / 1000 / read.result()
        for topic in (small, hot):
            delete_topic(bootstrap, topic)
        return points

    def warm(self, topic: str) -> OpenLoop:
        """Before its neighbour comes: a history may be read in less time than this takes."""
        loop = OpenLoop(self.server.bootstrap, topic, 1)
        loop.run(Phase(WARM_SECONDS, RATE))
        return loop

    def small(self, loop: OpenLoop, seconds: float, until: Child | None = None) -> Values:
        """Its latencies over a time, or over the life of a neighbour, whichever ends first; a second at least."""
        begin, left = time.monotonic_ns(), seconds
        while left > 0:
            loop.run(Phase(min(1.0, left), RATE))
            left = left - 1.0 if until is None or until.running else 0.0
        loop.close()
        return percentiles("produce", between(loop.samples, begin))


def measure(store: Store, servers: Servers) -> None:
    quick = store.run.quick
    streets: dict[str, Street] = {}

    def settle(name: str) -> None:
        if name not in streets:
            streets[name] = Street(servers.get(name), 300 if quick else 5000)

    def run(name: str) -> Points:
        return streets[name].run(4 if quick else 12)

    for number in rounds(store):
        for name in turns(BOTH, number):
            store.take(name, "all", number, partial(run, name), partial(settle, name))
    for street in streets.values():
        delete_topic(street.server.bootstrap, street.history)


def slowdown(server: str, point: str) -> Amount:
    return divided(of(server, point, "produce_p99_ms"), of(server, ALONE, "produce_p99_ms"))


def goal(title: str, point: str) -> Goal:
    theirs = slowdown(KAFKA, point)

    def half(run: Run) -> float | None:
        ratio = theirs(run)
        return None if ratio is None else ratio / 2

    return Goal(f"p99 of a small queue {title}, over alone", slowdown(CAIRN, point), half, 1.3, None, theirs)


GOALS = (goal("beside a hot one", HOT), goal("during a read of 5 GB evicted history", HISTORY))


def body(run: Run) -> str:
    return comparison(run, "the small queue, 100 msg/s", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    points = (ALONE, HOT, HISTORY)
    series = {server: [run.median(server, point, "produce_p99_ms") for point in points] for server in BOTH}
    names = ("alone", "beside a hot queue", "beside a read of history")
    return {"neighbour": bars("p99 in ms of a queue with 100 messages a second", names, series)}


NEIGHBOUR = Row("neighbour", measure, body, pictures, GOALS)
