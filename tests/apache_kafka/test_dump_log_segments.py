"""Kafka's DumpLogSegments on our files: every record is printed, every index is sane."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from apache_kafka.command import assert_sound, cairn
from apache_kafka.node import kafka_tool
from apache_kafka.records import CODECS, Seen, producer, read_all, send, shapes
from apache_kafka.source import Source
from broker_process import Broker

RECORD = re.compile(
    r"^\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) .*"
    r"headerKeys: \[(.*?)\]"
)
OWN = "written-here"
DEDICATED = "cairn.model=dedicated"


class Files:
    """The queue logs of a stopped broker, and what clients read from it before."""

    def __init__(self, queues: Path, topics: dict[str, dict[int, list[Seen]]]) -> None:
        self.queues = queues
        self.topics = topics

    def find(self, *suffixes: str) -> list[Path]:
        return sorted(file for suffix in suffixes for file in self.queues.glob(f"*/*{suffix}"))


@pytest.fixture(scope="module")
def files(source: Source, module_broker: Callable[[], Broker]) -> Files:
    broker = module_broker()
    as_it_is = ("-c", "min.compaction.lag.ms=9000000000000000000")  # else compaction would go on here
    cairn("import", str(source.logs), "-b", broker.bootstrap, "-c", DEDICATED, *as_it_is)
    small = ("-c", "internal.segment.bytes=60000", "-c", "index.interval.bytes=500")
    cairn("topic", "create", OWN, "-p", "5", "-b", broker.bootstrap, "-c", DEDICATED, *small)
    for partition, codec in enumerate(CODECS):
        writer = producer(broker.bootstrap, **{"compression.type": codec, "batch.num.messages": 20})
        send(writer, OWN, partition, shapes(codec, 400, 1000 if codec == "none" else 100))
    topics = source.topics | {OWN: read_all(broker.bootstrap, OWN, 5)}
    assert_sound(broker)
    return Files(broker.data / "queues", topics)


def dump(*arguments: str, files: list[Path]) -> str:
    named = ",".join(map(str, files))
    done = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", named, *arguments)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert not re.search(
        r"exception|mismatch|corrupt|out of order|not all", done.stdout + done.stderr, re.IGNORECASE
    ), done.stdout[-3000:] + done.stderr
    return done.stdout


def test_every_record_is_printed(files: Files) -> None:
    logs = files.find(".log")
    assert len([file for file in logs if file.parent.name == f"{OWN}-0"]) > 3
    printed: dict[str, list[tuple[object, ...]]] = {}
    batches: dict[str, list[str]] = {}
    queue, codecs, control = "", set(), False
    for line in dump("--print-data-log", "--deep-iteration", files=logs).splitlines():
        if line.startswith("Dumping "):
            queue = Path(line.removeprefix("Dumping ")).parent.name
            printed.setdefault(queue, [])
        elif line.startswith("baseOffset: "):
            batches.setdefault(queue, []).append(line)
            codecs.add(line.partition("compresscodec: ")[2].split()[0])
            control = "isControl: true" in line
            assert "magic: 2" in line
        elif (match := RECORD.match(line)) is not None and not control:
            offset, timestamp, key, value, headers = match.groups()
            printed[queue].append((int(offset), int(timestamp), int(key), int(value), headers))
    assert codecs == set(CODECS)
    assert any("isControl: true" in line for line in batches["ledger-0"])
    for topic, parts in files.topics.items():
        for number, records in parts.items():
            first = records[0].offset if records else 1 << 62
            wanted = [
                (
                    record.offset,
                    record.timestamp[1],
                    -1 if record.key is None else len(record.key),
                    -1 if record.value is None else len(record.value),
                    ",".join(name for name, _ in record.headers),
                )
                for record in records
            ]
            # a log may begin inside a batch: the tool prints all of it
            assert [row for row in printed.get(f"{topic}-{number}", []) if row[0] >= first] == wanted, (topic, number)


def test_indexes_are_sane(files: Files) -> None:
    indexes = files.find(".index", ".timeindex")
    assert len(indexes) > 20
    assert any(file.stat().st_size > 80 for file in indexes)
    said = dump("--index-sanity-check", files=indexes)
    empty = [file for file in indexes if not file.stat().st_size]
    assert said.count(" is empty.") == len(empty)
    assert said.count(" passed sanity check.") == len(indexes) - len(empty) > 20
    dump("--verify-index-only", files=indexes)
    entries = [line for line in dump(files=indexes).splitlines() if line.startswith(("offset: ", "timestamp: "))]
    assert len(entries) > 100
