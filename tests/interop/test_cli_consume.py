"""`cairn consume` and `cairn produce`: patterns, ends, filters, groups shared with other clients, a terminal."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from broker_process import Broker, wait_until
from interop.shell import SECONDS, Shell

PARTITIONS = 4


def test_several_topics_and_patterns(cairn: Shell, free_name: str) -> None:
    names = [f"{free_name}.{number}" for number in (2, 10)]
    for name in names:
        cairn("topic", "create", name)
        cairn("produce", name, stdin=f"of {name}\n".encode())
    expected = sorted(f"of {name}" for name in names)
    for words in (names, [f"{free_name}.*"], [f"^{free_name}\\.[0-9]+$"]):
        assert sorted(cairn("consume", *words, "-o", "start", "-e").lines) == expected
    assert cairn("consume", f"{free_name}.?", "-o", "start", "-e").lines == [f"of {names[0]}"]
    assert f"no topic matches {free_name}-none-*" in cairn("consume", f"{free_name}-none-*", code=1).errors
    assert "does not exist" in cairn("consume", names[0], f"{free_name}.3", code=1).errors


def test_a_pattern_finds_topics_that_come_later(cairn: Shell, free_name: str) -> None:
    cairn("produce", f"{free_name}.a", stdin=b"it reads\n")
    consumer = cairn.start("consume", f"{free_name}.a*", f"{free_name}.b*", "-o", "start")
    try:
        assert consumer.stdout
        assert consumer.stdout.readline() == b"it reads\n"
        cairn("produce", f"{free_name}.b", stdin=b"from the start\n")
        assert consumer.stdout.readline() == b"from the start\n"
    finally:
        consumer.kill()
        consumer.wait()


def test_until(cairn: Shell, topic: str) -> None:
    cairn("produce", topic, "-p", "0", stdin=b"a\nb\n")
    (last,) = cairn("consume", topic, "-p", "0", "-o", "-1", "-e", "-f", "%T").lines
    cairn("produce", topic, "-p", "0", stdin=b"c\nd\n")

    def read(until: str, *more: str) -> str:
        return "".join(cairn("consume", topic, "-p", "0", "-o", "start", "--until", until, *more).lines)

    assert (read("end"), read("3"), read("+1"), read("-1"), read("start")) == ("abcd", "abc", "a", "abc", "")
    assert read(f"@{int(last) + 1}") == "ab"
    assert read("@2099-01-01T00:00:00Z", "-n", "3") == "abc"
    waiting = cairn.start("consume", topic, "-p", "0", "-o", "start", "--until", "5")
    try:
        assert waiting.stdout
        assert waiting.stdout.readline() == b"a\n"
        cairn("produce", topic, "-p", "0", stdin=b"e\nf\n")
        assert waiting.stdout.read() == b"b\nc\nd\ne\n"
        assert waiting.wait(SECONDS) == 0
    finally:
        waiting.kill()
        waiting.wait()


def test_until_a_time_that_comes_while_it_reads(cairn: Shell, topic: str) -> None:
    cairn("produce", topic, "-p", "0", stdin=b"a\n")
    soon = int(time.time() * 1000) + 1500
    assert cairn("consume", topic, "-o", "start", "--until", f"@{soon}").lines == ["a"]
    assert time.time() * 1000 >= soon


def test_grep(cairn: Shell, topic: str) -> None:
    cairn("produce", topic, "-K", ":", "-p", "0", stdin=b"alice:1 apple\nbob:2 pears\ncarol:10 apples\nno key\n")

    def read(*words: str) -> list[str]:
        return cairn("consume", topic, "-o", "start", "-e", *words).lines

    assert read("--grep", "a[lr]") == ["1 apple", "2 pears", "10 apples"]
    assert read("--grep-key", "^.o") == ["2 pears"]
    assert read("--grep-value", "apple$") == ["1 apple"]
    assert read("--grep", "apple", "--grep-key", "c") == ["1 apple", "10 apples"]
    assert read("--grep", "apple", "-n", "1") == ["1 apple"]
    assert read("--grep-key", "") == ["1 apple", "2 pears", "10 apples"]


def test_json_tombstones_and_delimiters(cairn: Shell, topic: str) -> None:
    cairn("produce", topic, "-K", ":", "-Z", "-p", "0", stdin=b"k:v\nk:\n")
    printed = cairn("consume", topic, "-o", "start", "-e", "--json").out
    assert [json.loads(line)["value"] for line in printed.splitlines()] == ["v", None]
    cairn("produce", topic, "--json", "-p", "1", stdin=printed)
    again = cairn("consume", topic, "-p", "1", "-o", "start", "-e", "--json").out
    assert again == printed.replace(b'"partition":0', b'"partition":1')
    cairn("produce", topic, "-D", ";", "-p", "2", stdin=b"one;two\nlines;\n")
    assert cairn("consume", topic, "-p", "2", "-o", "start", "-e", "-f", "%v|").out == b"one|two\nlines|"
    wrong = cairn("produce", topic, "--json", "-p", "2", stdin=b'{"value": 1}\nnonsense\n{"value": 2}\n', code=1)
    assert "line 2: not JSON: invalid" in wrong.errors and "the message before it was sent" in wrong.errors
    assert cairn("consume", topic, "-p", "2", "-o", "2", "-e").lines == ["1"]
    wrong = cairn("produce", topic, "--json", stdin=b'{"kye": "k", "value": 1}\n', code=1)
    assert 'line 1: it has an unknown field "kye" (did you mean "key"?); nothing was sent' in wrong.errors


@contextmanager
def other_member(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "group.protocol": protocol,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def assigned(consumer: Consumer, read: list[str]) -> int:
    """How many partitions it has after another poll; what it reads is gathered."""
    message = consumer.poll(0.2)
    if message is not None:
        assert message.error() is None, message.error()
        read.append((message.value() or b"").decode())
    return len(consumer.assignment())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_shared_with_another_client(make_broker: Callable[..., Broker], protocol: str) -> None:
    broker = make_broker(settings={"group.initial.rebalance.delay.ms": "0"}).start()
    cairn = Shell(broker.bootstrap)
    cairn("topic", "create", "shared", "-p", str(PARTITIONS))
    ours = cairn.start("consume", "shared", "-g", "team", "-o", "start")
    read: list[str] = []
    try:
        with other_member(broker.bootstrap, "team", "shared", protocol) as other:
            half = PARTITIONS // 2
            wait_until(lambda: assigned(other, read) == half and readers(cairn, "team") == 2, SECONDS, "half for each")
            sent = [str(number) for number in range(400)]
            for partition in range(PARTITIONS):
                part = "\n".join(sent[partition::PARTITIONS])
                cairn("produce", "shared", "-p", str(partition), stdin=part.encode())
            wait_until(
                lambda: assigned(other, read) and len(read) >= len(sent) // 2, SECONDS, "its half of the messages"
            )
            ours.send_signal(signal.SIGINT)
            out, errors = ours.communicate(timeout=SECONDS)
            assert (ours.returncode, errors) == (130, b"")
            printed = out.decode().split()
            assert len(printed) == len(set(printed)) == len(sent) // 2 and sorted(printed + read) == sorted(sent)
            wait_until(lambda: assigned(other, read) == PARTITIONS, SECONDS, "the partitions of the one that left")
            assert sorted(printed + read) == sorted(sent), "what it printed is committed"
    finally:
        ours.kill()
        ours.wait()
    (found,) = json.loads(cairn("group", "describe", "team", "--json").out)
    assert found["lag"] == 0


def readers(cairn: Shell, group: str) -> int:
    """Members that have partitions; none while nobody has joined."""
    describe = cairn.start("group", "describe", group, "--json")
    out, _ = describe.communicate(timeout=SECONDS)
    if describe.returncode:
        return 0
    (found,) = json.loads(out)
    return len({row["member_id"] for row in found["offsets"] if row["member_id"]})


def test_two_of_ours_share_a_group_until_one_leaves(cairn: Shell, topic: str) -> None:
    group = f"group-of-{topic}"
    arguments = ("consume", topic, "-g", group, "-o", "start", "-f", r"%p\n")
    first, second = cairn.start(*arguments), cairn.start(*arguments)
    try:
        wait_until(lambda: readers(cairn, group) == 2, SECONDS, "two members with partitions")
        first.send_signal(signal.SIGINT)
        assert first.wait(SECONDS) == 130
        for partition in ("0", "1", "2"):
            cairn("produce", topic, "-p", partition, stdin=b"x\n")
        assert second.stdout
        assert {second.stdout.readline() for _ in range(3)} == {b"0\n", b"1\n", b"2\n"}
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


def test_sigterm_commits_and_leaves_as_ctrl_c_does(cairn: Shell, topic: str) -> None:
    """As `docker stop` sends it, and `timeout` twice. Its partitions stood still until its session ended."""
    group = f"group-of-{topic}"
    cairn("produce", topic, "-p", "0", stdin=b"x\n")
    consumer = cairn.start("consume", topic, "-g", group, "-o", "start")
    try:
        assert consumer.stdout
        assert consumer.stdout.readline() == b"x\n"
        for _ in range(2):
            consumer.terminate()
        assert consumer.communicate(timeout=SECONDS) == (b"", b"")
        assert consumer.returncode == 128 + signal.SIGTERM
    finally:
        consumer.kill()
        consumer.wait()
    (found,) = json.loads(cairn("group", "describe", group, "--json").out)
    assert found["members"] == 0 and found["lag"] == 0, found


def test_a_member_without_partitions_does_not_wait_for_ever(cairn: Shell, topic: str) -> None:
    group = f"group-of-{topic}"
    holders = [cairn.start("consume", topic, "-g", group) for _ in range(3)]
    try:
        wait_until(lambda: readers(cairn, group) == 3, SECONDS, "a partition for each")
        late = cairn("consume", topic, "-g", group, "-e")
        assert late.out == b"" and "gave this member no partitions" in late.errors
    finally:
        for process in holders:
            process.kill()
            process.wait()


def test_hints_at_a_terminal(cairn: Shell, topic: str) -> None:
    with cairn.at_terminal("consume", topic) as consumer, cairn.at_terminal("produce", topic) as producer:
        consumer.wait_for(f"waiting for new messages in {topic}; -o start reads from the beginning")
        producer.wait_for(f"one message to {topic} for each line; Ctrl-D ends")
        producer.type("hello\n")
        consumer.wait_for("\r\x1b[Khello")
        producer.type("\x04")
        producer.wait_for(f"1 message to {topic}")
        assert producer.process.wait(SECONDS) == 0


def test_hints_are_about_what_was_asked_for(cairn: Shell, topic: str, free_name: str) -> None:
    cairn("produce", topic, stdin=b"one\ntwo\n")
    waiting = f"waiting for new messages in {topic}"
    for words, hint in [
        (["-o", "start"], f"{waiting}; Ctrl-C stops"),
        (["-g", free_name], f"{waiting}; Ctrl-C stops"),
        (["-o", "start", "--grep", "^t"], f"{waiting} (1 of 2 read so far match); Ctrl-C stops"),
    ]:
        with cairn.at_terminal("consume", topic, *words) as consumer:
            consumer.wait_for(hint)


def test_no_hints_in_a_script(cairn: Shell, topic: str) -> None:
    consumer = cairn.start("consume", topic, "-o", "start")
    try:
        assert consumer.stdout
        assert cairn("produce", topic, stdin=b"x\n").errors.count("\n") == 1
        assert consumer.stdout.readline() == b"x\n"
        consumer.send_signal(signal.SIGINT)
        assert consumer.communicate(timeout=SECONDS)[1] == b""
    finally:
        consumer.kill()
        consumer.wait()
