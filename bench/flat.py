"""Row `flat`: batches of one size, sent raw, round robin over 10 to 100,000 partitions. Is the curve flat?"""

from __future__ import annotations

import itertools
import time
import uuid
from collections import deque
from collections.abc import Sequence
from functools import partial

from bench.goals import over_point
from bench.librdkafka import LoadFailed, create_topics, delete_topic
from bench.results import CAIRN, Points, Run, Store
from bench.row import Row, beside, rounds
from bench.servers import Server, Servers, rest
from bench.table import Column, comparison
from cairnmq.cli.bench_pipe import Pipe
from cairnmq.client.blocking import Client
from cairnmq.codec.records import Record, build_batch
from cairnmq.wire.messages import ProduceRequest, ProduceResponse

PARTITIONS = (10, 1000, 10_000, 100_000)
TOPIC_PARTITIONS = 1000
TOPICS_AT_ONCE = 10
BATCH_RECORDS, VALUE_BYTES = 16, 1010  # 16 KiB with header and record lengths
REQUEST_BATCHES = 10  # a request has the same shape however many partitions there are
IN_FLIGHT = 16
REST_SECONDS = 600.0
# What a partition costs once is shown apart from the load: here the curve over partitions is asked for.
SETUP_BATCHES = 2
COLUMNS = (
    Column("mb_s", "MB/s"),
    Column("cpu_s_gb", "broker CPU s/GB"),
    Column("pss_mb", "PSS MB under load"),
    Column("quiet_s", "s until quiet", compared=False),
    Column("setup_s", "set-up before: s", compared=False),
    Column("setup_cpu_ms", "set-up: CPU ms per partition", compared=False),
)

Place = tuple[str, bytes, int]
"""Topic, its id, partition."""


def batch() -> bytes:
    """The same bytes for everyone: offsets are the broker's business and not under the CRC."""
    now = int(time.time() * 1000)
    return build_batch([Record(number, now, None, bytes(VALUE_BYTES)) for number in range(BATCH_RECORDS)])


def make_places(server: Server, partitions: int) -> list[Place]:
    """Topics of at most 1,000 partitions each."""
    mark = uuid.uuid4().hex[:6]
    size = min(partitions, TOPIC_PARTITIONS)
    names = [f"flat-{mark}-{number}" for number in range(partitions // size)]
    for at in range(0, len(names), TOPICS_AT_ONCE):
        create_topics(server.bootstrap, names[at : at + TOPICS_AT_ONCE], size)
    time.sleep(1)
    with Client.connect(server.bootstrap) as client:
        ids = {name: client.topic(name).topic_id for name in names}
    return [(name, ids[name], number) for name in names for number in range(size)]


def request(places: Sequence[Place], records: bytes) -> ProduceRequest:
    topics = []
    for (name, topic_id), rows in itertools.groupby(places, key=lambda place: place[:2]):
        data = [ProduceRequest.PartitionProduceData(index=index, records=records) for _, _, index in rows]
        topics.append(ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=data))
    return ProduceRequest(acks=1, timeout_ms=60_000, topic_data=topics)


class RawProducer:
    """Keeps a fixed number of requests under way; checks that each partition's offsets go on without a gap."""

    def __init__(self, port: int, places: Sequence[Place]) -> None:
        self.pipe = Pipe(port)
        self.groups = [places[at : at + REQUEST_BATCHES] for at in range(0, len(places), REQUEST_BATCHES)]
        self.next = [0] * len(self.groups)
        self.under_way: deque[int] = deque()

    def send(self, batches: int) -> None:
        records = batch()
        requests = [request(group, records) for group in self.groups]
        turn = itertools.cycle(range(len(requests)))
        for _ in range(batches // REQUEST_BATCHES):
            number = next(turn)
            if len(self.under_way) == IN_FLIGHT:
                self._take()
            self.pipe.send(requests[number])
            self.under_way.append(number)
        while self.under_way:
            self._take()

    def _take(self) -> None:
        answer = self.pipe.receive()
        number = self.under_way.popleft()
        assert isinstance(answer, ProduceResponse)
        rows = [row for topic in answer.responses for row in topic.partition_responses]
        bad = [row for row in rows if row.error_code or row.base_offset != self.next[number]]
        if bad or len(rows) != len(self.groups[number]):
            raise LoadFailed(f"offset {self.next[number]} expected: {bad[:3]}")
        self.next[number] += BATCH_RECORDS


def run_flat(servers: Servers, partitions: int, megabytes: int) -> Points:
    return load_flat(servers.get(CAIRN), partitions, megabytes)


def load_flat(server: Server, partitions: int, megabytes: int) -> Points:
    places = make_places(server, partitions)
    tree = server.tree()
    rest(server, REST_SECONDS)
    sender = RawProducer(server.port, places)
    cpu, start = tree.cpu(), time.perf_counter()
    sender.send(SETUP_BATCHES * partitions)
    setup_seconds = time.perf_counter() - start
    setup_cpu = rest(server, REST_SECONDS).cpu - cpu
    batches = megabytes * 1_000_000 // len(batch())
    cpu, start = tree.cpu(), time.monotonic()
    sender.send(batches)
    end = time.monotonic()
    pss = tree.pss_mb()
    calm = rest(server, REST_SECONDS)
    sender.pipe.close()
    for name in dict.fromkeys(place[0] for place in places):
        delete_topic(server.bootstrap, name)
    gigabytes = batches * len(batch()) / 1e9
    values = {"mb_s": gigabytes * 1000 / (end - start), "cpu_s_gb": (calm.cpu - cpu) / gigabytes}
    values |= {"pss_mb": pss, "quiet_s": calm.since - end}
    values |= {"setup_s": setup_seconds, "setup_cpu_ms": setup_cpu * 1000 / partitions}
    return {f"{partitions:,}": values}


def measure(store: Store, _servers: Servers) -> None:
    quick = store.run.quick
    megabytes = 200 if quick else 2000

    def warm_up(server: Server) -> None:
        load_flat(server, 10, megabytes)

    with Servers("flat", warm_up) as servers:
        for number in rounds(store):
            for partitions in PARTITIONS[:3] if quick else PARTITIONS:
                act = partial(run_flat, servers, partitions, megabytes)
                store.take(CAIRN, f"{partitions:,}", number, act, partial(servers.get, CAIRN))


def body(run: Run) -> str:
    return comparison(run, "partitions", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    points = run.points()
    return {
        "flat-throughput": beside(run, "MB/s over partitions, raw load in batches of 16 KiB", points, "mb_s"),
        "flat-cpu": beside(run, "Broker CPU seconds per GB, raw load in batches of 16 KiB", points, "cpu_s_gb"),
    }


GOALS = (
    over_point("MB/s with fixed batches, 10,000 over 10 partitions", "10,000", "10", "mb_s", 0.8, 0.95, higher=True),
)
FLAT = Row("flat", measure, body, pictures, GOALS)
