"""`cairn group` against a real broker: what it prints, what it changes, and the exit code that scripts rely on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from broker_process import Broker, wait_until
from cairnmq.cli.main import main
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.codec.records import Record, build_batch
from cairnmq.types import TopicPartition

DAY_MS = 86_400_000
Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Topic orders: partition 0 holds offsets 0-9, one a day from 2026-01-01 on; 1 holds 0-2; 2 is empty."""
    directory: Path = tmp_path_factory.mktemp("group")
    broker = Broker(directory, settings={"group.initial.rebalance.delay.ms": "0"}).start()
    with Client.connect(broker.bootstrap) as client:
        client.create_topics([NewTopic("orders", 3), NewTopic("audit", 1)])
        first_ms = 1_767_225_600_000
        for partition, count in ((0, 10), (1, 3)):
            for number in range(count):
                client.produce("orders", partition, build_batch([Record(0, first_ms + number * DAY_MS, None, b"v")]))
    yield broker
    broker.stop()


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client.connect(broker.bootstrap) as client:
        yield client
        client.delete_groups([listed.group for listed in client.list_groups()])


@pytest.fixture
def cairn(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `cairn group ...`; the lines on stdout, or on stderr if it fails as expected."""

    def run(*words: str, code: int = 0) -> list[str]:
        got = main(["group", *words, "-b", broker.bootstrap])
        said = capsys.readouterr()
        assert got == code, said.err
        return (said.err if code else said.out).splitlines()

    return run


def commit(client: Client, group: str, *offsets: int, topic: str = "orders") -> None:
    client.offset_commit(group, {TopicPartition(topic, index): offset for index, offset in enumerate(offsets)})


def committed(client: Client, group: str) -> dict[str, int]:
    return {str(place): offset for place, offset in sorted(client.offset_fetch(group).items(), key=str)}


@pytest.fixture
def member(broker: Broker) -> Iterator[Consumer]:
    """A consumer in group `live`, with all of orders."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "live", "client.id": "reader"})
    consumer.subscribe(["orders"])

    def assigned() -> bool:
        consumer.poll(0.05)
        return len(consumer.assignment()) == 3

    wait_until(assigned, 20, "an assignment")
    yield consumer
    consumer.close()


def test_list(client: Client, cairn: Run) -> None:
    assert cairn("list") == []
    commit(client, "b", 1)
    commit(client, "a", 1)
    assert [line.split() for line in cairn("list")] == [
        ["GROUP", "STATE", "TYPE", "PROTOCOL"],
        ["a", "Empty", "classic", "-"],
        ["b", "Empty", "classic", "-"],
    ]
    assert json.loads("".join(cairn("list", "--json")))[0] == {
        "group": "a", "protocol_type": "", "state": "Empty", "type": "classic"
    }  # fmt: skip


def test_list_by_state_and_type(client: Client, cairn: Run, member: Consumer) -> None:
    commit(client, "idle", 1)
    assert [line.split()[0] for line in cairn("list", "--state", "stable")[1:]] == ["live"]
    assert [line.split()[0] for line in cairn("list", "--state", "Empty", "--state", "Stable")[1:]] == ["idle", "live"]
    assert [line.split()[0] for line in cairn("list", "--type", "classic", "--state", "Empty")[1:]] == ["idle"]
    assert cairn("list", "--type", "share") == []


def test_describe_a_group_without_members(client: Client, cairn: Run) -> None:
    commit(client, "g", 4, 3)
    assert [line.split() for line in cairn("describe", "g")] == [
        ["group", "g"],
        ["state", "Empty"],
        ["coordinator", "1"],
        ["type", "classic"],
        ["protocol", "-"],
        ["members", "0"],
        ["lag", "6"],
        [],
        ["TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "MEMBER", "CLIENT", "HOST"],
        ["orders", "0", "4", "0", "10", "6", "-", "-", "-"],
        ["orders", "1", "3", "0", "3", "0", "-", "-", "-"],
    ]


def test_describe_a_group_with_members(client: Client, cairn: Run, member: Consumer) -> None:
    (told,) = json.loads("".join(cairn("describe", "live", "--json")))
    rows = told.pop("offsets")
    assert told == {
        "group": "live", "coordinator": 1, "state": "Stable", "protocol_type": "consumer", "protocol": "range",
        "members": 1, "lag": 0, "type": "classic",
    }  # fmt: skip
    assert [(row["topic"], row["partition"], row["committed"], row["end"], row["lag"]) for row in rows] == [
        ("orders", 0, None, 10, None),
        ("orders", 1, None, 3, None),
        ("orders", 2, None, 0, None),
    ]
    assert {(row["client_id"], row["host"]) for row in rows} == {("reader", "127.0.0.1")}
    assert all(row["member_id"].startswith("reader-") for row in rows)
    assert cairn("describe", "live")[9].split()[2] == "-", "no committed offset is no zero"


def test_describe_a_group_of_the_consumer_protocol(client: Client, cairn: Run, broker: Broker) -> None:
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "new", "group.protocol": "consumer"})
    try:
        member.subscribe(["orders"])
        for _ in range(100):
            member.poll(0.1)
            if member.assignment():
                break
        (told,) = json.loads("".join(cairn("describe", "new", "--json")))
        rows = told.pop("offsets")
        assert (told["type"], told["state"], told["protocol"], told["members"]) == ("consumer", "Stable", "uniform", 1)
        assert [(row["topic"], row["partition"]) for row in rows] == [("orders", n) for n in range(3)]
        assert len({row["member_id"] for row in rows}) == 1
        assert [line.split()[:3] for line in cairn("list", "--type", "consumer")[1:]] == [["new", "Stable", "consumer"]]
    finally:
        member.close()


