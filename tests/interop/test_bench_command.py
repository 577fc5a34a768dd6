"""`cairn bench` against a real broker: what it says it sent is there, and it leaves nothing behind."""

from __future__ import annotations

import json
import re
import subprocess

from broker_process import CAIRN, Broker

SECONDS = 60


def bench(broker: Broker, *words: str, code: int = 0) -> str:
    line = [CAIRN, "bench", *words, "-b", broker.bootstrap]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def topics(broker: Broker) -> str:
    line = [CAIRN, "topic", "list", "-b", broker.bootstrap]
    return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def test_produce_ends_with_the_line_of_kafkas_tool_and_consume_finds_every_record(shared_broker: Broker) -> None:
    flags = ("--topic", "bench-perf", "--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    out = bench(shared_broker, *flags, "--producer-props", "acks=1", "batch.size=4096")
    assert re.match(r"5000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), .* ms 99\.9th\.$", out.splitlines()[-1])
    assert json.loads(bench(shared_broker, "consume", "--topic", "bench-perf", "--json"))["records"] == 5000


def test_a_rate_is_kept(shared_broker: Broker) -> None:
    told = json.loads(bench(shared_broker, "produce", "-n", "400", "--rate", "400", "--json"))
    assert told["records"] == 400
    assert told["seconds"] >= 0.99, "the last record is due after 399/400 s"


def test_end_to_end_latency_is_no_shorter_than_the_way_there(shared_broker: Broker) -> None:
    told = json.loads(bench(shared_broker, "e2e", "-n", "500", "--rate", "1000", "--acks", "1", "--json"))
    assert told["produce"]["records"] == told["end_to_end"]["records"] == 500
    assert 0 < told["end_to_end"]["latency_ms"]["p50"] <= told["end_to_end"]["latency_ms"]["max"]


def test_sweep_reads_what_it_sent_and_its_topics_are_gone(shared_broker: Broker) -> None:
    rows = json.loads(bench(shared_broker, "sweep", "--partitions", "1,20", "-n", "3000", "--json"))
    found = [(row["partitions"], row["produce"]["records"], row["consume"]["records"]) for row in rows]
    assert found == [(1, 3000, 3000), (20, 3000, 3000)]
    assert "cairn-bench-" not in topics(shared_broker)


def test_records_larger_than_the_broker_takes_are_told_and_nothing_is_left(shared_broker: Broker) -> None:
    bench(shared_broker, "produce", "-n", "2", "-s", "3000000", code=1)
    assert "cairn-bench-" not in topics(shared_broker)
