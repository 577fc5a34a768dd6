"""`cairn demo`: a throw-away broker with a few topics and live traffic, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cairnmq.broker.parent import follow
from cairnmq.cli.arguments import seconds
from cairnmq.cli.terminal import Progress, note, write_line
from cairnmq.codec.partitioner import partition_for
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Fault
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

TOPICS = {"orders": 4, "clicks": 8, "sensors": 2}
GROUP = "billing"  # reads orders a little behind, so that there is a lag to look at
ROUND_SECONDS = 0.25
STOP_SECONDS = 20.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a broker on free ports with topics and live traffic; Ctrl-C stops it and removes its data."
    )
    parser.add_argument("--seconds", type=seconds, metavar="N", help="stop after so long instead of at Ctrl-C")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from cairnmq.client.admin import NewTopic
    from cairnmq.client.blocking import Client

    directory = Path(tempfile.mkdtemp(prefix="cairn-demo-"))
    log = directory / "broker.log"
    broker = _start(directory, log)
    try:
        bootstrap, url = _ready(broker, log)
        with Client.connect(bootstrap, client_id="cairn-demo") as client:
            client.create_topics([NewTopic(name, partitions) for name, partitions in TOPICS.items()])
            write_line(f"bootstrap    {bootstrap}")
            write_line(f"status page  {url}")
            write_line(f"try          cairn consume -b {bootstrap} orders")
            sys.stdout.flush()
            note("Ctrl-C stops it.")
            _traffic(client, random.Random(), arguments.seconds)
        return 0
    finally:
        broker.terminate()
        try:
            broker.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _start(directory: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cairnmq.cli.main", "serve", "--data", str(directory / "data")]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    demo = os.getpid()

    def follow_us() -> None:
        """Also when we are killed, the broker stops in order."""
        if not follow(demo, signal.SIGTERM):
            os._exit(0)

    with log.open("wb") as errors:
        # A session of its own: Ctrl-C must reach the demo alone, which then stops the broker in order.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=follow_us,  # we have no threads that could hold a lock
        )


def _ready(broker: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    """Waits for the ready line; the broker closes its stdout if it fails."""
    assert broker.stdout is not None
    for line in broker.stdout:
        words = line.decode().split()
        if words[:2] == ["cairn", "ready"]:
            fields = dict(word.split("=", 1) for word in words[2:])
            return fields["bootstrap"], fields["http"]
    raise Fault(f"the demo's broker did not start:\n{log.read_text(errors='replace').strip()}")


def _traffic(client: Client, chance: random.Random, limit: float | None) -> None:
    start = time.monotonic()
    ends: dict[TopicPartition, int] = {}
    progress = Progress()
    sent = 0
    while limit is None or time.monotonic() - start < limit:
        batches = {place: build_batch(records) for place, records in _round(chance, int(time.time() * 1000)).items()}
        for place, produced in client.produce_all(batches).items():
            if place.topic == "orders":
                ends[place] = produced.base_offset
        if ends:
            client.offset_commit(GROUP, ends)
        sent += len(batches)
        progress.show(f"{sent} batches sent")
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
        put("orders", customer, {"customer": customer, "item": chance.choice("abcdef"), "amount": chance.randint(1, 9)})
    for _ in range(chance.randint(5, 40)):
        visitor = f"visitor-{chance.randint(1, 500)}"
        put("clicks", visitor, {"visitor": visitor, "page": chance.choice(["/", "/cart", "/help"])})
    for number in range(4):
        put("sensors", f"sensor-{number}", {"sensor": number, "celsius": round(chance.gauss(21, 2), 2)})
    return made