def test_describe_several_and_one_that_is_not_there(client: Client, cairn: Run) -> None:
    commit(client, "a", 1)
    commit(client, "b", 1)
    assert [line.split()[1] for line in cairn("describe", "a", "b") if line.startswith("group")] == ["a", "b"]
    assert cairn("describe", "a", "nothing", code=1) == [
        "cairn: group nothing does not exist; `cairn group list` shows existing groups (GROUP_ID_NOT_FOUND)"
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], {"orders-0": 0, "orders-1": 0}),
        (["--to-latest"], {"orders-0": 10, "orders-1": 3}),
        (["--to-offset", "2"], {"orders-0": 2, "orders-1": 2}),
        (["--to-datetime", "2026-01-02T12:00:00Z"], {"orders-0": 2, "orders-1": 2}),
        (["--to-datetime", "2026-01-05T00:00:00Z"], {"orders-0": 4, "orders-1": 3}),
        (["--to-datetime", "1767225600000"], {"orders-0": 0, "orders-1": 0}),
        (["--shift-by", "1"], {"orders-0": 6, "orders-1": 2}),
        (["--shift-by", "-1"], {"orders-0": 4, "orders-1": 0}),
        (["--to-earliest", "-t", "orders:0"], {"orders-0": 0, "orders-1": 1}),
        (["--to-latest", "-t", "orders:1-2"], {"orders-0": 5, "orders-1": 3, "orders-2": 0}),
        (["--to-latest", "-t", "audit"], {"audit-0": 0, "orders-0": 5, "orders-1": 1}),
        (["--to-earliest", "-t", "audit", "-t", "orders:0"], {"audit-0": 0, "orders-0": 0, "orders-1": 1}),
    ],
)
def test_reset(client: Client, cairn: Run, options: list[str], expected: dict[str, int]) -> None:
    commit(client, "g", 5, 1)
    before = committed(client, "g")
    preview = cairn("reset", "g", *options, "--dry-run")
    assert committed(client, "g") == before, "a dry run changes nothing"
    assert cairn("reset", "g", *options) == preview
    assert committed(client, "g") == expected


def test_what_reset_prints(client: Client, cairn: Run) -> None:
    commit(client, "g", 5)
    assert [line.split() for line in cairn("reset", "g", "-t", "orders:0,2", "--to-latest", "--dry-run")] == [
        ["TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET"],
        ["orders", "0", "5", "10"],
        ["orders", "2", "-", "0"],
    ]
    assert json.loads("".join(cairn("reset", "g", "--to-earliest", "--json"))) == [
        {"topic": "orders", "partition": 0, "old_offset": 5, "new_offset": 0}
    ]


def test_an_offset_that_is_not_there_becomes_the_nearest(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(client, "g", 5, 1)
    assert main(["group", "reset", "g", "--to-offset", "7", "-b", broker.bootstrap]) == 0
    assert "orders-1 holds 0 to 3: 7 becomes 3" in capsys.readouterr().err
    assert committed(client, "g") == {"orders-0": 7, "orders-1": 3}


def test_reset_makes_a_group(client: Client, cairn: Run) -> None:
    cairn("reset", "new", "-t", "orders", "--to-latest")
    assert committed(client, "new") == {"orders-0": 10, "orders-1": 3, "orders-2": 0}


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_a_group_with_members_is_not_reset(cairn: Run, client: Client, member: Consumer, dry: list[str]) -> None:
    assert cairn("reset", "live", "-t", "orders", "--to-earliest", *dry, code=1) == [
        "cairn: group live has members; stop them first (NON_EMPTY_GROUP)"
    ]
    assert committed(client, "live") == {}


def test_resets_that_cannot_be(client: Client, cairn: Run) -> None:
    assert "no offsets; name topics" in cairn("reset", "none", "--to-latest", code=2)[0]
    assert "no committed offset to shift" in cairn("reset", "none", "-t", "orders:0", "--shift-by", "1", code=2)[0]
    assert "does not exist" in cairn("reset", "none", "-t", "nowhere", "--to-latest", code=1)[0]
    assert "partition 9 does not exist" in cairn("reset", "none", "-t", "orders:9", "--to-latest", code=1)[0]
    assert client.list_groups() == []


@pytest.mark.parametrize(
    "words",
    [
        ["reset", "g"],
        ["reset", "g", "--to-latest", "--to-earliest"],
        ["reset", "g", "--to-offset", "-5"],
        ["reset", "g", "--to-datetime", "yesterday"],
        ["reset", "g", "--shift-by", "far"],
        ["reset", "g", "--to-latest", "-t", ":1"],
        ["delete"],
        ["promote", "g"],
    ],
)
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["group", *words])
    assert stopped.value.code == 2
    assert "See `cairn group" in capsys.readouterr().err


def test_delete(client: Client, cairn: Run, member: Consumer) -> None:
    commit(client, "a", 1)
    assert cairn("delete", "a") == []
    assert [listed.group for listed in client.list_groups()] == ["live"]
    commit(client, "b", 1)
    assert cairn("delete", "live", "b", "a", code=1) == [
        "cairn: group live has members; stop them first (NON_EMPTY_GROUP)",
        "deleted b",
        "cairn: group a does not exist; `cairn group list` shows existing groups (GROUP_ID_NOT_FOUND)",
    ]
    assert [listed.group for listed in client.list_groups()] == ["live"]
