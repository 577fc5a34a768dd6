"""Commands that administer: topic sizes, settings, transactions, offsets, disks, live tables, completion."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker_process import CAIRN, Broker
from cairnmq.cli.completion import SHELLS
from interop.shell import SECONDS, Shell
from programs import require_program


def test_topics_with_sizes_in_natural_order(cairn: Shell, free_name: str) -> None:
    names = [f"{free_name}-{number}" for number in (2, 10, 1)]
    cairn("topic", "create", *names, "-p", "2")
    cairn("produce", names[1], "-p", "0", stdin=b"x" * 5000 + b"\n")
    cairn("produce", names[2], "-p", "1", stdin=b"x\ny\n")
    pattern = f"{free_name}-*"

    def listed(*words: str) -> list[str]:
        return [line.split()[0].rpartition("-")[2] for line in cairn("topic", "list", pattern, *words).lines[1:]]

    assert listed() == ["1", "2", "10"]
    assert listed("--sort", "messages") == ["1", "10", "2"]
    assert listed("--sort", "size") == ["10", "1", "2"]
    rows = {row["name"]: row for row in json.loads(cairn("topic", "list", pattern, "--json").out)}
    assert (rows[names[1]]["messages"], rows[names[2]]["messages"], rows[names[0]]["messages"]) == (1, 2, 0)
    assert rows[names[1]]["bytes"] > 5000 > rows[names[2]]["bytes"] > rows[names[0]]["bytes"] == 0
    assert cairn("topic", "list", pattern, "-q").lines == sorted(names, key=lambda name: int(name.rpartition("-")[2]))
    assert "no topic matches" in cairn("topic", "list", f"{free_name}-none-*").errors


def test_settings_of_brokers(cairn: Shell) -> None:
    before = cairn("config", "get", "message.max.bytes").lines
    try:
        cairn("config", "set", "message.max.bytes=2000000")
        assert cairn("config", "get", "message.max.bytes").lines == ["2000000"]
        (row,) = [line.split() for line in cairn("config", "list").lines if line.startswith("message.max.bytes")]
        assert row == ["message.max.bytes", "2000000", "set", "for", "all", "brokers", "any", "time"]
        cairn("config", "set", "message.max.bytes=3000000", "--broker", "1")
        (told,) = json.loads(cairn("config", "get", "message.max.bytes", "--json", "--broker", "1").out)
        assert (told["value"], told["source"], told["dynamic"]) == ("3000000", "set for this broker", True)
        cairn("config", "unset", "message.max.bytes", "--broker", "1")
        assert cairn("config", "get", "message.max.bytes").lines == ["2000000"]
    finally:
        cairn("config", "unset", "message.max.bytes")
    assert cairn("config", "get", "message.max.bytes").lines == before
    assert cairn("config", "get", "num.partitions", "message.max.bytes").lines[0] == "num.partitions=1"
    retention = {line.split()[0] for line in cairn("config", "list", "log.retention.*").lines[1:]}
    assert {"log.retention.bytes", "log.retention.ms"} <= retention
    assert len(cairn("config", "list", "--all").lines) > 80
    assert "did you mean num.partitions?" in cairn("config", "get", "num.partition", code=2).errors
    assert (
        "start the broker with --set num.partitions=VALUE" in cairn("config", "set", "num.partitions=2", code=2).errors
    )
    assert "there is no broker 7; `cairn cluster info`" in cairn("config", "list", "--broker", "7", code=2).errors
    refused = cairn("config", "set", "log.retention.ms=soon", code=1).errors
    assert refused.startswith("cairn: all brokers: Invalid value 'soon' for log.retention.ms")


def test_transactions(cairn: Shell, topic: str, free_name: str) -> None:
    producer = Producer({"bootstrap.servers": cairn.environment["CAIRN_BOOTSTRAP"], "transactional.id": free_name})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"never", partition=1)
    producer.flush(SECONDS)
    listed = {row["transactional_id"]: row for row in json.loads(cairn("txn", "list", "--open", "--json").out)}
    assert listed[free_name]["state"] == "Ongoing"
    assert any(line.split()[:2] == [free_name, "Ongoing"] for line in cairn("txn", "list").lines)
    assert free_name in [line.split()[0] for line in cairn("txn", "list", "--state", "ongoing").lines]
    assert "unknown state 'open': use Empty, Ongoing, " in cairn("txn", "list", "--state", "open", code=2).errors
    (described,) = json.loads(cairn("txn", "describe", free_name, "--json").out)
    assert described["partitions"] == [{"topic": topic, "partition": 1}] and described["start_ms"] > 0
    assert f"{topic}          1" in cairn("txn", "describe", free_name).out.decode()
    assert cairn("consume", topic, "-o", "start", "-e", "--read-committed").lines == []

    assert cairn("txn", "abort", free_name).errors == f"aborted {free_name}\n"
    with pytest.raises(Exception, match="fenced|PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        producer.commit_transaction(SECONDS)
    assert free_name not in {
        row["transactional_id"] for row in json.loads(cairn("txn", "list", "--open", "--json").out)
    }
    assert cairn("consume", topic, "-o", "start", "-e").lines == ["never"]
    assert cairn("consume", topic, "-o", "start", "-e", "--read-committed").lines == []
    assert "has no open transaction" in cairn("txn", "abort", free_name, code=1).errors
    assert "`cairn txn list` shows existing ones" in cairn("txn", "abort", "nobody", code=1).errors


def test_offsets_of_one_topic_are_deleted(cairn: Shell, topic: str, free_name: str) -> None:
    cairn("topic", "create", free_name)
    for name in (topic, free_name):
        cairn("produce", name, "-p", "0", stdin=b"x\n")
    group = f"group-of-{free_name}"
    cairn("consume", topic, free_name, "-g", group, "-o", "start", "-e")
    (before,) = json.loads(cairn("group", "describe", group, "--json").out)
    assert {row["topic"] for row in before["offsets"]} == {topic, free_name}
    assert cairn("group", "offsets", "delete", group, "-t", f"{topic}:0,2").errors.count("deleted the offset in") == 2
    (left,) = json.loads(cairn("group", "describe", group, "--json").out)
    assert [(row["topic"], row["partition"]) for row in left["offsets"]] == sorted([(topic, 1), (free_name, 0)])
    cairn("group", "offsets", "delete", group, "-t", free_name)
    assert f"no offset in {free_name}" in cairn("group", "offsets", "delete", group, "-t", free_name, code=1).errors
    reading = cairn.start("consume", topic, "-g", group, "-o", "start")
    try:
        assert reading.stdout
        assert reading.stdout.readline() == b"x\n"
        refused = cairn("group", "offsets", "delete", group, "-t", f"{topic}:1", code=1).errors
        assert "a member of the group reads that topic; stop it first" in refused
    finally:
        reading.kill()
        reading.wait()


def test_disks(cairn: Shell, topic: str, shared_broker: Broker) -> None:
    cairn("produce", topic, stdin=b"x" * 3000 + b"\n")
    (told,) = json.loads(cairn("cluster", "disks", "--json").out)
    assert (told["path"], told["error"]) == (str(shared_broker.data), None)
    assert 0 < told["usable_bytes"] <= told["total_bytes"] and told["topics"][topic] > 3000
    shown = cairn("cluster", "disks", "--topics").out.decode()
    assert str(shared_broker.data) in shown and topic in shown and "KiB" in shown


def test_a_live_table_at_a_terminal(cairn: Shell, topic: str, replicas: int) -> None:
    with cairn.at_terminal("topic", "list", topic, "--watch", "0.1") as page:
        page.wait_for("\x1b[1mNAME")
        cairn("produce", topic, stdin=b"x\n" * 77)
        page.wait_for(f"{topic}           3         {replicas}        77")
        page.process.send_signal(signal.SIGINT)
        assert page.process.wait(SECONDS) == 130
    with cairn.at_terminal("topic", "list", topic, NO_COLOR="1") as page:
        page.wait_for(f"{topic} ")
        assert "\x1b" not in page.shown
    with cairn.at_terminal("cluster", "health") as page:
        page.wait_for("\x1b[32mhealthy")
    assert "--watch needs a terminal" in cairn("topic", "list", "--watch", code=2).errors


def test_a_live_table_outlives_the_broker(cairn: Shell) -> None:
    with cairn.at_terminal("cluster", "health", "-b", "127.0.0.1:1", "--watch", "0.1") as page:
        page.wait_for("cannot reach 127.0.0.1:1", times=2)
    with cairn.at_terminal("topic", "list", "-b", "127.0.0.1:1", "--watch", "0.1") as page:
        page.wait_for("cannot reach 127.0.0.1:1", times=2)


def ask_shell(shell: str, script: str, line: str, environment: dict[str, str]) -> list[str]:
    """What a shell offers for the last word of a line."""
    words = line.split(" ")
    if shell == "bash":
        quoted = " ".join(f"'{word}'" for word in words)
        script += f"\nCOMP_LINE='{line}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _cairn\n"
        script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    elif shell == "zsh":
        # compadd works only inside a completion, so its words are caught.
        quoted = " ".join(f"'{word}'" for word in words)
        script = f'compdef() {{ :; }}; compadd() {{ shift; printf "%s\\n" "$@"; }}\n{script}\n'
        script += f"words=({quoted}); CURRENT={len(words)}; _cairn"
    else:
        script += f'\ncomplete -C "{line}"'
    done = subprocess.run(
        [shell, "-s"] if shell != "fish" else [shell],
        input=script,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment,
        cwd="/",
    )
    offered = [line.split("\t")[0] for line in done.stdout.splitlines()]
    return [word for word in offered if word.startswith(words[-1])]


@pytest.mark.parametrize("shell", SHELLS)
def test_names_complete(cairn: Shell, topic: str, shell: str) -> None:
    require_program(shell)
    group = f"group-of-{topic}"
    cairn("produce", topic, stdin=b"x\n")
    cairn("consume", topic, "-g", group, "-o", "start", "-e")
    script = cairn("completion", shell).out.decode()
    bootstrap = cairn.environment["CAIRN_BOOTSTRAP"]
    path = f"{Path(CAIRN).parent}:{os.environ['PATH']}"
    environment = {**cairn.environment, "PATH": path, "CAIRN_COMPLETION_SECONDS": str(SECONDS)}
    part = topic[:-2]
    for line in (f"cairn consume {part}", f"cairn topic describe -a {part}", f"cairn group reset g -t {part}"):
        assert topic in ask_shell(shell, script, line, environment), line
    for line in (f"cairn consume {topic} -g group-of-{part}", f"cairn group describe group-of-{part}"):
        assert group in ask_shell(shell, script, line, environment), line
    assert ask_shell(shell, script, "cairn config get num.part", environment) == ["num.partitions"]

    away = {**environment, "CAIRN_BOOTSTRAP": "127.0.0.1:1"}
    assert topic in ask_shell(shell, script, f"cairn consume -b {bootstrap} {part}", away)
    assert topic not in ask_shell(shell, script, f"cairn consume {part}", away)


def test_names_are_silent_without_a_broker(cairn: Shell) -> None:
    for words in (["topics", "-b", "127.0.0.1:1"], ["groups", "-b", "nonsense:port"], ["nothing"], []):
        done = cairn("__complete", *words)
        assert (done.out if words != ["nothing"] else b"", done.errors) == (b"", "")
