"""Row `burst`: ten times as many messages for ten seconds. Is anything refused, and how long until all is normal?"""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Sequence
from functools import partial

from bench.goals import alone
from bench.librdkafka import create_topics, delete_topic
from bench.pace import OpenLoop, Phase, Sample, between, percentiles
from bench.results import Points, Run, Store, Values
from bench.row import Row, rounds
from bench.servers import BOTH, Server, Servers, turns
from bench.table import Column, comparison

RATE = 5000
TIMES = 10
PARTITIONS = 10
WARM_SECONDS = 3
WINDOW_NS = 250_000_000
SECOND_WINDOWS = 4
POINT = "5,000, then 50,000, then 5,000 msg/s"
COLUMNS = (
    Column("before_p50_ms", "before: p50 ms"),
    Column("before_p99_ms", "before: p99 ms"),
    Column("burst_p50_ms", "burst: p50 ms"),
    Column("burst_p99_ms", "burst: p99 ms"),
    Column("normal_s", "s until normal"),
    Column("after_p99_ms", "after: p99 ms"),
)
GOALS = (alone("tenfold burst for 10 s, no error: latency normal after", POINT, "normal_s", 5.0, 1.0, " s"),)


def window_p99s(samples: Sequence[Sample], begin: int, end: int) -> list[float]:
    """p99 of each quarter of a second."""
    windows: list[list[int]] = [[] for _ in range((end - begin) // WINDOW_NS)]
    for sample in samples:
        place = (sample.due - begin) // WINDOW_NS
        if begin <= sample.due and place < len(windows):
            windows[place].append(sample.took)
    return [sorted(window)[int(len(window) * 0.99)] for window in windows if window]


def seconds_until_normal(before: Sequence[float], after: Sequence[float]) -> float:
    """When a second begins whose windows are, in the middle, at most twice as slow as those before the burst."""
    limit = 2 * statistics.median(before)
    for place in range(len(after) - SECOND_WINDOWS + 1):
        if statistics.median(after[place : place + SECOND_WINDOWS]) <= limit:
            return place * WINDOW_NS / 1e9
    return len(after) * WINDOW_NS / 1e9


def run_burst(servers: Servers, name: str, seconds: float) -> Points:
    return {POINT: burst(servers.get(name), seconds)}


def burst(server: Server, seconds: float) -> Values:
    topic = f"burst-{uuid.uuid4().hex[:8]}"
    create_topics(server.bootstrap, [topic], PARTITIONS)
    loop = OpenLoop(server.bootstrap, topic, PARTITIONS)
    phases = (Phase(WARM_SECONDS + seconds, RATE), Phase(seconds, RATE * TIMES), Phase(seconds, RATE))
    begin = loop.run(*phases)  # raises if a single record was refused
    ends = [begin]
    for phase in phases:
        ends.append(ends[-1] + int(phase.seconds * 1e9))
    before = begin + int(WARM_SECONDS * 1e9)
    normal = seconds_until_normal(
        window_p99s(loop.samples, before, ends[1]), window_p99s(loop.samples, ends[2], ends[3])
    )
    loop.close()
    delete_topic(server.bootstrap, topic)
    return {
        **percentiles("before", between(loop.samples, before, ends[1])),
        **percentiles("burst", between(loop.samples, ends[1], ends[2])),
        **percentiles("after", between(loop.samples, ends[2])),
        "normal_s": normal,
    }


def measure(store: Store, servers: Servers) -> None:
    seconds = 3 if store.run.quick else 10
    for number in rounds(store):
        for name in turns(BOTH, number):
            store.take(name, "burst", number, partial(run_burst, servers, name, seconds), partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "load", COLUMNS)


def pictures(_run: Run) -> dict[str, str]:
    return {}


BURST = Row("burst", measure, body, pictures, GOALS)
