"""Real brokers on damaged files, read by confluent-kafka: each partition gives what was stored or stands still, the
status names the place, and what journals still hold is repaired while clients wait."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import Broker, fixed_port, wait_until

PARTITIONS = 3
TRIALS = 12
SECONDS = 30.0
QUIET_SECONDS = 1.0
Key = tuple[str, int]
Records = dict[Key, list[bytes]]


def values(partition: int, count: int, random: Random) -> Iterator[bytes]:
    for number in range(count):
        yield b"%d %d " % (partition, number) + random.randbytes(700)


def produce(bootstrap: str) -> Records:
    """One topic with segments of its own, two of them closed; one in packs."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("own", PARTITIONS, 1, config={"cairn.model": "dedicated", "segment.bytes": str(1 << 20)}),
        NewTopic("packed", PARTITIONS, 1, config={"cairn.model": "shared"}),
    ]
    for made in admin.create_topics(topics).values():
        made.result(SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 20, "linger.ms": 5})
    records: Records = {}
    for topic, count in (("own", 2500), ("packed", 400)):
        for partition in range(PARTITIONS):
            stored = records[topic, partition] = list(values(partition, count, Random(partition)))
            for value in stored:
                producer.produce(topic, value, partition=partition)
            producer.flush(SECONDS)
    return records


