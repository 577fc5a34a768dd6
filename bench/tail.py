"""Row `tail`: what reading costs the broker when readers are at the end, right behind the producer.

The same paced load twice, without and with a reader; the difference is the reader's.
"""

from __future__ import annotations

import uuid
from functools import partial

from bench.child import Child
from bench.goals import over_kafka
from bench.librdkafka import LoadFailed, create_topics, delete_topic
from bench.pace import SIZE, OpenLoop, Phase
from bench.results import Points, Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Server, Servers, rest, turns
from bench.table import Column, comparison

RATE = 20_000  # producer and reader alone fill two cores at 50,000: then it is they who are measured
LINGER_MS = {10: 5, 1000: 200}  # with 5 ms at 1,000 partitions every record would be a batch of its own
COLUMNS = (
    Column("cpu_s_gb", "broker CPU s/GB consumed"),
    Column("produce_cpu_s_gb", "producing alone: CPU s/GB"),
    Column("both_cpu_s_gb", "producing and reading: CPU s/GB"),
    Column("e2e_p50_ms", "end to end p50 ms"),
)
GOALS = (
    over_kafka("CPU s/GB consumed from the tail, 10 partitions", "10", "cpu_s_gb", 1.0, 0.5),
    over_kafka("CPU s/GB consumed from the tail, 1,000 partitions", "1,000", "cpu_s_gb", 1.0, 0.5),
)


def run_tail(servers: Servers, name: str, partitions: int, seconds: float) -> Points:
    server = servers.get(name)
    without, _ = paced(server, partitions, seconds, read=False)
    with_reader, p50 = paced(server, partitions, seconds, read=True)
    values = {"cpu_s_gb": with_reader - without, "produce_cpu_s_gb": without, "both_cpu_s_gb": with_reader}
    return {f"{partitions:,}": values | {"e2e_p50_ms": p50}}


def paced(server: Server, partitions: int, seconds: float, *, read: bool) -> tuple[float, float]:
    """CPU seconds of the broker per GB produced; with a reader, the median time until a record was read."""
    topic = f"tail-{uuid.uuid4().hex[:8]}"
    create_topics(server.bootstrap, [topic], partitions)
    loop = OpenLoop(server.bootstrap, topic, partitions, linger_ms=LINGER_MS[partitions], timed=False)
    for _ in range(2):  # the first batches of a partition are another row's business
        loop.run(Phase(partitions * 8 / RATE, RATE))
    rest(server)
    tree = server.tree()
    total = int(seconds * RATE)
    before = 2 * int(partitions * 8 / RATE * RATE)
    cpu, p50 = tree.cpu(), 0.0
    if read:
        with Child("follow", server.bootstrap, topic, partitions, total, before) as reader:
            cpu = tree.cpu()  # what was there before is history
            begin = loop.run(Phase(seconds, RATE))
            took = sorted(each["took"] for each in reader.result() if each["due"] >= begin)
        if len(took) != total:
            raise LoadFailed(f"{total} records sent, {len(took)} of them read")
        p50 = took[len(took) // 2] / 1e6
    else:
        loop.run(Phase(seconds, RATE))
    used = rest(server).cpu - cpu
    loop.close()
    delete_topic(server.bootstrap, topic)
    return used / (total * SIZE / 1e9), p50


def measure(store: Store, servers: Servers) -> None:
    seconds = 2 if store.run.quick else 10
    for number in rounds(store):
        for partitions in LINGER_MS:
            for name in turns(BOTH, number):
                act = partial(run_tail, servers, name, partitions, seconds)
                store.take(name, f"{partitions:,}", number, act, partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"tail": beside(run, "Broker CPU seconds per GB read at the tail", run.points(), "cpu_s_gb")}


TAIL = Row("tail", measure, body, pictures, GOALS)
