"""The consumer protocol of KIP-848 as each client lives in it, and groups that change over to it and back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from broker_process import Broker, wait_until
from conftest import QUICK_GROUPS
from interop.clients.contract import Client, Sent
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.members import SECONDS, Member, Stage
from interop.clients.process import PROGRAMS_DIR
from interop.test_groups import (
    BELOW_DEFAULT_SECONDS,
    PARTITIONS,
    assert_no_double_owner,
    committed,
    names,
    seen,
    spread,
    steady_load,
    wait_seen,
    wait_shared,
)
from interop.test_tools import CLASSES, rows
from programs import require_program

SESSION_MS = 4_000
QUICK = {
    **QUICK_GROUPS,
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
NEEDS = ["consumer protocol"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, broker_kind: type[Broker]) -> Iterator[Broker]:
    """Sessions and heartbeats are the broker's to set, so these tests have one of their own."""
    made = broker_kind(tmp_path_factory.mktemp("consumer-protocol"), settings=QUICK)
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def admin(broker: Broker) -> LibrdkafkaClient:
    return LibrdkafkaClient(broker.bootstrap)


@pytest.fixture
def stage(client: Client, broker: Broker) -> Iterator[Stage]:
    made = Stage(client.name, broker.bootstrap)
    yield made
    made.close()


@pytest.fixture
def topic(free_name: str, admin: LibrdkafkaClient) -> str:
    admin.create_topic(free_name, PARTITIONS)
    return free_name


@pytest.fixture
def group(free_name: str) -> str:
    return f"group-{free_name}"


def kind_of(admin: LibrdkafkaClient, group: str) -> tuple[str, str]:
    """(state, type) as the broker tells it."""
    found = admin.admin.describe_consumer_groups([group])[group].result()
    return found.state.name, found.type.name


def wait_kind(admin: LibrdkafkaClient, group: str, state: str, kind: str) -> None:
    wait_until(lambda: kind_of(admin, group) == (state, kind), SECONDS, f"{group} to be {state} and {kind}")


@pytest.mark.case("KIP-848: members join and leave one by one: every record once, none owned twice", needs=NEEDS)
def test_consumer_protocol(stage: Stage, group: str, topic: str, admin: LibrdkafkaClient) -> None:
    members: list[Member] = []
    for n in range(3):
        members.append(stage.join(group, topic, protocol="consumer"))
        wait_shared(topic, PARTITIONS, *members)
        admin.produce(topic, spread(60, first=60 * n))
        wait_seen(names(60 * (n + 1)), *members)
    wait_kind(admin, group, "STABLE", "CONSUMER")
    members[0].leave()
    wait_shared(topic, PARTITIONS, *members[1:])
    admin.produce(topic, spread(60, first=180))
    wait_seen(names(240), *members)
    assert seen(*members).total() == 240
    assert_no_double_owner(*members)
    for member in members[1:]:
        member.leave()
    wait_kind(admin, group, "EMPTY", "CONSUMER")


@pytest.mark.case("KIP-848: a member is killed (kill -9): after its session the others own its partitions", needs=NEEDS)
def test_crashed_member(stage: Stage, group: str, topic: str, admin: LibrdkafkaClient) -> None:
    survivor = stage.join(group, topic, protocol="consumer")
    victim = stage.join(group, topic, protocol="consumer", host=stage.host())
    wait_shared(topic, PARTITIONS, survivor, victim)
    admin.produce(topic, spread(60))
    wait_seen(names(60), survivor, victim)
    stage.crash(victim)
    killed = time.monotonic()
    admin.produce(topic, spread(60, first=60))
    wait_shared(topic, PARTITIONS, survivor)
    assert time.monotonic() - killed < BELOW_DEFAULT_SECONDS, "not the session that was set"
    wait_seen(names(120), survivor, victim)
    again = {value for value, count in seen(survivor, victim).items() if count > 1}
    assert again <= set(victim.values), "only what the dead member had no time to commit may come again"


