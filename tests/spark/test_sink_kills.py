"""Spark killed (-9) between the steps of a commit, again and again, with more and fewer tasks: each row counts once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from broker_process import Broker
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from programs import require_program

PROGRAM = Path(__file__).with_name("program_sink.py")
TESTS = Path(__file__).parent.parent
# Always in batch 1: before its decision; behind it, with one of four transactions committed; in the next run, which has
# finished that, before Spark notes it. The runs have one to four tasks.
RUNS = (
    ("local[2]", "store", 1),
    ("local[4]", "commit", 2),
    ("local[3]", "commit", -4),
    ("local[1]", "none", 0),
)


def test_each_row_counts_once(shared_broker: Broker, kafka: LibrdkafkaClient, tmp_path: Path) -> None:
    require_program("java")
    kafka.create_topic("kills-from", partitions=2)
    kafka.create_topic("kills-to", partitions=2)
    kafka.produce("kills-from", [Sent(b"%d" % i, partition=i % 2) for i in range(60)])
    for master, point, count in RUNS:
        line = [sys.executable, str(PROGRAM), shared_broker.bootstrap, "kills-from", "kills-to", str(tmp_path), master]
        done = subprocess.run(
            [*line, point, "1", str(count)],
            env={"PYTHONPATH": str(TESTS), "PATH": str(Path(require_program("java")).parent) + ":/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert ("finished" in done.stdout) == (point == "none"), f"{master} {point}\n{done.stderr[-4000:]}"
    found = sorted(int(row.value or b"") for row in kafka.read("kills-to", (0, 1)))
    assert found == list(range(60))
