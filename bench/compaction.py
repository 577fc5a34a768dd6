"""Row `compaction`: updates of few keys compacted at once: bytes of log removed for each second of the server's CPU."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from bench.goals import over_kafka
from bench.librdkafka import SECONDS, Errors, LoadFailed, create_topics, delete_topic, producer
from bench.results import Points, Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Server, Servers, rest, turns
from bench.table import Column, comparison
from cairnmq.client.admin import Alteration
from cairnmq.client.blocking import Client

CODECS = ("none", "lz4")
KEYS = 20_000
VALUE = 300
SEGMENT_BYTES = 20 << 20
LOOK_SECONDS = 0.2
RATIO = "min.cleanable.dirty.ratio"
RESOURCE_TOPIC, SET = 2, 0
COLUMNS = (
    Column("mb_per_cpu_s", "MB removed per CPU s"),
    Column("cpu_s", "CPU s"),
    Column("seconds", "s until the log shrinks"),
    Column("left_share", "share left", compared=False),
)
GOALS = tuple(
    over_kafka(f"compaction, {codec}: MB per CPU s", codec, "mb_per_cpu_s", 1.0, 1.5, higher=True) for codec in CODECS
)


def log_bytes(directory: Path) -> int:
    total = 0
    for file in directory.glob("*.log"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue  # deleted a moment ago
    return total


def fill(server: Server, topic: str, codec: str, megabytes: int) -> None:
    sender, errors = producer(server.bootstrap, **{"compression.type": codec, "batch.size": 200_000}), Errors()
    noise = os.urandom(1 << 20)
    for number in range(megabytes * 1_000_000 // (VALUE + 20)):
        key, at = b"key-%d" % (number * 7919 % KEYS), number * 131 % (len(noise) - VALUE)
        value = b"%d" % number + noise[at : at + VALUE // 2] + bytes(VALUE // 2)  # half of it can be compressed
        while True:
            try:
                sender.produce(topic, key=key, value=value, partition=0, on_delivery=errors.report)
                break
            except BufferError:
                sender.poll(0.1)
        if not number % 1000:
            sender.poll(0)
    errors.check(sender)


def run_compaction(server: Server, codec: str, megabytes: int) -> Points:
    """Nothing is compacted before all is there: the dirty share is never above 1."""
    topic = f"compaction-{codec}-{time.monotonic_ns()}"
    config = {"cleanup_policy": "compact", "segment_bytes": str(SEGMENT_BYTES), RATIO: "1.0"}
    create_topics(server.bootstrap, [topic], 1, **config)
    fill(server, topic, codec, megabytes)
    rest(server)  # ours compacts what a checkpoint counts, and one comes every 5 s
    tree = server.tree()
    directory = next(server.data.glob(f"**/{topic}-0"))
    before, cpu, start = log_bytes(directory), tree.cpu(), time.monotonic()
    if before <= 2 * SEGMENT_BYTES:
        raise LoadFailed(f"{before} bytes are too few to be compacted")
    with Client.connect(server.bootstrap) as client:
        client.incremental_alter_configs(RESOURCE_TOPIC, topic, [Alteration(RATIO, SET, "0.01")])
    while log_bytes(directory) > before - SEGMENT_BYTES // 2:
        if time.monotonic() > start + SECONDS:
            raise LoadFailed(f"{server.name} did not compact {topic}")
        time.sleep(LOOK_SECONDS)
    seconds = time.monotonic() - start
    used, left = rest(server).cpu - cpu, log_bytes(directory)
    delete_topic(server.bootstrap, topic)
    return {
        codec: {
            "mb_per_cpu_s": (before - left) / 1e6 / used,
            "cpu_s": used,
            "seconds": seconds,
            "left_share": left / before,
        }
    }


def measure(store: Store, servers: Servers) -> None:
    megabytes = 120 if store.run.quick else 500

    def run(name: str, codec: str) -> Points:
        return run_compaction(servers.get(name), codec, megabytes)

    for number in rounds(store):
        for codec in CODECS:
            for name in turns(BOTH, number):
                store.take(name, codec, number, partial(run, name, codec), partial(servers.get, name))


def body(run: Run) -> str:
    return comparison(run, "codec", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"compaction": beside(run, "MB of log removed per CPU second", run.points(), "mb_per_cpu_s")}


COMPACTION = Row("compaction", measure, body, pictures, GOALS)
