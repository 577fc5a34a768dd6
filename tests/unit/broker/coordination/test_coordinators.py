"""Coordinators of several journals: whose an id is, and what becomes of everything when a journal is led by another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cairnmq.broker.coordination.coordinator import Coordinator
from cairnmq.broker.coordination.coordinators import Coordinators, Place
from cairnmq.broker.coordination.fact_log import Moved, Stored
from cairnmq.broker.coordination.offset_purge import OffsetPurges
from cairnmq.broker.coordination.transaction_coordinator import TransactionCoordinator
from cairnmq.broker.machine import MACHINE
from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.messages import Join
from cairnmq.groups.offset_messages import OffsetCommit, OffsetErrors, Position
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.metadata.image import Image, Topic
from cairnmq.settings.broker import BrokerConfig, broker_config
from cairnmq.storage.api.serving import Marker
from cairnmq.transactions.messages import Filter, Init
from cairnmq.types import Slots
from unit.broker.rig import scenario, until

OK = ErrorCode.NONE
MOVED, LOADING, NOBODY = (
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
)  # fmt: skip
TOPIC = b"t" * 16
ME, OTHER = Place(1, "here", 9092), Place(2, "there", 9093)


class Cluster:
    """What surrounds coordinators: metadata, elections, and journals whose writes end when the test says."""

    def __init__(
        self,
        journals: Sequence[int] = (0, 1),
        slots: bool = True,
        settings: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        config = broker_config({"group.initial.rebalance.delay.ms": "0"} | dict(settings or {}))
        assert isinstance(config, BrokerConfig)
        self.config = config
        self.image = Image(slots=Slots(1, 24, tuple(journals)) if slots else None)
        self.leaders: dict[int, Place | None] = dict.fromkeys(journals, ME)
        self.writes: list[tuple[Sequence[KeyedRecord], Stored]] = []
        self.keyed: dict[tuple[str, bytes], bytes] = {}
        self.stores = True  # at once
        self.markers: list[Marker] = []
        self.marks = True
        self.ids = 100
        self.now_ms = 1_000_000
        self.purges = OffsetPurges()
        self.coordinators = Coordinators(
            self,
            self,
            self,
            self.purges,
            node_id=1,
            steady=lambda: self.now_ms,
            wall=lambda: self.now_ms,
            uuid=MACHINE.uuid,
            **options,
        )

    def topic_ids(self) -> frozenset[bytes]:
        return frozenset([TOPIC])

    def topic_name(self, topic_id: bytes) -> str | None:
        return "a"

    async def next_producer_id(self) -> int:
        self.ids += 1
        return self.ids

    def leader_of(self, journal: int) -> Place | None:
        return self.leaders[journal]

    def put_facts(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        self.writes.append((facts, stored))
        if self.stores:
            asyncio.get_running_loop().call_soon(self.store, len(self.writes) - 1)

    def store(self, number: int, fault: Fault | None = None) -> None:
        facts, stored = self.writes[number]
        self.writes[number] = facts, lambda told: None  # a journal says it once
        for space, key, value in () if fault else facts:
            if value is None:
                self.keyed.pop((space, key), None)
            else:
                self.keyed[space, key] = value
        stored(fault)

    async def write_markers(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        if not self.marks:
            raise Fault("the disk is full")
        self.markers += markers
        return [OK] * len(markers)

    def lead(self, journal: int, epoch: int = 1) -> None:
        self.leaders[journal] = ME
        self.coordinators.lead(journal, epoch, self.keyed)

    def lose(self, journal: int) -> None:
        self.leaders[journal] = OTHER
        self.coordinators.drop(journal)

    def id_in(self, journal: int, kind: str = "g") -> str:
        return next(name for name in (f"{kind}{n}" for n in range(100)) if self.coordinators.place(name) == journal)

    def group(self, group_id: str) -> Coordinator:
        found = self.coordinators.of_group(group_id)
        assert isinstance(found, Coordinator), found
        return found

    def transactions(self, transactional_id: str) -> TransactionCoordinator:
        found = self.coordinators.of_transaction(transactional_id)
        assert isinstance(found, TransactionCoordinator), found
        return found

    def offset(self, group_id: str) -> int | None:
        found = self.group(group_id).groups.offsets.get(group_id, TOPIC, 0)
        return None if found is None else found.offset


def joining(group_id: str, member_id: str = "", session_ms: int = 10_000) -> Join:
    return Join(
        group_id, member_id, None, "c", "", session_ms, 20_000, "consumer", (("range", b""),), needs_id=False
    )  # fmt: skip


def committing(group_id: str, offset: int, producer_id: int | None = None) -> OffsetCommit:
    return OffsetCommit(group_id, "", None, -1, [Position(TOPIC, 0, offset)], producer_id=producer_id)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------------------ whose an id is


@scenario
async def test_no_slots_yet() -> None:
    wanted: list[None] = []
    cluster = Cluster(slots=False, want_slots=lambda: wanted.append(None))
    coordinators = cluster.coordinators
    assert coordinators.of_group("g") is NOBODY and coordinators.of_transaction("t") is NOBODY
    assert coordinators.find("g") is NOBODY and coordinators.place("g") is None
    assert len(wanted) == 4, "whoever asks has them made"
    assert coordinators.incomplete is OK and list(coordinators.groups()) == []


@scenario
async def test_loaded_not_loaded_led_by_another_or_nobody() -> None:
    cluster = Cluster()
    coordinators, group, other = cluster.coordinators, cluster.id_in(0), cluster.id_in(1)
    assert coordinators.of_group(group) is LOADING and coordinators.of_transaction(group) is LOADING
    assert coordinators.incomplete is LOADING and coordinators.find(group) == ME
    cluster.lead(0)
    assert isinstance(coordinators.of_group(group), Coordinator)
    assert coordinators.of_group(other) is LOADING and coordinators.incomplete is LOADING
    cluster.leaders[1] = OTHER
    assert coordinators.of_group(other) is MOVED and coordinators.find(other) == OTHER
    assert coordinators.incomplete is OK, "what others coordinate is not missing"
    cluster.leaders[1] = None
    assert coordinators.of_group(other) is MOVED and coordinators.find(other) is NOBODY


@scenario
async def test_one_journal_with_all_slots() -> None:
    cluster = Cluster(journals=(3,))
    assert cluster.coordinators.of_group("g") is LOADING
    cluster.lead(3)
    held = cluster.group("g")
    assert cluster.group("h") is held and cluster.coordinators.place("g") == 3
    cluster.lose(3)
    assert cluster.coordinators.of_group("g") is MOVED


@scenario
async def test_damage_stops_the_slots_of_its_journal_only() -> None:
    cluster = Cluster()
    coordinators = cluster.coordinators
    cluster.lead(0)
    coordinators.damaged(1)
    whole, hurt = cluster.id_in(0), cluster.id_in(1)
    assert isinstance(coordinators.of_group(whole), Coordinator) and coordinators.find(whole) == ME
    assert coordinators.of_group(hurt) is NOBODY and coordinators.of_transaction(hurt) is NOBODY
    assert coordinators.find(hurt) is NOBODY and "damaged" in coordinators.why(NOBODY)
    assert coordinators.incomplete is NOBODY
    cluster.lead(1)
    assert isinstance(coordinators.of_group(hurt), Coordinator) and coordinators.incomplete is OK


@scenario
async def test_a_journal_loads_the_facts_of_its_slots_alone() -> None:
    cluster = Cluster()
    here, there = cluster.id_in(0), cluster.id_in(1)
    cluster.keyed = {
        fact[:2]: fact[2] or b"" for fact in (put(OffsetKey(name, TOPIC, 0), Committed(7)) for name in (here, there))
    }
    cluster.lead(0)
    assert [each.group_id for each in cluster.coordinators.groups()] == [here]
    cluster.lead(1)
    assert {each.group_id for each in cluster.coordinators.groups()} == {here, there}
    assert cluster.offset(there) == 7
    cluster.lose(0)
    assert [each.group_id for each in cluster.coordinators.groups()] == [there]


@scenario
async def test_memory_of_groups_counts_what_is_loaded() -> None:
    cluster = Cluster(journals=(0,))
    cluster.lead(0)
    tally = cluster.coordinators.group_bytes
    tally.limit = 1_000
    assert tally.admits(900, 0) and not tally.admits(900, 1)
    cluster.lead(0)
    assert tally.admits(900, 1), "a new start: nothing is held"


@scenario
async def test_limits_are_those_of_the_broker() -> None:
    cluster = Cluster(settings={"cairn.groups.max": "2", "cairn.transactional.ids.max": "2"})
    for journal in (0, 1):
        cluster.lead(journal)
    names = [cluster.id_in(journal, kind) for journal, kind in ((0, "a"), (1, "a"), (0, "b"), (1, "b"))]

    assert [await committed_in(cluster, name) for name in names] == [
        OK,
        OK,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.POLICY_VIOLATION,
    ]
    told: list[Any] = []
    for name in names:
        cluster.group(name).join(joining(name), told.append)
    await turns()
    assert [each.error for each in told] == [OK, OK, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]
    for name in (names[0], names[2], names[1], names[3]):
        assert (await cluster.transactions(name).init(Init(name, 1000))).error is OK
        await turns()
    ids = {name for name, _ in cluster.coordinators.transactions(Filter(), 0)}
    assert ids == {names[0], *names[2:]}, "one too many, until the journal with unused ones gets another"
    new = cluster.id_in(0, "n")
    assert (await cluster.transactions(new).init(Init(new, 1000))).error is OK
    await turns()
    assert {name for name, _ in cluster.coordinators.transactions(Filter(), 0)} == {names[3], new}
    cluster.lose(1)
    assert await committed_in(cluster, names[2]) is OK, "room for what this broker coordinates"


async def committed_in(cluster: Cluster, name: str) -> ErrorCode:
    return (await cluster.group(name).commit(committing(name, 5))).errors[0]


# --------------------------------------------------------------------------------------------------- several journals


@scenario
async def test_a_transaction_ends_in_groups_of_every_journal() -> None:
    cluster = Cluster()
    for journal in (0, 1):
        cluster.lead(journal)
    groups = [cluster.id_in(0), cluster.id_in(1)]
    for group in groups:
        assert (await cluster.group(group).commit(committing(group, 5, producer_id=9))).errors == [OK]
    assert [cluster.offset(group) for group in groups] == [None, None]
    cluster.stores = False
    late = asyncio.ensure_future(cluster.group(groups[1]).commit(committing(groups[1], 6, producer_id=9)))
    await turns()
    on_its_way = len(cluster.writes) - 1
    cluster.stores = True
    ends = asyncio.ensure_future(cluster.coordinators.end_offsets(groups, 9, True))
    await turns()
    assert cluster.offset(groups[0]) == 5 and not ends.done(), "offsets on their way are waited for"
    cluster.store(on_its_way)
    await ends
    assert (await late).errors == [OK]
    assert [cluster.offset(group) for group in groups] == [5, 6]


@scenario
async def test_it_does_not_end_while_a_group_has_no_coordinator_here() -> None:
    cluster = Cluster()
    cluster.lead(0)
    groups = [cluster.id_in(0), cluster.id_in(1)]
    assert (await cluster.group(groups[0]).commit(committing(groups[0], 5, producer_id=9))).errors == [OK]
    with pytest.raises(Fault, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await cluster.coordinators.end_offsets(groups, 9, True)
    assert cluster.offset(groups[0]) is None


@scenario
async def test_a_group_moves_while_its_transaction_ends() -> None:
    cluster = Cluster()
    for journal in (0, 1):
        cluster.lead(journal)
    groups = [cluster.id_in(0), cluster.id_in(1)]
    for group in groups:
        await cluster.group(group).commit(committing(group, 5, producer_id=9))
    cluster.stores = False
    ends = asyncio.ensure_future(cluster.coordinators.end_offsets(groups, 9, True))
    await turns()
    cluster.lose(1)
    await turns()
    assert not ends.done(), "the other one is waited for"
    cluster.store(next(n for n, (facts, _) in enumerate(cluster.writes[2:], 2) if groups[0].encode() in facts[0][1]))
    with pytest.raises(Fault):
        await ends
    assert cluster.offset(groups[0]) == 5


@scenario
async def test_topics_that_go_leave_nothing_in_any_journal() -> None:
    cluster = Cluster()
    groups = [cluster.id_in(0), cluster.id_in(1)]
    gone = b"x" * 16
    for journal, group in enumerate(groups):
        fact = put(OffsetKey(group, gone, 0), Committed(2))
        cluster.keyed[fact[:2]] = fact[2] or b""
        cluster.lead(journal)
    assert len(list(cluster.coordinators.groups())) == 2
    topic = Topic("gone", gone, ())
    cluster.coordinators.damaged(0)
    await cluster.purges.of_topic(topic, cluster.topic_ids)
    assert list(cluster.coordinators.groups()) == []
    cluster.lead(0)
    await cluster.coordinators.start()
    await until(lambda: not list(cluster.coordinators.groups()))
    await cluster.coordinators.close()


@scenario
async def test_a_topic_is_deleted_while_the_journal_moves() -> None:
    cluster = Cluster()
    group = cluster.id_in(0)
    fact = put(OffsetKey(group, b"x" * 16, 0), Committed(2))
    cluster.keyed[fact[:2]] = fact[2] or b""
    cluster.lead(0)
    cluster.stores = False
    topic = Topic("gone", b"x" * 16, ())
    purging = asyncio.ensure_future(cluster.purges.of_topic(topic, cluster.topic_ids))
    await turns()
    cluster.lose(0)
    await purging  # whoever loads it next drops them
    assert len(cluster.writes) == 1


def test_moved_is_a_fault_with_its_reason() -> None:
    assert isinstance(Moved(), Fault) and "another broker" in str(Moved())
    assert OffsetErrors([OK]).unless_stored(MOVED).errors == [MOVED]


def test_one_that_others_may_have_replaced_tells_nothing() -> None:
    """It stood still for longer than its session: what it holds may be outdated, and it does not know yet."""

    async def scene() -> None:
        leased = {0, 1}
        cluster = Cluster(may_serve=leased.__contains__)
        for journal in (0, 1):
            cluster.lead(journal)
        group, other = cluster.id_in(0), cluster.id_in(1)
        leased.remove(0)
        assert cluster.coordinators.of_group(group) is ErrorCode.NOT_COORDINATOR
        assert cluster.coordinators.of_transaction(group) is ErrorCode.NOT_COORDINATOR
        assert isinstance(cluster.coordinators.of_group(other), Coordinator)
        leased.add(0)
        assert isinstance(cluster.coordinators.of_group(group), Coordinator)

    asyncio.run(scene())


def test_one_journal_for_all_is_leased_too() -> None:
    async def scene() -> None:
        cluster = Cluster([0], may_serve=lambda journal: False)
        cluster.lead(0)
        assert cluster.coordinators.of_group("g") is ErrorCode.NOT_COORDINATOR

    asyncio.run(scene())
