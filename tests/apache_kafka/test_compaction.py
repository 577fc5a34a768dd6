"""The same input to Apache Kafka's cleaner and to ours: the same records remain, and its tools read our files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from apache_kafka.command import assert_sound, cairn
from apache_kafka.node import ApacheKafka, kafka_tool
from apache_kafka.records import CODECS, SECONDS, Seen, producer, read_all, send
from broker_process import Broker, wait_until

NOW = 1_700_000_000_000
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "delete.retention.ms": "86400000",
}
TURNS, KEYS = 6, 40
QUICK = {"log.retention.check.interval.ms": "300", "cairn.checkpoint.interval.ms": "300"}


def fill(bootstrap: str) -> None:
    """One partition for each codec; a turn is older than the next by more than `segment.ms`, so each is a segment.

    In the last turn comes a single record: it is in the segment that is written to, which neither compacts.
    """
    for partition, codec in enumerate(CODECS):
        # idempotent, so that a batch sent twice does not make the inputs differ
        options = {"compression.type": codec, "batch.num.messages": 7, "linger.ms": 50, "enable.idempotence": True}
        writer = producer(bootstrap, **options)
        for turn in range(TURNS):
            send(writer, "table", partition, list(turn_of(turn, partition)))
        last = {"key": b"last", "value": b"", "timestamp": NOW + TURNS * 5000}
        send(writer, "table", partition, [last])


def turn_of(turn: int, partition: int) -> Iterator[dict[str, object]]:
    for number in range(60):
        key = (number * 7 + turn * 3 + partition) % (KEYS - 5 * turn)
        yield {
            "key": b"key-%d" % key,
            "value": None if (number + turn) % 11 == 0 else b"turn %d number %d " % (turn, number) * 4,
            "timestamp": NOW + turn * 5000 + number % 5,
            "headers": [("n", b"%d" % number)] if number % 3 == 0 else None,
        }


def duplicates(records: dict[int, list[Seen]]) -> int:
    return sum(len(rows) - len({row.key for row in rows}) for rows in records.values())


def wait_for_compaction(bootstrap: str) -> dict[int, list[Seen]]:
    found: dict[int, list[Seen]] = {}

    def is_clean() -> bool:
        found.update(read_all(bootstrap, "table", len(CODECS)))
        return duplicates(found) == 0

    wait_until(is_clean, SECONDS, "all partitions to be compacted")
    return found


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, list[Seen]]]:
    kafka = ApacheKafka(tmp_path_factory.mktemp("cleaner"))
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for future in admin.create_topics([NewTopic("table", len(CODECS), 1, config=SETTINGS)]).values():
            future.result(SECONDS)
        fill(kafka.bootstrap)
        yield wait_for_compaction(kafka.bootstrap)
    finally:
        kafka.close()


def ours(broker: Broker) -> dict[int, list[Seen]]:
    settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    cairn("topic", "create", "table", "-p", str(len(CODECS)), "-b", broker.bootstrap, *settings)
    fill(broker.bootstrap)
    return wait_for_compaction(broker.bootstrap)


def test_the_same_records_remain(kafkas: dict[int, list[Seen]], make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(settings=QUICK).start()
    found = ours(broker)
    assert any(record.value is None for record in found[0])
    assert found == kafkas
    assert_sound(broker)
    printed(broker.data / "queues", found)


def printed(queues: Path, found: dict[int, list[Seen]]) -> None:
    """DumpLogSegments prints every record, and takes every index for sane."""
    for partition, records in found.items():
        files = sorted((queues / f"table-{partition}").glob("*.log"))
        named = ",".join(map(str, files))
        done = kafka_tool(
            "org.apache.kafka.tools.DumpLogSegments", "--files", named, "--print-data-log", "--deep-iteration"
        )
        assert done.returncode == 0, done.stderr
        offsets = [int(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("| offset: ")]
        assert offsets == [record.offset for record in records]
        said = re.findall(r"deleteHorizonMs: OptionalLong\[(\d+)\]", done.stdout)
        assert said, "no batch with a delete horizon"
        assert "isvalid: false" not in done.stdout
        # the segment that is written to may have none yet
        made = [file.with_suffix(suffix) for file in files for suffix in (".index", ".timeindex")]
        indexes = ",".join(str(file) for file in made if file.exists())
        assert indexes, "no compacted segment has an index"
        checked = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", indexes, "--index-sanity-check")
        assert checked.returncode == 0, checked.stderr
        assert not re.search(r"exception|mismatch|corrupt|out of order", checked.stdout, re.IGNORECASE), checked.stdout