@pytest.mark.case(
    "KIP-848: a static member leaves and comes back in time: same partitions, no rebalance",
    needs=[*NEEDS, "static leave"],
)
def test_static_member_returns(stage: Stage, group: str, topic: str, admin: LibrdkafkaClient) -> None:
    stays = stage.join(group, topic, instance="stays", protocol="consumer")
    first = stage.join(group, topic, instance="returns", protocol="consumer")
    wait_shared(topic, PARTITIONS, stays, first)
    admin.produce(topic, spread(60))
    wait_seen(names(60), stays, first)
    moves, owned = list(stays.moves), set(first.owned)
    first.leave()
    admin.produce(topic, spread(60, first=60))
    second = stage.join(group, topic, instance="returns", protocol="consumer")
    second.wait_owning(len(owned))
    assert second.owned == owned
    wait_seen(names(120), stays, first, second)
    assert [move for move in stays.moves if move[2]] == [move for move in moves if move[2]], "a rebalance was seen"


@pytest.mark.case("KIP-848: hand-over under load: nothing that stays is given up, lost or owned twice", needs=NEEDS)
def test_hand_over(stage: Stage, group: str, topic: str, admin: LibrdkafkaClient) -> None:
    first = stage.join(group, topic, protocol="consumer")
    wait_shared(topic, PARTITIONS, first)
    with steady_load(admin, topic) as sent:
        second = stage.join(group, topic, protocol="consumer")
        wait_shared(topic, PARTITIONS, first, second)
        kept = set(first.owned)
        given = {place for _, event, places in first.moves if event == "revoked" for place in places}
        assert given == second.owned, "more was given up than the new member got"
    wait_seen(set(sent), first, second)
    assert_no_double_owner(first, second)
    for place in kept:
        mine = [record.offset for record in first.records if (record.topic, record.partition) == place]
        assert mine == list(range(len(mine))), "a partition that stayed was not read in one go"


@pytest.mark.case("KIP-848: a regular expression that the broker resolves; topics made and grown later", needs=NEEDS)
def test_server_pattern(stage: Stage, group: str, free_name: str, admin: LibrdkafkaClient) -> None:
    for name in (f"{free_name}.one", f"other.{free_name}"):
        admin.create_topic(name)
        admin.produce(name, [Sent(name.encode())])
    member = stage.join(group, pattern=f"^{free_name}[.].*", protocol="consumer")
    member.wait_owning(1)
    admin.create_topic(f"{free_name}.two", 2)
    member.wait_owning(3)
    admin.add_partitions(f"{free_name}.two", 4)
    member.wait_owning(5)
    admin.produce(f"{free_name}.two", spread(20, 4))
    wait_seen({f"{free_name}.one", *names(20)}, member)
    assert f"other.{free_name}" not in member.values