def read(
    bootstrap: str, wanted: Records, starts: dict[Key, int], is_over: Callable[[Records], bool] = lambda _: False
) -> Records:
    """Values of each partition from its start on, until all of `wanted` are there, or `is_over` says that no more will
    come and none came for some time."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(*key, starts.get(key, 0)) for key in wanted])
    got: Records = {key: [] for key in wanted}
    missing = sum(len(stored) - starts.get(key, 0) for key, stored in wanted.items())
    last = time.monotonic()
    try:
        while (
            missing > 0 and (idle := time.monotonic() - last) < SECONDS and not (idle > QUIET_SECONDS and is_over(got))
        ):
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    got[message.topic(), message.partition()].append(message.value())
                    missing -= 1
                    last = time.monotonic()
    finally:
        consumer.close()
    return got


def status(broker: Broker) -> Any:
    with urllib.request.urlopen(f"{broker.http}/api/v1/status", timeout=30) as answer:
        return json.load(answer)


def damage(path: Path, random: Random) -> str:
    data = bytearray(path.read_bytes())
    at = random.randrange(len(data))
    way = random.choice(["bit", "cut", "zeroes"])
    if way == "bit":
        data[at] ^= 1 << random.randrange(8)
    elif way == "cut":
        del data[at:]
    else:
        data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    path.write_bytes(data)
    return f"{way} at {at} of {path.name}"


@pytest.fixture(params=["0", str(1 << 30)], ids=["journals deleted", "journals kept"])
def stopped(request: pytest.FixtureRequest, make_broker: Callable[..., Broker]) -> tuple[Broker, Records, bool]:
    settings = {"cairn.journal.retention.bytes": request.param, "cairn.journal.segment.bytes": str(1 << 20)}
    broker = make_broker(port=fixed_port(), settings=settings).start()
    records = produce(broker.bootstrap)
    assert broker.stop() == 0
    return broker, records, request.param != "0"


def owners(path: Path) -> set[str]:
    return {path.parent.name} if path.parent.parent.name == "queues" else {f"packed-{n}" for n in range(PARTITIONS)}


def test_damaged_files_under_real_clients(stopped: tuple[Broker, Records, bool]) -> None:
    broker, records, kept = stopped
    original = broker.directory / "original"
    shutil.copytree(broker.data, original)
    for trial in range(TRIALS):
        random = Random(f"{kept} {trial}")
        shutil.rmtree(broker.data)
        shutil.copytree(original, broker.data)
        pattern = random.choice(["queues/*/*.log", "queues/*/*.log", "queues/*/*index", "packs/*.pack", "packs/*.pack"])
        path = random.choice([path for path in sorted(broker.data.glob(pattern)) if path.stat().st_size])
        what = f"trial {trial}: {damage(path, random)}"
        broker.start()
        # librdkafka asks again and again while it is told error 56, so it goes on by itself once that ends
        got = read(
            broker.bootstrap, records, {}, lambda got, path=path: not kept and stands(broker, records, got, path)
        )
        for key, stored in records.items():
            end = len(got[key])
            assert got[key] == stored[:end], f"{what}: {key} is not what was stored"
            if kept or f"{key[0]}-{key[1]}" not in owners(path):
                assert end == len(stored), f"{what}: {key} ends at {end}\n{broker.log_tail(20)}"
            elif end < len(stored):
                behind_the_damage(broker, key, stored, end, what)
        assert broker.stop() == 0, what


def stands(broker: Broker, records: Records, got: Records, path: Path) -> bool:
    """Whatever is not read to its end is a partition of the damaged file, and was read up to a listed place."""
    listed = {each["queue"]: each["first_offset"] for each in status(broker)["damages"]}
    incomplete = {f"{key[0]}-{key[1]}": len(got[key]) for key, stored in records.items() if len(got[key]) < len(stored)}
    return incomplete.keys() <= owners(path) and incomplete.items() <= listed.items()


def behind_the_damage(broker: Broker, key: Key, stored: list[bytes], end: int, what: str) -> None:
    """The place is listed with its offsets, and what follows them is read."""
    listed = [each for each in status(broker)["damages"] if each["queue"] == f"{key[0]}-{key[1]}"]
    assert listed and listed[-1]["first_offset"] == end, f"{what}: read up to {end}, but {listed}"
    after = listed[-1]["end_offset"]
    if end < after < len(stored):
        got = read(broker.bootstrap, {key: stored}, {key: after})
        assert got[key] == stored[after:], f"{what}: {key} from {after} on"


def test_a_kill_and_a_lost_pack_cost_the_records_in_it_and_no_start(make_broker: Callable[..., Broker]) -> None:
    """Beside a pack that a round has written after the last checkpoint, the lost one was taken for the sign of an old
    checkpoint: no broker started. That of an old copy is still one."""
    settings = {"cairn.journal.segment.bytes": str(1 << 20)}
    broker = make_broker(port=fixed_port(), settings=settings).start()
    records = produce(broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values(0, 4000, Random(9)):
        producer.produce("filler", value, partition=0)  # so that no journal holds the records before
    producer.flush(SECONDS)
    assert broker.stop() == 0
    old = broker.directory / "old"
    shutil.copytree(broker.data / "checkpoints", old)
    named = set((broker.data / "packs").glob("*.pack"))
    assert named

    broker.start(cairn_checkpoint_interval_ms="60000")
    producer.produce("packed", b"later", partition=0)
    producer.flush(SECONDS)
    wait_until(lambda: set((broker.data / "packs").glob("*.pack")) - named, SECONDS, "a pack that no checkpoint names")
    broker.kill_tree()
    for path in named:
        path.rename(broker.directory / path.name)
    broker.start()
    own = {key: stored for key, stored in records.items() if key[0] == "own"}
    assert read(broker.bootstrap, own, {}) == own
    key, stored = ("packed", 0), [*records["packed", 0], b"later"]
    assert read(broker.bootstrap, {key: stored}, {key: len(stored) - 1})[key] == [b"later"]
    packed = {key: stored for key, stored in records.items() if key[0] == "packed"}
    got = read(broker.bootstrap, packed, {}, lambda got: True)
    assert got == {key: [] for key in packed}
    listed = {each["file"] for each in status(broker)["damages"]}
    assert listed == {f"packs/{path.name}" for path in named}
    assert broker.stop() == 0

    for path in named:
        (broker.directory / path.name).rename(path)
    broker.start()
    producer.produce("packed", b"latest", partition=0)
    producer.flush(SECONDS)
    assert broker.stop() == 0
    shutil.rmtree(broker.data / "checkpoints")
    shutil.copytree(old, broker.data / "checkpoints")
    broker.launch()
    assert broker.wait_dead() != 0
    assert "it is an old copy" in broker.log_tail()
