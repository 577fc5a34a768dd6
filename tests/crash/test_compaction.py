"""Compacted topics with a real broker and real clients: 100,000 updates of 1,000 keys, killed in the middle."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from apache_kafka.command import assert_sound, cairn
from apache_kafka.records import producer, read_all, send
from broker_process import Broker, wait_until

UPDATES, KEYS = 100_000, 1000
SECONDS = 90.0
QUICK = {"log.retention.check.interval.ms": "300", "cairn.checkpoint.interval.ms": "300"}
SMALL = ("-c", "internal.segment.bytes=500000", "-c", "min.cleanable.dirty.ratio=0.1")


def create(broker: Broker, topic: str, *settings: str) -> None:
    named = [part for setting in ("cleanup.policy=compact", *settings) for part in ("-c", setting)]
    cairn("topic", "create", topic, "-b", broker.bootstrap, *named, *SMALL)


def update(broker: Broker, topic: str, first: int, last: int, **options: object) -> None:
    """Numbers `first` to `last`, each the new value of one of the keys; the last hundred keys end as tombstones."""
    writer = producer(broker.bootstrap, **{"batch.num.messages": 200, **options})
    send(
        writer,
        topic,
        0,
        (
            {"key": b"key-%d" % (n % KEYS), "value": None if n >= UPDATES - 100 else b"%d %s" % (n, b"." * 60)}
            for n in range(first, last)
        ),
    )


def state(broker: Broker, topic: str) -> dict[bytes | None, bytes]:
    """What somebody has who reads all of it."""
    found: dict[bytes | None, bytes] = {}
    for record in read_all(broker.bootstrap, topic, 1)[0]:
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value.split()[0]
    return found


WANTED = {b"key-%d" % (n % KEYS): b"%d" % n for n in range(UPDATES - KEYS, UPDATES - 100)}


def bytes_of(directory: Path, pattern: str) -> int:
    """Very many if files go while we look: whoever waits for few looks again."""
    try:
        return sum(file.stat().st_size for file in directory.glob(pattern))
    except FileNotFoundError:
        return 1 << 60


def size(broker: Broker, topic: str) -> int:
    return bytes_of(broker.data / "queues" / f"{topic}-0", "*.log")


def metric(broker: Broker, name: str) -> float:
    with urllib.request.urlopen(f"{str(broker.http).rstrip('/')}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


def wait_compacted(broker: Broker, topic: str, below: int) -> None:
    """Small alone is not enough: it is so too while only a part is split."""

    def compacted() -> bool:
        return metric(broker, "cairn_compaction_passes_total") >= 1 and 0 < size(broker, topic) < below

    wait_until(compacted, SECONDS, "compaction")


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_updates_are_compacted(make_broker: Callable[..., Broker], codec: str) -> None:
    broker = make_broker(settings=QUICK).start()
    create(broker, "table")
    update(broker, "table", 0, UPDATES, **{"compression.type": codec, "enable.idempotence": True})
    wait_compacted(broker, "table", UPDATES * (35 if codec == "none" else 6))
    assert state(broker, "table") == WANTED
    read, written = (metric(broker, f"cairn_compaction_{what}_bytes_total") for what in ("read", "written"))
    assert 0 < written < read
    said = cairn("consume", "table", "-b", broker.bootstrap, "-o", "start", "-n", "5", "-f", "%k\\n").stdout
    assert said.count("key-") == 5
    assert_sound(broker)
    broker.start()
    assert state(broker, "table") == WANTED


@pytest.mark.parametrize(
    "point", ["compaction-write:3", "compaction-swap", "compaction-delete", "checkpoint-publish:4"]
)
def test_killed_in_the_middle(make_broker: Callable[..., Broker], point: str) -> None:
    """The splitter dies at this point while records come in; later the whole broker is killed."""
    broker = make_broker(settings=QUICK).start(cairn_fault_point=point)
    create(broker, "table")
    for first in range(0, UPDATES, UPDATES // 4):
        update(broker, "table", first, first + UPDATES // 4)

    def died() -> bool:
        """The last updates once more: without work there may be no further checkpoint to die at."""
        update(broker, "table", UPDATES - KEYS, UPDATES)
        return metric(broker, "cairn_splitter_restarts_total") > 0

    wait_until(died, SECONDS, f"a death at {point}")
    assert state(broker, "table") == WANTED
    broker.kill_tree()
    assert cairn("verify", str(broker.data)).stdout == ""
    broker.start()
    assert state(broker, "table") == WANTED
    wait_until(lambda: size(broker, "table") < UPDATES * 35, SECONDS, "compaction after the kill")
    assert state(broker, "table") == WANTED
    assert_sound(broker)


def test_shared_topics_are_compacted_in_packs(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(settings=QUICK).start()
    create(broker, "table", "cairn.model=shared")
    for first in range(0, UPDATES, UPDATES // 4):
        update(broker, "table", first, first + UPDATES // 4)

    def packs() -> int:
        return bytes_of(broker.data / "packs", "*.pack")

    wait_until(lambda: 0 < packs() < UPDATES * 20, SECONDS, "compaction of packs")
    assert state(broker, "table") == WANTED
    broker.kill_tree()
    broker.start()
    assert state(broker, "table") == WANTED
    assert_sound(broker)


def test_records_without_a_key_are_refused(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker().start()
    create(broker, "table")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        failures: list[object] = []
        writer = producer(broker.bootstrap, **{"compression.type": codec, "linger.ms": 1000})
        writer.list_topics("table", timeout=30)  # records that wait for metadata may leave in several batches
        for key in (b"k", None, b"l"):
            writer.produce("table", key=key, value=b"v" * 100, on_delivery=lambda e, _, to=failures: to.append(e))
        # poll, not flush: flush sends what there is at once, and it must be one batch
        wait_until(lambda w=writer, f=failures: w.poll(0.05) is not None and len(f) == 3, 60, "delivery reports")
        names = [error.name() for error in failures if isinstance(error, KafkaError)]
        assert names == ["INVALID_RECORD"] * 3
    send(producer(broker.bootstrap), "table", 0, [{"key": b"k", "value": b"v"}])
    assert [record.key for record in read_all(broker.bootstrap, "table", 1)[0]] == [b"k"]
    done = cairn("topic", "create", "odd", "-b", broker.bootstrap, "-c", "cleanup.policy=forget", code=1)
    assert "cleanup.policy" in done.stderr


def test_a_consumer_inside_a_gap_goes_on(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker = make_broker(settings=QUICK).start()
    create(broker, "table")
    update(broker, "table", 0, 40_000)
    wait_compacted(broker, "table", 40_000 * 35)
    before = left(broker)
    got: dict[int, int] = {}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"})
    try:
        for start in (1, 4999, 20_000, 33_333):
            consumer.assign([TopicPartition("table", 0, start)])
            message = consumer.poll(30)
            assert message is not None and message.error() is None, KafkaException(message.error())
            got[start] = message.offset()
    finally:
        consumer.close()
    after = left(broker)  # another pass may have been over meanwhile
    assert 1 not in before, "no gap"
    for start, offset in got.items():
        assert offset in before
        assert first_from(start, before) <= offset <= first_from(start, after), f"from {start} on: {offset}"


def left(broker: Broker) -> list[int]:
    return [record.offset for record in read_all(broker.bootstrap, "table", 1)[0]]


def first_from(start: int, offsets: list[int]) -> int:
    return next(offset for offset in offsets if offset >= start)