@pytest.mark.case("KIP-848: group, members and commits survive a kill -9 of the broker", needs=NEEDS)
def test_broker_dies(client: Client, group: str, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(settings=QUICK).start()
    broker_admin = LibrdkafkaClient(broker.bootstrap)
    broker_admin.create_topic("t", PARTITIONS)
    stage = Stage(client.name, broker.bootstrap)
    try:
        host = stage.host()
        members = [stage.join(group, "t", host=host, protocol="consumer") for _ in range(2)]
        wait_shared("t", PARTITIONS, *members)
        broker_admin.produce("t", spread(60))
        wait_seen(names(60), *members)
        wait_until(lambda: committed(broker_admin, group) == [10] * PARTITIONS, SECONDS, "all commits")
        owned = [set(member.owned) for member in members]
        broker.kill_tree()
        broker.start()
        assert kind_of(broker_admin, group)[1] == "CONSUMER"
        broker_admin.produce("t", spread(60, first=60))
        wait_seen(names(120), *members)
        assert [member.owned for member in members] == owned, "a restart moved partitions"
        counts = seen(*members)
        assert {counts[value] for value in names(60)} == {1}, "what was committed came again"
        assert_no_double_owner(*members)
    finally:
        stage.close()


@pytest.mark.case("KIP-848: a live classic group changes over member by member, and back", needs=NEEDS)
def test_change_over(stage: Stage, group: str, topic: str, admin: LibrdkafkaClient) -> None:
    old = [stage.join(group, topic, cooperative=True) for _ in range(2)]
    wait_shared(topic, PARTITIONS, *old)
    wait_kind(admin, group, "STABLE", "CLASSIC")
    with steady_load(admin, topic) as sent:
        new = [stage.join(group, topic, protocol="consumer")]
        wait_shared(topic, PARTITIONS, *old, *new)
        assert kind_of(admin, group)[1] == "CONSUMER"
        for member in old:
            member.leave()
            new.append(stage.join(group, topic, protocol="consumer"))
        wait_shared(topic, PARTITIONS, *new)
        wait_kind(admin, group, "STABLE", "CONSUMER")
        # And back.
        again = [stage.join(group, topic, cooperative=True) for _ in range(2)]
        wait_shared(topic, PARTITIONS, *new, *again)
        for member in new:
            member.leave()
        wait_shared(topic, PARTITIONS, *again)
        wait_kind(admin, group, "STABLE", "CLASSIC")
    everybody = [*old, *new, *again]
    wait_seen(set(sent), *everybody)
    assert_no_double_owner(*everybody)


@pytest.mark.long  # clients that are built are among them
def test_group_of_many_clients(
    clients: Callable[[str], Client], broker: Broker, group: str, topic: str, admin: LibrdkafkaClient
) -> None:
    """New and old clients of every make in one group."""
    stages = [Stage(clients(name).name, broker.bootstrap) for name in ("librdkafka", "java", "franz_go")]
    others = [Stage(clients(name).name, broker.bootstrap) for name in ("aiokafka", "kafka_python")]
    try:
        members = [stage.join(group, topic, protocol="consumer") for stage in stages]
        wait_shared(topic, PARTITIONS, *members)
        members += [stage.join(group, topic) for stage in others]
        wait_shared(topic, PARTITIONS, *members)
        admin.produce(topic, spread(120))
        wait_seen(names(120), *members)
        for member in members[:2]:
            member.leave()
        wait_shared(topic, PARTITIONS, *members[2:])
        admin.produce(topic, spread(120, first=120))
        wait_seen(names(240), *members)
        assert_no_double_owner(*members)
    finally:
        for stage in (*stages, *others):
            stage.close()


@pytest.mark.long
def test_kafkas_own_tool_describes_and_deletes(broker: Broker, group: str, topic: str, admin: LibrdkafkaClient) -> None:
    launcher = require_program(str(PROGRAMS_DIR / "kafka_tool"))

    def tool(*arguments: str) -> str:
        line = [launcher, CLASSES["consumer-groups"], "--bootstrap-server", broker.bootstrap, *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout

    stage = Stage("librdkafka", broker.bootstrap)
    try:
        admin.produce(topic, spread(60))
        members = [stage.join(group, topic, protocol="consumer"), stage.join(group, topic)]
        wait_shared(topic, PARTITIONS, *members)
        wait_seen(names(60), *members)
        listed = tool("--list", "--state", "--type")
        assert any(line.split() == [group, "Consumer", "Stable"] for line in listed.splitlines()), listed
        (state,) = rows(tool("--describe", "--group", group, "--state", "--verbose"))
        assert state["STATE"] == "Stable" and "uniform" in state.values(), state
        shown = rows(tool("--describe", "--group", group, "--members", "--verbose"))
        assert {row["#PARTITIONS"] for row in shown} == {"3"}, shown
        wait_until(lambda: committed(admin, group, topic) == [10] * PARTITIONS, SECONDS, "all commits")
        lags = {(row["PARTITION"], row["LAG"]) for row in rows(tool("--describe", "--group", group))}
        assert lags == {(str(partition), "0") for partition in range(PARTITIONS)}
    finally:
        stage.close()
    wait_until(lambda: kind_of(admin, group)[0] == "EMPTY", SECONDS, "an empty group")
    tool("--delete", "--group", group)
    assert group not in tool("--list")
