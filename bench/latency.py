"""Row `latency`: 5,000 messages a second, open loop; with the splitter running, paused, and catching up after it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial

from bench.child import Child
from bench.goals import Goal, alone, over_kafka
from bench.librdkafka import LoadFailed, create_topics, delete_topic
from bench.pace import PERCENTS, OpenLoop, Phase, Sample, between, percentiles
from bench.picture import bars
from bench.results import CAIRN, KAFKA, Points, Run, Store, Values
from bench.row import Row, rounds
from bench.servers import BOTH, Server, Servers, set_splitting, turns
from bench.table import Column, comparison

RATE = 5000
PARTITIONS = 10
WARM_SECONDS = 3
PAUSED_ROUNDS = 3  # a turn of these takes longer than all others together
ON, OFF, AFTER = "splitter on", "splitter off for a minute", "the 20 s after that minute"
COLUMNS = tuple(
    Column(f"{kind}_{name}_ms", f"{title} {name.replace('999', '99.9')} ms")
    for kind, title in (("produce", "produce"), ("e2e", "end to end"))
    for name, _ in PERCENTS
)


class Latencies:
    """A producer at a fixed rate and a reader in a process of its own: the clock is the same for all processes."""

    def __init__(self, server: Server, seconds: float) -> None:
        self.server = server
        self.topic = f"latency-{uuid.uuid4().hex[:8]}"
        create_topics(server.bootstrap, [self.topic], PARTITIONS)
        self.total = int((seconds + WARM_SECONDS) * RATE)
        self.reader = Child("follow", server.bootstrap, self.topic, PARTITIONS, self.total)
        self.loop = OpenLoop(server.bootstrap, self.topic, PARTITIONS)
        self.read: list[Sample] = []

    def send(self, seconds: float) -> int:
        return self.loop.run(Phase(seconds, RATE))

    def finish(self) -> None:
        self.read = [Sample(**each) for each in self.reader.result()]
        if len(self.loop.samples) != self.total or len(self.read) != self.total:
            raise LoadFailed(f"{self.total} sent, {len(self.loop.samples)} acknowledged, {len(self.read)} read")
        self.loop.close()
        delete_topic(self.server.bootstrap, self.topic)

    def values(self, begin: int, end: int | None = None) -> Values:
        found = percentiles("produce", between(self.loop.samples, begin, end))
        found |= percentiles("e2e", between(self.read, begin, end))
        return found | percentiles("late", self.loop.late)

    def __enter__(self) -> Latencies:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()


def run_on(servers: Servers, name: str, seconds: float) -> Points:
    return {ON: latency_of(servers.get(name), seconds)}


def latency_of(server: Server, seconds: float) -> Values:
    with Latencies(server, seconds) as taken:
        begin = taken.send(WARM_SECONDS + seconds)
        taken.finish()
        return taken.values(begin + int(WARM_SECONDS * 1e9))


def run_paused(servers: Servers, minute: float, after: float) -> Points:
    """Off for a minute, then the time in which the splitter catches up."""
    server = servers.get(CAIRN)
    set_splitting(server, False)
    try:
        with Latencies(server, minute + after) as taken:
            begin = taken.send(WARM_SECONDS + minute)
            set_splitting(server, True)
            again = taken.send(after)
            taken.finish()
            return {OFF: taken.values(begin + int(WARM_SECONDS * 1e9), again), AFTER: taken.values(again)}
    finally:
        set_splitting(server, True)


def measure(store: Store, servers: Servers) -> None:
    quick = store.run.quick
    seconds = 5 if quick else 15

    def warm_up(name: str) -> None:
        """5,000 small requests a second are more than a cold JVM can take: they queue for a second and longer."""
        if name not in warm:
            latency_of(servers.get(name), 5 if quick else 15)
            warm.add(name)

    warm: set[str] = set()
    for number in rounds(store, 5):
        for name in turns(BOTH, number):
            store.take(name, "on", number, partial(run_on, servers, name, seconds), partial(warm_up, name))
        if number <= PAUSED_ROUNDS:
            act = partial(run_paused, servers, 10 if quick else 60, 5 if quick else 20)
            store.take(CAIRN, "paused", number, act, partial(warm_up, CAIRN))


def spread(run: Run, keys: Sequence[str]) -> float | None:
    """How far apart splitter on, off and catching up are, in the figure that differs most."""
    widest = None
    for key in keys:
        values = [run.median(CAIRN, point, key) for point in (ON, OFF, AFTER)]
        known = [value for value in values if value]
        if len(known) == 3:
            widest = max(widest or 1.0, max(known) / min(known))
    return widest


def spread_goal(name: str) -> Goal:
    keys = (f"produce_{name}_ms", f"e2e_{name}_ms")
    title = f"latency {name}: splitter on, off, catching up: largest over smallest"
    return Goal(title, lambda run: spread(run, keys), 1.3, 1.3, beside_kafka=False)


GOALS = (
    over_kafka("latency at 5,000 msg/s: produce p50", ON, "produce_p50_ms", 1.0, 0.5),
    over_kafka("latency at 5,000 msg/s: produce p99", ON, "produce_p99_ms", 1.0, 0.5),
    over_kafka("latency at 5,000 msg/s: end to end p50", ON, "e2e_p50_ms", 1.0, 0.5),
    over_kafka("latency at 5,000 msg/s: end to end p99", ON, "e2e_p99_ms", 1.0, 0.5),
    alone("latency at 5,000 msg/s: end to end p99", ON, "e2e_p99_ms", 10.0, 10.0, " ms"),
    spread_goal("p50"),
    spread_goal("p99"),
)


def body(run: Run) -> str:
    late = [value for server in BOTH for point in run.points() for value in run.series(server, point, "late_p99_ms")]
    note = (
        f"The load program itself sent a record up to {max(late):.2g} ms late (its worst p99); that is in the figures."
    )
    return f"{comparison(run, 'msg/s', COLUMNS)}\n\n{note}"


def pictures(run: Run) -> dict[str, str]:
    heads = [column.heading.removesuffix(" ms") for column in COLUMNS]
    kinds = {CAIRN: (CAIRN, ON), KAFKA: (KAFKA, ON), "CairnMQ, splitter off": (CAIRN, OFF)}
    series = {label: [run.median(*kind, column.key) for column in COLUMNS] for label, kind in kinds.items()}
    return {"latency": bars("Latency in ms at 5,000 messages a second", heads, series)}


LATENCY = Row("latency", measure, body, pictures, GOALS)
