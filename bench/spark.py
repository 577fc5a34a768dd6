"""Row `spark`: Spark 4.2 with format("cairnmq") beside its own Kafka connector, both on our broker: rows for each CPU
second of all of Spark's processes, and how late a streaming query is."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable
from functools import partial

from bench.child import Child
from bench.goals import Goal, divided, of, over_kafka
from bench.librdkafka import LoadFailed, create_topics, delete_topic
from bench.load import Load, produce_load, stored_records
from bench.pace import OpenLoop, Phase, Sample, between, percentiles
from bench.results import CAIRN, HOME, KAFKA, Points, Run, Store, Values
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Server, Servers, turns
from bench.table import Column, comparison
from bench.usage import Tree
from spark.session_process import SPARK_4_2, start_session

FORMATS = {CAIRN: "cairnmq", KAFKA: "kafka"}
SIZES = (100, 1000)
PARTITIONS = 4
TASKS = 2
RATE = 200
# Java with the compilers that it has by default; the tests' session does without the slower one.
SETTINGS = (f"spark.driver.extraJavaOptions=-Dderby.system.home={HOME / 'work'}", "spark.driver.memory=2g")
ONCE, AT_LEAST = "exactly once", "at least once"
COLUMNS = (
    Column("rows_cpu_s", "rows per CPU s"),
    Column("mb_cpu_s", "MB of values per CPU s"),
    Column("rows_s", "rows/s"),
    Column("e2e_p50_ms", "p50 ms from topic to topic"),
    Column("e2e_p99_ms", "p99 ms"),
)


def read_point(size: int) -> str:
    return f"read, {size:,} B"


def write_point(size: int, delivery: str) -> str:
    return f"write {delivery}, {size:,} B"


def stream_point(delivery: str) -> str:
    return f"stream {delivery}"


def sink_goals(size: int) -> tuple[Goal, Goal]:
    """Spark's own connector knows no exactly once: ours is held against what it has."""
    once, weaker = write_point(size, ONCE), write_point(size, AT_LEAST)
    ours, theirs = of(CAIRN, once, "rows_cpu_s"), of(KAFKA, weaker, "rows_cpu_s")
    return (
        over_kafka(f"Spark, {weaker}: rows per CPU s", weaker, "rows_cpu_s", 1.0, 1.0, higher=True),
        Goal(f"Spark, {once}: rows per CPU s", divided(ours, theirs), 0.5, 1.0, ours, theirs, higher=True),
    )


GOALS = (
    *(
        over_kafka(f"Spark, {read_point(size)}: rows per CPU s", read_point(size), "rows_cpu_s", 2.0, 4.0, higher=True)
        for size in SIZES
    ),
    *(goal for size in SIZES for goal in sink_goals(size)),
    over_kafka(f"Spark, {stream_point(AT_LEAST)}: p50", stream_point(AT_LEAST), "e2e_p50_ms", 1.5, 1.0),
)


class Connector:
    """A Spark that works with one of the two formats, and topics of our broker that it reads."""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self.server = server
        self.place = HOME / "work" / f"spark-{FORMATS[name]}"
        self.session = start_session(self.place, f"local[{TASKS}]", SPARK_4_2, SETTINGS)
        self.tree = Tree(self.session.process.pid)

    def at(self, **options: str) -> tuple[str, dict[str, str]]:
        return FORMATS[self.name], {"kafka.bootstrap.servers": self.server.bootstrap, **options}

    def sink(self, topic: str, delivery: str) -> tuple[str, dict[str, str]]:
        return self.at(topic=topic, **({"delivery": delivery.replace(" ", "_")} if self.name == CAIRN else {}))

    def read(self, topic: str, passes: int) -> None:
        for _ in range(passes):
            self.session.ask("copy", source=self.at(subscribe=topic), sql="SELECT * FROM source", sink=("noop", {}))

    def write(self, source: str, size: int, rows: int, delivery: str) -> None:
        """Rows that Spark makes itself, so that nothing but the sink is paid for."""
        topic = new_topic(self.server)
        text = f"SELECT CAST(id AS string) AS key, rpad(CAST(id AS string), {size}, 'x') AS value"
        sql = f"{text} FROM range(0, {rows}, 1, {TASKS})"
        self.session.ask("copy", source=self.at(subscribe=source), sql=sql, sink=self.sink(topic, delivery))
        found, markers = stored_records(self.server, topic, PARTITIONS), TASKS * PARTITIONS if delivery == ONCE else 0
        if not rows <= found <= rows + markers:
            raise LoadFailed(f"Spark wrote {rows} rows, {found} offsets were taken")
        delete_topic(self.server.bootstrap, topic)

    def stream(self, delivery: str, warm_seconds: float, seconds: float) -> Values:
        source, target = new_topic(self.server), new_topic(self.server)
        total = int((warm_seconds + seconds) * RATE)
        with Child("follow", self.server.bootstrap, target, PARTITIONS, total) as reader:
            self.session.ask(
                "start",
                source=self.at(subscribe=source, startingOffsets="earliest"),
                sql="SELECT key, value FROM source",
                sink=self.sink(target, delivery),
                checkpoint=str(self.place / target),
            )
            loop = OpenLoop(self.server.bootstrap, source, PARTITIONS)
            begin = loop.run(Phase(warm_seconds + seconds, RATE))
            read = [Sample(**each) for each in reader.result()]
        self.session.ask("stop")
        loop.close()
        if len(read) != total:
            raise LoadFailed(f"{total} records sent, {len(read)} came through Spark")
        for topic in (source, target):
            delete_topic(self.server.bootstrap, topic)
        return percentiles("e2e", between(read, begin + int(warm_seconds * 1e9)))

    def close(self) -> None:
        self.session.kill()
        shutil.rmtree(self.place, ignore_errors=True)


