"""`cairn bench`: throughput and latency of any broker with Kafka's protocol; knows kafka-producer-perf-test's flags."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import (
    add_connection,
    add_json,
    add_later,
    completes,
    connect,
    count,
    examples,
    partition_count,
    setting,
    utf8,
)
from cairnmq.cli.bench_figures import Figures, closing_line, figures, summary
from cairnmq.cli.produce import ACKS
from cairnmq.cli.terminal import Progress, UsageError, note, warn, write_json, write_line, write_table
from cairnmq.codec.compression import CODEC_NAMES

if TYPE_CHECKING:
    from cairnmq.cli.bench_load import Settings
    from cairnmq.client.blocking import Client
    from cairnmq.client.session import Topic

RECORDS, RECORD_BYTES = 100_000, 1000
PARTITIONS = 10
RATE = 1000.0
SWEEP_PARTITIONS = (1, 10, 100, 1000)
# Properties of Kafka's producer that this load understands; a few more change nothing here and are said to.
WITHOUT_EFFECT = ("linger.ms", "buffer.memory", "client.id", "retries", "delivery.timeout.ms", "request.timeout.ms")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measures a broker with load of its own. Without ACTION the flags are those of produce."
    examples(
        parser,
        "cairn bench",
        "cairn bench produce --num-records 1000000 --record-size 100 --throughput -1",
        "cairn bench e2e --throughput 500",
        remarks="Batches of equal length contain the same bytes, so that the client itself takes little CPU.",
    )
    add_produce(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")

    produce = actions.add_parser(
        "produce",
        help="send records; ends with kafka-producer-perf-test's closing line",
        description="Sends records, and prints the closing line of kafka-producer-perf-test.",
    )
    add_produce(produce)
    examples(
        produce,
        "cairn bench produce --num-records 1000000",
        "cairn bench produce --topic orders --producer-props acks=1 batch.size=16384",
    )

    consume = actions.add_parser(
        "consume", help="read a topic from its start", description="Reads a topic from its start."
    )
    completes(
        "topics", consume.add_argument("--topic", required=True, type=utf8, metavar="TOPIC", help="topic to read")
    )
    consume.add_argument("-n", "--num-records", "--messages", type=count, metavar="N", help="default: all")
    add_json(consume)
    add_connection(consume)
    examples(consume, "cairn bench consume --topic orders")
    consume.set_defaults(run=run_consume)

    e2e = actions.add_parser(
        "e2e",
        help="send at a fixed rate and read: latency of both",
        description="Sends at a fixed rate, reads what arrives, and shows the latency of both.",
    )
    add_load(e2e, 10_000)
    e2e.add_argument(
        "--throughput", "--rate", type=rate, default=RATE, metavar="N", help="target records per second (default 1000)"
    )
    examples(e2e, "cairn bench e2e --throughput 500 --num-records 5000")
    e2e.set_defaults(run=run_e2e)

    sweep = actions.add_parser(
        "sweep",
        help="produce and consume over numbers of partitions, each in a new topic",
        description="Produces and consumes with different numbers of partitions, each in a new topic.",
    )
    sweep.add_argument(
        "--partitions", type=numbers, default=SWEEP_PARTITIONS, metavar="N,N", help="default 1,10,100,1000"
    )
    sweep.add_argument("-n", "--num-records", type=count, default=RECORDS, metavar="N", help=f"default {RECORDS}")
    add_sending(sweep)
    examples(sweep, "cairn bench sweep --partitions 1,10,100")
    sweep.set_defaults(run=run_sweep)


def add_produce(parser: argparse.ArgumentParser) -> None:
    add_load(parser, RECORDS)
    parser.add_argument(
        "--throughput",
        "--rate",
        type=rate,
        default=None,
        metavar="N",
        help="target records per second (default -1: unlimited)",
    )
    parser.add_argument(
        "--producer-props",
        nargs="+",
        type=setting,
        default=[],
        metavar="k=v",
        help="bootstrap.servers, acks, batch.size, compression.type, max.in.flight.requests.per.connection",
    )
    parser.add_argument(
        "--producer.config", dest="producer_config", metavar="FILE", help="file with producer properties"
    )
    parser.add_argument("--bootstrap-server", dest="bootstrap", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    add_later(parser, "--payload-file", "--payload-delimiter", "--transactional-id", "--transaction-duration-ms")
    parser.set_defaults(run=run_produce)


def add_load(parser: argparse.ArgumentParser, records: int) -> None:
    completes(
        "topics",
        parser.add_argument(
            "--topic",
            type=utf8,
            metavar="TOPIC",
            help="use an existing topic (default: create a temporary one and delete it)",
        ),
    )
    parser.add_argument(
        "--partitions",
        type=partition_count,
        default=PARTITIONS,
        metavar="N",
        help="partitions of the temporary topic (default 10)",
    )
    parser.add_argument("-n", "--num-records", type=count, default=records, metavar="N", help=f"default {records}")
    add_sending(parser)


def add_sending(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-s", "--record-size", type=count, default=RECORD_BYTES, metavar="BYTES", help=f"default {RECORD_BYTES}"
    )
    parser.add_argument("--acks", choices=ACKS, default="all", metavar="ACKS", help="0, 1 or all (default)")
    parser.add_argument("--batch-size", type=count, default=64 * 1024, metavar="BYTES", help="default 65536")
    add_json(parser)
    add_connection(parser)


def rate(text: str) -> float | None:
    number = float(text)
    if number != -1 and not 0 < number < 1e9:
        raise argparse.ArgumentTypeError("records per second, or -1: unlimited")
    return None if number == -1 else number


def numbers(text: str) -> tuple[int, ...]:
    return tuple(partition_count(part) for part in text.split(","))


def run_produce(arguments: argparse.Namespace) -> int:
    from cairnmq.cli.bench_load import Producer, same_bytes

    properties = read_properties(arguments.producer_config) | dict(arguments.producer_props)
    apply_properties(arguments, properties)
    settings = settings_of(arguments)
    with connect(arguments) as client, place(client, arguments.topic, arguments.partitions) as topic:
        producer = Producer(client, topic, settings, same_bytes(settings))
        try:
            with shown("sent") as progress:
                done = producer.run(arguments.num_records, arguments.throughput, progress)
        finally:
            producer.close()
    if arguments.json:
        write_json(summary(done))
    else:
        write_line(closing_line(done))
    return 0


def run_consume(arguments: argparse.Namespace) -> int:
    from cairnmq.cli.bench_load import consume

    with connect(arguments) as client, shown("read") as progress:
        done = consume(client, client.topic(arguments.topic), arguments.num_records, progress)
    if arguments.json:
        write_json(summary(done))
    else:
        speed = f"{done.records_per_second:,.0f} records/s ({done.mb_per_second:,.1f} MB/s)"
        write_line(f"{done.records} records read in {done.seconds:.2f} s, {speed}")
    return 0


def run_e2e(arguments: argparse.Namespace) -> int:
    from cairnmq.cli.bench_load import STAMP_BYTES, Follower, Producer, stamped

    if arguments.throughput is None:
        raise UsageError("end-to-end latency needs a rate: without one it only measures the send queue")
    if arguments.record_size < STAMP_BYTES:
        raise UsageError(f"record size must be at least {STAMP_BYTES} bytes: each record carries its send time")
    settings = settings_of(arguments)
    with connect(arguments) as client, place(client, arguments.topic, arguments.partitions) as topic:
        with connect(arguments) as reading:
            follower = Follower(reading, topic, arguments.num_records)
            follower.start()
            producer = Producer(client, topic, settings, stamped(settings))
            try:
                with shown("sent") as progress:
                    sent = producer.run(arguments.num_records, arguments.throughput, progress)
            finally:
                producer.close()
            follower.join(arguments.timeout + 1)
        if follower.trouble is not None:
            raise follower.trouble
    read = figures(arguments.record_size, sent.seconds, follower.took)
    tell_latencies({"produce": sent, "end to end": read}, arguments.json)
    return 0


def tell_latencies(kinds: dict[str, Figures], as_json: bool) -> None:
    if as_json:
        write_json({name.replace(" ", "_"): summary(of) for name, of in kinds.items()})
        return
    percents = list(next(iter(kinds.values())).percentiles_ms)
    heads = ["MS", "MEAN", *(f"P{percent}" for percent in percents), "MAX", "RECORDS"]
    rows: list[list[object]] = []
    for name, of in kinds.items():
        values = [of.mean_ms, *(of.percentiles_ms.get(percent, 0.0) for percent in percents), of.max_ms]
        rows.append([name, *(f"{value:.2f}" for value in values), of.records])
    write_table(heads, rows)


def run_sweep(arguments: argparse.Namespace) -> int:
    from cairnmq.cli.bench_load import Producer, consume, same_bytes

    settings = settings_of(arguments)
    rows: list[tuple[int, Figures, Figures]] = []
    for partitions in arguments.partitions:
        with connect(arguments) as client, place(client, None, partitions) as topic:
            producer = Producer(client, topic, settings, same_bytes(settings))
            try:
                with shown(f"{partitions} partitions: sent") as progress:
                    sent = producer.run(arguments.num_records, None, progress)
            finally:
                producer.close()
            with shown(f"{partitions} partitions: read") as progress:
                rows.append((partitions, sent, consume(client, topic, None, progress)))
    if arguments.json:
        write_json([{"partitions": n, "produce": summary(sent), "consume": summary(read)} for n, sent, read in rows])
        return 0
    heads = ("PARTITIONS", "PRODUCE-MB/S", "PRODUCE-MSG/S", "P50-MS", "P99-MS", "CONSUME-MB/S", "CONSUME-MSG/S")
    write_table(heads, [sweep_row(*row) for row in rows])
    return 0


def sweep_row(partitions: int, sent: Figures, read: Figures) -> Sequence[object]:
    latencies = [f"{sent.percentiles_ms[percent]:.2f}" for percent in ("50", "99")]
    speeds = [f"{of.mb_per_second:.1f}" for of in (sent, read)]
    counts = [round(of.records_per_second) for of in (sent, read)]
    return (partitions, speeds[0], counts[0], *latencies, speeds[1], counts[1])


def settings_of(arguments: argparse.Namespace) -> Settings:
    from cairnmq.cli.bench_load import Settings

    return Settings(
        record_bytes=arguments.record_size,
        acks=ACKS[arguments.acks],
        batch_bytes=arguments.batch_size,
        in_flight=getattr(arguments, "in_flight", Settings().in_flight),
        codec=CODEC_NAMES.index(getattr(arguments, "compression", "none")),
        timeout=arguments.timeout,
    )


def read_properties(path: str | None) -> dict[str, str]:
    """Lines `name=value`; `#` begins a comment."""
    if path is None:
        return {}
    lines = [line.strip() for line in Path(path).read_text().splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def apply_properties(arguments: argparse.Namespace, properties: dict[str, str]) -> None:
    """Kafka's names onto ours. One that would change what is measured and is not offered is refused, not ignored."""
    for name, value in properties.items():
        if name == "bootstrap.servers":
            arguments.bootstrap = value
        elif name == "acks" and value in ACKS:
            arguments.acks = value
        elif name == "batch.size" and value.isdecimal() and int(value) > 0:
            arguments.batch_size = int(value)
        elif name == "max.in.flight.requests.per.connection" and value.isdecimal() and int(value) > 0:
            arguments.in_flight = int(value)
        elif name == "compression.type" and value in CODEC_NAMES:
            arguments.compression = value
        elif name == "enable.idempotence" and value == "false":
            continue
        elif name in WITHOUT_EFFECT:
            warn(f"{name} has no effect on this load: a batch is sent as soon as it is full or a request slot is free")
        else:
            raise UsageError(f"producer property {name}={value} is not supported by cairn bench")


@contextmanager
def place(client: Client, name: str | None, partitions: int) -> Iterator[Topic]:
    """The topic of that name (made on the spot where the broker allows it), or one that is deleted afterwards."""
    from cairnmq.client.admin import NewTopic
    from cairnmq.client.errors import ClientError

    if name is not None:
        yield client.topic(name, create=True)
        return
    own = f"cairn-bench-{uuid.uuid4().hex[:8]}"
    (made,) = client.create_topics([NewTopic(own, partitions)]).values()
    if isinstance(made, ClientError):
        raise made
    try:
        yield client.topic(own)
    finally:
        (problem,) = client.delete_topics([own]).values()
        if problem is not None:
            note(f"topic {own} could not be deleted: {problem}")


@contextmanager
def shown(what: str) -> Iterator[Callable[[int], None]]:
    progress = Progress()
    try:
        yield lambda number: progress.show(f"{number} records {what}")
    finally:
        progress.clear()
