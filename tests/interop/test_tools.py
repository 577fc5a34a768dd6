"""Apache Kafka's own command-line tools against our broker: what they print and how they end.

Each call starts a JVM, so a test asks several things of one state instead of building it anew.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_process import wait_until
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.members import Stage
from interop.clients.process import PROGRAMS_DIR
from programs import require_program

pytestmark = pytest.mark.long  # a JVM for each call

NewTopic = Callable[..., str]
SECONDS = 90
PACKAGE = "org.apache.kafka.tools"
CLASSES = {
    "topics": f"{PACKAGE}.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": f"{PACKAGE}.consumer.group.ConsumerGroupCommand",
    "get-offsets": f"{PACKAGE}.GetOffsetShell",
    "delete-records": f"{PACKAGE}.DeleteRecordsCommand",
    "log-dirs": f"{PACKAGE}.LogDirsCommand",
    "broker-api-versions": f"{PACKAGE}.BrokerApiVersionsCommand",
    "producer-perf-test": f"{PACKAGE}.ProducerPerformance",
    "consumer-perf-test": f"{PACKAGE}.ConsumerPerformance",
    "verifiable-producer": f"{PACKAGE}.VerifiableProducer",
    "verifiable-consumer": f"{PACKAGE}.VerifiableConsumer",
}
Tool = Callable[..., str]


@pytest.fixture(scope="session")
def kafka(bootstrap: str) -> Tool:
    """kafka("topics", "--list") is `kafka-topics --bootstrap-server ... --list`: what it said, if it ended with `code`.

    kafka-consumer-groups ends with 0 also when it was refused something; then only its text tells.
    """
    launcher = require_program(str(PROGRAMS_DIR / "kafka_tool"))

    def run(tool: str, *arguments: str, code: int = 0) -> str:
        line = [launcher, CLASSES[tool], *arguments]
        if tool != "producer-perf-test":
            line += ["--bootstrap-server", bootstrap]
        done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == code, f"kafka-{tool} {' '.join(arguments)} ended with {done.returncode}: {said}"
        return said if code else done.stdout

    return run


def rows(table: str) -> list[dict[str, str]]:
    """A table of kafka-consumer-groups by its column names."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    head = next(number for number, words in enumerate(lines) if words[0] == "GROUP")
    names = lines[head]
    return [dict(zip(names, words, strict=False)) for words in lines[head + 1 :]]


def events(lines: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_topics(kafka: Tool, free_name: str, admin: LibrdkafkaClient) -> None:
    create = ("--create", "--topic", free_name, "--partitions", "2", "--config", "retention.ms=60000")
    assert f"Created topic {free_name}." in kafka("topics", *create)
    assert "already exists" in kafka("topics", *create, code=1)
    kafka("topics", "--alter", "--topic", free_name, "--partitions", "3")
    head, *partitions = kafka("topics", "--describe", "--topic", free_name).splitlines()
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=60000", head)
    for number, line in enumerate(partitions):
        assert re.search(rf"Partition: {number}\s+Leader: 1\s+Replicas: 1\s+Isr: 1\b", line)
    assert len(partitions) == 3
    kafka("topics", "--delete", "--topic", free_name)
    assert admin.partitions(free_name) == 0
    assert "does not exist" in kafka("topics", "--describe", "--topic", free_name, code=1)
    assert free_name not in kafka("topics", "--list").splitlines()


def test_configs(kafka: Tool, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(**{"retention.ms": "1000"})
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    changes = ("--add-config", "max.message.bytes=5000,cleanup.policy=[delete]", "--delete-config", "retention.ms")
    assert "Completed updating config" in kafka("configs", *of_topic, "--alter", *changes)
    said = kafka("configs", *of_topic, "--describe")
    assert "max.message.bytes=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000" in said
    assert "retention.ms" not in said
    assert admin.topic_configs(topic)["retention.ms"] == "604800000"
    assert "InvalidConfigurationException" in kafka(
        "configs", *of_topic, "--alter", "--add-config", "max.message.bytes=many", code=1
    )
    of_broker = ("--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    assert re.search(r"^  log.retention.hours=168 ", kafka("configs", *of_broker), re.MULTILINE)


def test_offsets_and_deletion(kafka: Tool, new_topic: NewTopic, admin: LibrdkafkaClient, tmp_path: Path) -> None:
    topic = new_topic(partitions=2)
    admin.produce(topic, [Sent(b"x", partition=number % 2) for number in range(20)])
    wish = tmp_path / "offsets.json"
    wish.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 1, "offset": 4}]}))
    said = kafka("delete-records", "--offset-json-file", str(wish))
    assert f"partition: {topic}-1\tlow_watermark: 4" in said
    assert kafka("get-offsets", "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:0", f"{topic}:1:4"]
    assert kafka("get-offsets", "--topic", topic).split() == [f"{topic}:0:10", f"{topic}:1:10"]


