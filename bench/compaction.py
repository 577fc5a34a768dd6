"""Row `compaction`: updates of few keys compacted at once, in bytes of log for each second of CPU."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.goals import over_kafka
from bench.results import Points, Run, Store
from bench.row import Row, beside, rounds
from bench.servers import BOTH, Server, Servers, turns
from bench.table import Column, comparison

CODECS = ("none", "lz4")
KEYS = 20_000
VALUE = 300
SEGMENT = 20 << 20
SECONDS = 300.0
LOOK_SECONDS = 0.5
RATIO = "min.cleanable.dirty.ratio"
COLUMNS = (
    Column("mb_per_cpu_s", "MB compacted per CPU s"),
    Column("cpu_s", "CPU s"),
    Column("seconds", "s"),
    Column("left_share", "share left", compared=False),
)


def size(directory: Path) -> int:
    total = 0
    for file in directory.glob("*.log"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total


def fill(server: Server, topic: str, codec: str, megabytes: int) -> None:
    writer = Producer(
        {"bootstrap.servers": server.bootstrap, "compression.type": codec, "linger.ms": 20, "batch.size": 200_000}
    )
    text = bytes(33 + number * 7 % 90 for number in range(VALUE))
    for number in range(megabytes * 1_000_000 // (VALUE + 20)):
        key = b"key-%d" % (number * 7919 % KEYS)
        while True:
            try:
                writer.produce(topic, key=key, value=b"%d" % number + text)
                break
            except BufferError:
                writer.poll(0.1)
        if not number % 1000:
            writer.poll(0)
    if writer.flush(SECONDS):
        raise RuntimeError(f"{server.name} did not take all records")


def run_compaction(server: Server, codec: str, megabytes: int) -> Points:
    """Nothing is compacted before all is there: the dirty share is never above 1."""
    topic = f"compaction-{codec}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    settings = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT), RATIO: "1.0"}
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=settings)]).values():
        future.result(SECONDS)
    fill(server, topic, codec, megabytes)
    tree = server.tree()
    tree.settle()
    directory = next(server.data.glob(f"**/{topic}-0"))
    before, cpu, start = size(directory), tree.cpu(), time.monotonic()
    change = ConfigEntry(RATIO, "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS)
    while size(directory) > 2 * SEGMENT:
        if time.monotonic() > start + SECONDS:
            raise RuntimeError(f"{server.name} did not compact {topic}")
        time.sleep(LOOK_SECONDS)
    seconds = time.monotonic() - start
    used, left = tree.cpu() - cpu, size(directory)
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(SECONDS)
    figures = {"mb_per_cpu_s": before / 1e6 / used, "cpu_s": used, "seconds": seconds, "left_share": left / before}
    return {codec: figures}


def measure(store: Store, servers: Servers) -> None:
    megabytes = 120 if store.run.quick else 600
    for number in rounds(store, 3):
        for codec in CODECS:
            for name in turns(BOTH, number):
                take = partial(_run, servers, name, codec, megabytes)
                store.take(name, codec, number, take)


def _run(servers: Servers, name: str, codec: str, megabytes: int) -> Points:
    return run_compaction(servers.get(name), codec, megabytes)


def body(run: Run) -> str:
    return comparison(run, "codec", COLUMNS)


def pictures(run: Run) -> dict[str, str]:
    return {"compaction": beside(run, "MB of log compacted per CPU second", run.points(), "mb_per_cpu_s")}


GOALS = tuple(
    over_kafka(f"compaction, {codec}: MB per CPU s", codec, "mb_per_cpu_s", 1.0, 1.5, higher=True) for codec in CODECS
)
COMPACTION = Row("compaction", measure, body, pictures, GOALS)
