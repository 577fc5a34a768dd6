"""`cairn demo`: a throw-away broker with topics, live traffic and two consumer groups, until Ctrl-C or SIGTERM.

With `--brokers` it is a cluster to kill brokers of: demo_cluster.py."""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from cairnmq.cli.arguments import count, examples, seconds
from cairnmq.cli.terminal import Progress, note, write_line
from cairnmq.codec.partitioner import partition_for
from cairnmq.codec.records import Record, build_batch
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.cli.demo_consumer import DemoConsumer
    from cairnmq.client.blocking import Client

TOPICS = {"orders": 4, "clicks": 8, "sensors": 2}
ITEMS = ("coffee", "tea", "juice", "cake", "bagel", "salad")
ROUND_SECONDS = 0.25
# The group `billing` keeps up with orders; `analytics` reads clicks, but rests: its lag comes and goes.
BILLING, ANALYTICS = 2, 3  # members
CYCLE_SECONDS, REST_SECONDS = 50.0, 20.0
LEAVE_SECONDS = 2.0
BROKERS_MAX = 9  # each is two processes


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a broker on free ports with topics, live traffic and consumer groups. "
        "Ctrl-C stops it and removes its data. With --brokers 3 it is a cluster, and says what happens when you kill "
        "one of its processes."
    )
    parser.add_argument(
        "--brokers", type=_brokers, default=1, metavar="N", help=f"number of brokers, 1 to {BROKERS_MAX} (default 1)"
    )
    parser.add_argument("--seconds", type=seconds, metavar="N", help="stop after N seconds (default: at Ctrl-C)")
    examples(parser, "cairn demo", "cairn demo --seconds 60", "cairn demo --brokers 3")
    parser.set_defaults(run=run)


def _brokers(text: str) -> int:
    number = count(text)
    if number > BROKERS_MAX:
        raise argparse.ArgumentTypeError(f"{number} is more than {BROKERS_MAX}")
    return number


class _Terminated(Exception):
    """SIGTERM came."""


def run(arguments: argparse.Namespace) -> int:
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        if arguments.brokers == 1:
            _run(arguments.seconds)
        else:
            from cairnmq.cli.demo_cluster import run_cluster

            run_cluster(arguments.brokers, arguments.seconds)
    except _Terminated:
        pass  # as it should: the broker and its data are gone
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # cleaning up is not interrupted
    raise _Terminated


def _run(limit: float | None) -> None:
    from cairnmq.client.blocking import Client
    from cairnmq.local_broker import Broker

    with Broker(http=True) as broker:
        for name, partitions in TOPICS.items():
            broker.create_topic(name, partitions)
        _tell(broker.bootstrap, broker.url or "")
        consumers = _consumers(broker.bootstrap)
        try:
            for consumer in consumers:
                consumer.start()
            with Client.connect(broker.bootstrap, client_id="demo-producer") as client:
                _traffic(client, random.Random(), limit, consumers)
        finally:
            for consumer in consumers:
                consumer.stop()
            for consumer in consumers:
                consumer.wait(LEAVE_SECONDS)


def _tell(bootstrap: str, url: str) -> None:
    write_line(f"bootstrap    {bootstrap}")
    write_line(f"status page  {url}")
    write_line(f"try          cairn consume -b {bootstrap} orders")
    write_line(f"             cairn group describe -b {bootstrap} analytics")
    write_line(f"             echo hello | cairn produce -b {bootstrap} orders")
    sys.stdout.flush()
    note("Topics: orders, clicks, sensors. Groups: billing keeps up, analytics falls behind and catches up again.")
    note("Ctrl-C stops the broker and removes its data.")


def _consumers(bootstrap: str) -> list[DemoConsumer]:
    from cairnmq.cli.demo_consumer import DemoConsumer

    start = time.monotonic()

    def rests(now: float) -> bool:
        return (now - start) % CYCLE_SECONDS > CYCLE_SECONDS - REST_SECONDS

    return [
        *(DemoConsumer(bootstrap, f"billing-{n + 1}", "billing", "orders") for n in range(BILLING)),
        *(DemoConsumer(bootstrap, f"analytics-{n + 1}", "analytics", "clicks", rests) for n in range(ANALYTICS)),
    ]


def _traffic(client: Client, chance: random.Random, limit: float | None, consumers: list[DemoConsumer]) -> None:
    start = time.monotonic()
    progress = Progress()
    sent = 0
    while limit is None or time.monotonic() - start < limit:
        made = _round(chance, int(time.time() * 1000))
        client.produce_all({place: build_batch(records) for place, records in made.items()})
        sent += sum(map(len, made.values()))
        progress.show(f"{sent:,} messages sent, {sum(consumer.read for consumer in consumers):,} read")
        time.sleep(ROUND_SECONDS * chance.uniform(0.5, 1.5))
    progress.clear()


def _round(chance: random.Random, now_ms: int) -> dict[TopicPartition, list[Record]]:
    """A handful of messages that look like something."""
    made: dict[TopicPartition, list[Record]] = {}

    def put(topic: str, key: str, value: dict[str, object]) -> None:
        place = TopicPartition(topic, partition_for(key.encode(), TOPICS[topic]))
        record = Record(0, now_ms, key.encode(), json.dumps(value).encode(), (("source", b"cairn demo"),))
        made.setdefault(place, []).append(record)

    for _ in range(chance.randint(1, 4)):
        customer = f"customer-{chance.randint(1, 50)}"
        put("orders", customer, {"customer": customer, "item": chance.choice(ITEMS), "amount": chance.randint(1, 9)})
    for _ in range(chance.randint(5, 40)):
        visitor = f"visitor-{chance.randint(1, 500)}"
        put("clicks", visitor, {"visitor": visitor, "page": chance.choice(["/", "/cart", "/help"])})
    for number in range(4):
        put("sensors", f"sensor-{number}", {"sensor": number, "celsius": round(chance.gauss(21, 2), 2)})
    return made