def test_log_dirs_and_versions(kafka: Tool, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=2)
    admin.produce(topic, [Sent(b"x" * 1000, partition=1)] * 20)
    told = json.loads(kafka("log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    ((log_dir,),) = [broker["logDirs"] for broker in told["brokers"]]
    sizes = {row["partition"]: row["size"] for row in log_dir["partitions"]}
    assert log_dir["error"] is None
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert sizes[f"{topic}-1"] > 20_000
    versions = kafka("broker-api-versions")
    for name in ("Produce(0)", "Fetch(1)", "JoinGroup(11)", "DescribeGroups(15)", "ApiVersions(18)"):
        assert re.search(rf"\t{re.escape(name)}: \d+ to \d+ \[usable: \d+\]", versions), name


def test_performance_tools(kafka: Tool, bootstrap: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=2)
    size = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    said = kafka("producer-perf-test", "--topic", topic, *size, "--producer-props", f"bootstrap.servers={bootstrap}")
    assert re.search(r"^20000 records sent, [0-9.]+ records/sec", said, re.MULTILINE)
    assert sum(admin.bounds(topic, partition)[1] for partition in range(2)) == 20_000
    said = kafka("consumer-perf-test", "--topic", topic, "--num-records", "20000", "--timeout", "20000")
    names, numbers = (line.split(", ") for line in said.splitlines())
    assert dict(zip(names, numbers, strict=True))["data.consumed.in.nMsg"] == "20000"


def test_verifiable_tools(kafka: Tool, new_topic: NewTopic, free_name: str) -> None:
    topic, count = new_topic(partitions=3), 3000
    size = ("--topic", topic, "--max-messages", str(count))
    produced = events(kafka("verifiable-producer", *size, "--throughput", "-1", "--acks", "-1"))
    assert [(event["sent"], event["acked"]) for event in produced if event["name"] == "tool_data"] == [(count, count)]
    acked = {(event["partition"], event["offset"]) for event in produced if event["name"] == "producer_send_success"}
    assert len(acked) == count
    consumed = events(kafka("verifiable-consumer", *size, "--group-id", free_name, "--reset-policy", "earliest"))
    assert sum(event["count"] for event in consumed if event["name"] == "records_consumed") == count  # type: ignore[misc]
    assert [event["success"] for event in consumed if event["name"] == "offsets_committed"].count(True) > 0
    # It is done before its JVM ends, whose hook asks it to stop: since 4.3 it says so too, behind that.
    assert {event["name"] for event in consumed[-2:]} == {"shutdown_complete", "shutdown_requested"}


def test_consumer_groups(
    kafka: Tool, bootstrap: str, free_name: str, new_topic: NewTopic, admin: LibrdkafkaClient
) -> None:
    topic, group = new_topic(partitions=2), free_name
    of_group, whole = ("--group", group), ("--topic", topic)
    stage = Stage("librdkafka", bootstrap)
    try:
        admin.produce(topic, [Sent(b"%d" % number, partition=number % 2) for number in range(20)])
        member = stage.join(group, topic)
        wait_until(lambda: len(member.records) == 20, SECONDS, "20 records")
        wait_until(lambda: admin.committed(group, topic, 1) == 10, SECONDS, "the commit")
        admin.produce(topic, [Sent(b"late", partition=1)] * 5)
        wait_until(lambda: admin.committed(group, topic, 1) == 15, SECONDS, "the next commit")

        (active,) = rows(kafka("consumer-groups", "--describe", *of_group, "--members"))
        assert (active["GROUP"], active["#PARTITIONS"]) == (group, "2")
        assert active["HOST"] == "/127.0.0.1"
        said = kafka("consumer-groups", *of_group, *whole, "--reset-offsets", "--to-earliest", "--execute")
        assert "is inactive, but the current state is Stable" in said
        assert "GroupNotEmptyException" in kafka("consumer-groups", "--delete", *of_group)
        assert admin.committed(group, topic, 1) == 15
    finally:
        stage.close()

    (state,) = rows(kafka("consumer-groups", "--describe", *of_group, "--state"))
    assert "Empty" in state.values()
    planned = rows(kafka("consumer-groups", *of_group, *whole, "--reset-offsets", "--shift-by", "-3", "--dry-run"))
    assert {(row["PARTITION"], row["NEW-OFFSET"]) for row in planned} == {("0", "7"), ("1", "12")}
    assert admin.committed(group, topic, 1) == 15
    kafka("consumer-groups", *of_group, *whole, "--reset-offsets", "--shift-by", "-3", "--execute")
    described = rows(kafka("consumer-groups", "--describe", *of_group))
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in described} == {
        ("0", "7", "10", "3"),
        ("1", "12", "15", "3"),
    }
    assert group in kafka("consumer-groups", "--list").splitlines()
    assert "was successful" in kafka("consumer-groups", "--delete", *of_group)
    assert admin.committed(group, topic, 1) is None
    assert "GroupIdNotFoundException" in kafka("consumer-groups", "--delete", *of_group)