def new_topic(server: Server) -> str:
    topic = f"spark-{uuid.uuid4().hex[:8]}"
    create_topics(server.bootstrap, [topic], PARTITIONS)
    return topic


def measure(store: Store, servers: Servers) -> None:
    quick = store.run.quick
    megabytes, passes = (20, 1) if quick else (250, 3)
    warm_seconds, seconds = (3, 5) if quick else (15, 30)
    known: dict[str, Connector] = {}
    topics: dict[int, str] = {}

    def topic_of(size: int) -> str:
        if size not in topics:
            server = servers.get(CAIRN)
            topics[size] = new_topic(server)
            produce_load(server, topics[size], Load(PARTITIONS, megabytes, size))
        return topics[size]

    def before(name: str, size: int) -> None:
        """A JVM that has done each thing some times before."""
        if name not in known:
            known[name] = Connector(name, servers.get(CAIRN))
        source, rows = topic_of(size), Load(PARTITIONS, megabytes, size).records
        known[name].read(source, passes)
        for delivery in deliveries(name):
            known[name].write(source, size, rows, delivery)

    def run_size(name: str, size: int) -> Points:
        load, source, spark = Load(PARTITIONS, megabytes, size), topics[size], known[name]
        points = {read_point(size): cost(spark, size, passes * load.stored, lambda: spark.read(source, passes))}
        for delivery in deliveries(name):
            act = partial(spark.write, source, size, load.records, delivery)
            points[write_point(size, delivery)] = cost(spark, size, load.records, act)
        return points

    def run_stream(name: str) -> Points:
        return {stream_point(each): known[name].stream(each, warm_seconds, seconds) for each in deliveries(name)}

    try:
        for number in rounds(store):
            for name in turns(BOTH, number):
                for size in SIZES:
                    act = partial(run_size, name, size)
                    store.take(name, f"{size} B", number, act, partial(before, name, size))
                store.take(name, "stream", number, partial(run_stream, name), partial(before, name, SIZES[0]))
    finally:
        for connector in known.values():
            connector.close()
        for topic in topics.values():
            delete_topic(servers.get(CAIRN).bootstrap, topic)


def deliveries(name: str) -> tuple[str, ...]:
    return (AT_LEAST, ONCE) if name == CAIRN else (AT_LEAST,)


def cost(spark: Connector, size: int, rows: int, act: Callable[[], None]) -> Values:
    spark.tree.settle()
    cpu, start = spark.tree.cpu(), time.perf_counter()
    act()
    seconds, used = time.perf_counter() - start, spark.tree.cpu() - cpu
    return {"rows_cpu_s": rows / used, "mb_cpu_s": rows * size / 1e6 / used, "rows_s": rows / seconds}


def body(run: Run) -> str:
    note = (
        "Both are Spark 4.2.0 on our broker: CairnMQ is `format('cairnmq')`, Apache Kafka is Spark's own connector, "
        "`format('kafka')`, which knows no exactly once. CPU is that of Spark's processes, Java and Python; reading "
        f"goes to `noop`, what is written is made by Spark itself. A stream copies {RATE} records a second from one "
        "topic to another, as soon as it can."
    )
    return f"{note}\n\n{comparison(run, 'job', COLUMNS)}"


def pictures(run: Run) -> dict[str, str]:
    points = [point for point in run.points() if not point.startswith("stream")]
    return {"spark": beside(run, "Rows of Spark for each CPU second", points, "rows_cpu_s")}


SPARK = Row("spark", measure, body, pictures, GOALS)
