"""Consumer groups as each client lives in them: joining, leaving, dying, handing over, remembering."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from broker_process import Broker, wait_until
from conftest import QUICK_GROUPS
from interop.clients.contract import Client, Sent
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.members import SECONDS, Member, Place, Stage, wait_for
from interop.clients.roster import CLIENTS, PROGRAMS

NewTopic = Callable[..., str]
SHORT_MS = 2_500
LONG_MS = 20_000
BELOW_DEFAULT_SECONDS = 40  # a session that the broker chose would take 45 s
PARTITIONS = 6


@pytest.fixture
def stage(client: Client, bootstrap: str) -> Iterator[Stage]:
    made = Stage(client.name, bootstrap)
    yield made
    made.close()


@pytest.fixture
def group(free_name: str) -> str:
    return f"group-{free_name}"


def spread(count: int, partitions: int = PARTITIONS, first: int = 0) -> list[Sent]:
    return [Sent(b"%d" % n, partition=n % partitions) for n in range(first, first + count)]


def names(count: int, first: int = 0) -> set[str]:
    return {str(n) for n in range(first, first + count)}


def seen(*members: Member) -> Counter[str]:
    return Counter(value for member in members for value in member.values)


def wait_seen(wanted: set[str], *members: Member) -> None:
    wait_for(lambda: wanted <= set(seen(*members)), f"{len(wanted)} records", *members)


def wait_shared(topic: str, partitions: int, *members: Member) -> None:
    """Every partition has one owner, and every member has about as many."""
    share, rest = divmod(partitions, len(members))

    def even() -> bool:
        owned = [set(member.owned) for member in members]
        return (
            all(share <= len(places) <= share + bool(rest) for places in owned)
            and sum(len(places) for places in owned) == partitions
            and set.union(*owned) == {(topic, partition) for partition in range(partitions)}
        )

    wait_for(even, f"{partitions} partitions shared by {len(members)}", *members)


def reigns(*members: Member) -> dict[Place, list[tuple[int, int, str]]]:
    """Partition -> (from, to, member), as the members told it; one that still owns it owns it for ever."""
    told: dict[Place, list[tuple[int, int, str]]] = {}
    for member in members:
        since: dict[Place, int] = {}
        for at, event, places in member.moves:
            for place in places:
                if event == "assigned":
                    since.setdefault(place, at)
                elif place in since:
                    told.setdefault(place, []).append((since.pop(place), at, member.name))
        for place, at in since.items():
            told.setdefault(place, []).append((at, 2**63, member.name))
    return told


def assert_no_double_owner(*members: Member) -> None:
    late_us = max(member.host.late_us for member in members)
    for place, owners in reigns(*members).items():
        in_order = sorted(owners)
        for (_, end, first), (start, _, second) in zip(in_order, in_order[1:], strict=False):
            assert start >= end - late_us, f"{place} was owned by {first} and {second} at once: {in_order}"


@pytest.mark.case("Point to point: each record goes to one member of a group, and members share the partitions")
def test_point_to_point(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=PARTITIONS)
    members = [stage.join(group, topic) for _ in range(3)]
    wait_shared(topic, PARTITIONS, *members)
    admin.produce(topic, spread(300))
    wait_seen(names(300), *members)
    assert seen(*members).total() == 300
    for member in members:
        assert {(record.topic, record.partition) for record in member.records} == member.owned
        for place in member.owned:
            mine = [record.offset for record in member.records if (record.topic, record.partition) == place]
            assert mine == list(range(50))
    assert_no_double_owner(*members)


@pytest.mark.case("Publish and subscribe: each group gets every record, a later one replays from the start")
def test_publish_subscribe(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=2)
    early = [stage.join(f"{group}-{n}", topic) for n in range(2)]
    for member in early:
        member.wait_owning(2)
    admin.produce(topic, spread(100, 2))
    late = stage.join(f"{group}-late", topic)
    for member in (*early, late):
        wait_seen(names(100), member)
        assert seen(member).total() == 100


@pytest.mark.case("A member seeks back and reads again; its group's other partitions go on", needs=["seek"])
def test_seek_and_replay(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=2)
    admin.produce(topic, spread(100, 2))
    member = stage.join(group, topic)
    wait_seen(names(100), member)
    member.seek((topic, 0), 40)
    replayed = {str(n) for n in range(80, 100, 2)}
    wait_until(lambda: seen(member).total() >= 110, SECONDS, "ten records again")
    assert {value for value, count in seen(member).items() if count == 2} == replayed
    admin.produce(topic, spread(20, 2, first=100))
    wait_seen(names(120), member)
    assert seen(member).total() == 130


@pytest.mark.case("Members join and leave one by one: every record once, none owned twice")
def test_join_and_leave(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=PARTITIONS)
    members: list[Member] = []
    for n in range(3):
        members.append(stage.join(group, topic))
        wait_shared(topic, PARTITIONS, *members)
        admin.produce(topic, spread(60, first=60 * n))
        wait_seen(names(60 * (n + 1)), *members)
    members[0].leave()
    wait_shared(topic, PARTITIONS, *members[1:])
    admin.produce(topic, spread(60, first=180))
    wait_seen(names(240), *members)
    assert seen(*members).total() == 240
    assert_no_double_owner(*members)


@pytest.mark.case("A member is killed (kill -9): after its session the others own its partitions, no record is lost")
def test_crash(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=PARTITIONS)
    survivor = stage.join(group, topic, session_ms=SHORT_MS)
    victim = stage.join(group, topic, session_ms=SHORT_MS, host=stage.host())
    wait_shared(topic, PARTITIONS, survivor, victim)
    admin.produce(topic, spread(60))
    wait_seen(names(60), survivor, victim)
    stage.crash(victim)
    killed = time.monotonic()
    admin.produce(topic, spread(60, first=60))
    wait_shared(topic, PARTITIONS, survivor)
    assert time.monotonic() - killed < BELOW_DEFAULT_SECONDS, "not its own session"
    wait_seen(names(120), survivor, victim)
    again = {value for value, count in seen(survivor, victim).items() if count > 1}
    assert again <= set(victim.values), "only what the dead member had no time to commit may come again"
    assert names(60, first=60) <= set(survivor.values)


@pytest.mark.case("A static member is killed and comes back in time: no rebalance, same partitions", needs=["static"])
def test_static_restart(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=PARTITIONS)
    stays = stage.join(group, topic, instance="stays", session_ms=LONG_MS)
    first = stage.join(group, topic, instance="returns", session_ms=LONG_MS, host=stage.host())
    wait_shared(topic, PARTITIONS, stays, first)
    admin.produce(topic, spread(60))
    wait_seen(names(60), stays, first)
    moves = list(stays.moves)
    stage.crash(first)
    admin.produce(topic, spread(60, first=60))
    second = stage.join(group, topic, instance="returns", session_ms=LONG_MS)
    second.wait_owning(len(first.owned))
    assert second.owned == first.owned
    wait_seen(names(120), stays, first, second)
    assert stays.moves == moves, "the other member saw a rebalance"


@contextmanager
def steady_load(admin: LibrdkafkaClient, topic: str) -> Iterator[list[str]]:
    """Produces while the block runs; gives the values sent."""
    sent: list[str] = []
    done = threading.Event()

    def produce() -> None:
        while not done.is_set():
            records = spread(PARTITIONS, first=len(sent))
            admin.produce(topic, records)
            sent.extend((record.value or b"").decode() for record in records)
            done.wait(0.02)

    producing = threading.Thread(target=produce, daemon=True)
    producing.start()
    try:
        yield sent
    finally:
        done.set()
        producing.join()


@pytest.mark.case("Cooperative hand-over: nothing that stays is given up, lost or owned twice", needs=["cooperative"])
def test_cooperative(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=PARTITIONS)
    first = stage.join(group, topic, cooperative=True)
    wait_shared(topic, PARTITIONS, first)
    with steady_load(admin, topic) as sent:
        second = stage.join(group, topic, cooperative=True)
        wait_shared(topic, PARTITIONS, first, second)
        kept = set(first.owned)
        given = {place for _, event, places in first.moves if event == "revoked" for place in places}
        assert given == second.owned, "more was given up than the new member got"
    wait_seen(set(sent), first, second)
    assert_no_double_owner(first, second)
    for place in kept:
        mine = [record.offset for record in first.records if (record.topic, record.partition) == place]
        assert mine == list(range(len(mine))), "a partition that stayed was not read in one go"


@pytest.mark.case("A cooperative member leaves under load: the others go on", needs=["cooperative", "clean end"])
def test_cooperative_leave(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=PARTITIONS)
    stays = stage.join(group, topic, cooperative=True)
    leaves = stage.join(group, topic, cooperative=True)
    wait_shared(topic, PARTITIONS, stays, leaves)
    moves = len(stays.moves)
    with steady_load(admin, topic) as sent:
        wait_until(lambda: stays.records and leaves.records, SECONDS, "both at work")
        leaves.leave()
        wait_shared(topic, PARTITIONS, stays)
    wait_seen(set(sent), stays, leaves)
    assert [event for _, event, places in stays.moves[moves:] if places] == ["assigned"]
    assert_no_double_owner(stays, leaves)


@pytest.mark.case("Subscription by pattern: the topics that match, and no other")
def test_pattern(stage: Stage, group: str, free_name: str, admin: LibrdkafkaClient) -> None:
    topics = [f"{free_name}.one", f"{free_name}.two", f"other.{free_name}"]
    for topic in topics:
        admin.create_topic(topic)
        admin.produce(topic, [Sent(topic.encode())])
    member = stage.join(group, pattern=f"^{free_name}[.].*")
    member.wait_owning(2)
    wait_seen(set(topics[:2]), member)
    assert set(member.values) == set(topics[:2])


@pytest.mark.case("Subscription by pattern: a matching topic made later is read too", needs=["later topics"])
def test_pattern_later(stage: Stage, group: str, free_name: str, admin: LibrdkafkaClient) -> None:
    admin.create_topic(f"{free_name}.one")
    member = stage.join(group, pattern=f"^{free_name}[.].*")
    member.wait_owning(1)
    admin.create_topic(f"{free_name}.two", 2)
    member.wait_owning(3)
    admin.produce(f"{free_name}.two", spread(20, 2))
    wait_seen(names(20), member)


@pytest.mark.case("100 members in one group: one partition each, every record once")
def test_hundred_members(stage: Stage, group: str, new_topic: NewTopic, admin: LibrdkafkaClient) -> None:
    topic = new_topic(partitions=100)
    host = stage.host()
    members = [stage.join(group, topic, host=host, session_ms=LONG_MS, heartbeat_ms=500) for _ in range(100)]
    wait_shared(topic, 100, *members)
    admin.produce(topic, spread(1000, 100))
    wait_seen(names(1000), *members)
    assert seen(*members).total() == 1000
    assert_no_double_owner(*members)


@pytest.mark.case("Commits survive a kill -9 of the broker; members go on by themselves")
def test_broker_killed(client: Client, group: str, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(settings=QUICK_GROUPS).start()
    broker_admin = LibrdkafkaClient(broker.bootstrap)
    broker_admin.create_topic("t", PARTITIONS)
    stage = Stage(client.name, broker.bootstrap)
    try:
        host = stage.host()
        members = [stage.join(group, "t", host=host) for _ in range(2)]
        wait_shared("t", PARTITIONS, *members)
        broker_admin.produce("t", spread(60))
        wait_seen(names(60), *members)
        wait_until(lambda: committed(broker_admin, group) == [10] * PARTITIONS, SECONDS, "all commits")
        broker.kill_tree()
        broker.start()
        assert committed(broker_admin, group) == [10] * PARTITIONS
        broker_admin.produce("t", spread(60, first=60))
        wait_seen(names(120), *members)
        counts = seen(*members)
        assert {counts[value] for value in names(60)} == {1}, "what was committed came again"
        wait_until(lambda: committed(broker_admin, group) == [20] * PARTITIONS, SECONDS, "all commits")
    finally:
        stage.close()


def committed(admin: LibrdkafkaClient, group: str, topic: str = "t") -> list[int | None]:
    return [admin.committed(group, topic, partition) for partition in range(PARTITIONS)]


@pytest.mark.long  # clients that are built are among them
def test_group_of_many_clients(
    clients: Callable[[str], Client], bootstrap: str, group: str, new_topic: NewTopic, admin: LibrdkafkaClient
) -> None:
    """All but kafkajs, whose assignor only it knows: whoever leads, the others understand what it assigned."""
    names_mixed = [name for name in CLIENTS if name != "kafkajs"]
    partitions = 2 * len(names_mixed)
    topic = new_topic(partitions=partitions)
    stages = [Stage(clients(name).name, bootstrap) for name in names_mixed]
    try:
        members = [stage.join(group, topic) for stage in stages]
        wait_shared(topic, partitions, *members)
        admin.produce(topic, spread(120, partitions))
        wait_seen(names(120), *members)
        assert seen(*members).total() == 120
        # The leader goes first: another client leads.
        for member in members[:3]:
            member.leave()
        wait_shared(topic, partitions, *members[3:])
        admin.produce(topic, spread(120, partitions, first=120))
        wait_seen(names(240), *members)
        assert_no_double_owner(*members)
    finally:
        for stage in stages:
            stage.close()


RETENTION_SECONDS = 60
"""The shortest that can be set; the other tests of this file run meanwhile."""


class Aging:
    """A broker that forgets, with two groups of each client: one whose member stays, one that was left long ago."""

    def __init__(self) -> None:
        self.left: dict[str, float] = {}
        self.stages: dict[str, Stage] = {}

    def start(self, broker: Broker, tested: Iterable[str]) -> None:
        self.admin = LibrdkafkaClient(broker.bootstrap)
        self.admin.create_topic("t")
        self.admin.produce("t", spread(10, 1))
        self.stages = {name: Stage(name, broker.bootstrap) for name in tested}
        for name, stage in self.stages.items():
            leaves, stays = stage.join(f"left-{name}", "t"), stage.join(f"stays-{name}", "t")
            wait_seen(names(10), leaves)
            wait_seen(names(10), stays)
        for name, stage in self.stages.items():
            for group in (f"left-{name}", f"stays-{name}"):
                wait_until(lambda group=group: self.admin.committed(group, "t", 0) == 10, SECONDS, f"commit of {group}")
            self.left[name] = time.monotonic()
            stage.members[0].leave()
            assert self.admin.committed(f"left-{name}", "t", 0) == 10

    def close(self) -> None:
        for stage in self.stages.values():
            stage.close()


@pytest.fixture(scope="module", autouse=True)
def aging(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, broker_kind: type[Broker]
) -> Iterator[Aging | None]:
    """Set up before the first test of this file, if the last one is to run at all."""
    mine = [item for item in request.session.items if item.path == request.path]
    wanted = [item for item in mine if getattr(item, "originalname", "") == "test_expired_offsets"]
    if not wanted:
        yield None
        return
    settings = {**QUICK_GROUPS, "offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "200"}
    tested = [item.callspec.params["client"] for item in wanted]  # type: ignore[attr-defined]
    broker = broker_kind(tmp_path_factory.mktemp("aging"), settings=settings)
    made = Aging()
    try:
        made.start(broker.start(), [name for name in tested if name not in PROGRAMS or shutil.which(PROGRAMS[name])])
        yield made
    finally:
        try:
            made.close()
        finally:
            broker.close()


@pytest.mark.case("Offsets expire when a group has been empty for long enough, not while it has members")
def test_expired_offsets(client: Client, aging: Aging) -> None:
    group = f"left-{client.name}"
    age = time.monotonic() - aging.left[client.name]
    seconds = max(0.0, RETENTION_SECONDS - age) + 10
    wait_until(lambda: aging.admin.committed(group, "t", 0) is None, seconds, "the end of the offsets")
    assert time.monotonic() - aging.left[client.name] > RETENTION_SECONDS - 1
    assert aging.admin.committed(f"stays-{client.name}", "t", 0) == 10
    back = aging.stages[client.name].join(group, "t")
    wait_seen(names(10), back)
