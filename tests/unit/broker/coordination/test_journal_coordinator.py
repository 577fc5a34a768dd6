"""What becomes of everything when another broker leads the journal, and when this one leads it again."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from cairnmq.errors import Fault
from cairnmq.groups.consumer_messages import Report
from cairnmq.groups.messages import Joined, Response, Sync, Synced
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.transactions.messages import Add, End, Filter, Init, Producer
from cairnmq.transactions.record import State
from unit.broker.coordination.test_coordinators import MOVED, OK, TOPIC, Cluster, committing, joining, turns
from unit.broker.rig import scenario, until


@scenario
async def test_whoever_waits_is_told_and_nothing_is_applied() -> None:
    cluster = Cluster()
    cluster.lead(0)
    await cluster.coordinators.start()
    group, parked = cluster.id_in(0), cluster.id_in(0, "p")
    told: list[tuple[str, Response | None]] = []
    coordinator = cluster.group(group)
    # A member that waits for its leader, and one that waits for the others.
    coordinator.join(joining(parked), lambda answer: told.append(("first", answer)))
    await turns()
    ((_, first),) = told
    assert isinstance(first, Joined) and first.error is OK
    coordinator.join(joining(parked), lambda answer: told.append(("join", answer)))
    cluster.stores = False
    report = Report(group, "m", 0, "c", "", None, None, 5_000, ("a",), None, None, None)
    coordinator.report(report, lambda answer: told.append(("report", answer)))
    commit = asyncio.ensure_future(coordinator.commit(committing(cluster.id_in(0, "o"), 5)))
    purge = asyncio.ensure_future(coordinator.end_offsets([cluster.id_in(0, "o")], 5, True))
    await turns()
    under_way = len(cluster.writes)
    assert len(told) == 1 and not commit.done() and not purge.done()

    cluster.lose(0)
    answers = dict(told)
    assert isinstance(answers["join"], Joined) and answers["join"].error is MOVED
    assert "report" in answers and answers["report"] is None and coordinator.failure is MOVED
    assert (await commit).errors == [MOVED]
    with pytest.raises(Fault):
        await purge
    for number in range(under_way):
        cluster.store(number)  # they reach the disk all the same
    await turns()
    assert coordinator.groups.offsets.get(cluster.id_in(0, "o"), TOPIC, 0) is None
    assert len(cluster.writes) == under_way, "nothing more is put"


@scenario
async def test_synced_later_are_told_too() -> None:
    cluster = Cluster()
    cluster.lead(0)
    group, told = cluster.id_in(0), list[Response | None]()
    coordinator = cluster.group(group)
    coordinator.join(joining(group), told.append)
    coordinator.join(joining(group), told.append)
    await turns()
    leader = told[0]
    assert isinstance(leader, Joined)
    coordinator.join(joining(group, leader.member_id), told.append)
    await turns()
    joined = [each for each in told if isinstance(each, Joined) and each.generation == 2]
    follower = next(each for each in joined if each.member_id != each.leader)
    coordinator.sync(Sync(group, 2, follower.member_id), told.append)
    await turns()
    assert not isinstance(told[-1], Synced)
    cluster.lose(0)
    assert isinstance(told[-1], Synced) and told[-1].error is MOVED


@scenario
async def test_whoever_still_holds_the_coordinator_is_refused() -> None:
    cluster = Cluster()
    cluster.lead(0)
    group, name = cluster.id_in(0), cluster.id_in(0, "t")
    coordinator, transactions = cluster.group(group), cluster.transactions(name)
    cluster.lose(0)
    told: list[Response | None] = []
    coordinator.join(joining(group), told.append)
    coordinator.leave(group, [], told.append)
    assert told[0] is None
    assert (await coordinator.commit(committing(group, 5))).errors == [MOVED]
    assert (await transactions.init(Init(name, 1000))).error is MOVED
    assert (await transactions.end(End(name, Producer(1, 0), True, False))).error is MOVED
    assert await transactions.added(Add(name, Producer(1, 0), (1,))) is MOVED
    assert cluster.writes == []


@scenario
async def test_transactions_under_way() -> None:
    cluster, before = Cluster(), asyncio.all_tasks()
    cluster.lead(0, epoch=4)
    await cluster.coordinators.start()
    name, fresh = cluster.id_in(0, "t"), cluster.id_in(0, "u")
    transactions = cluster.transactions(name)
    producer_id = (await transactions.init(Init(name, 60_000))).producer_id
    me = Producer(producer_id, 0)
    assert await transactions.added(Add(name, me, (7,))) is OK
    cluster.marks = False
    end = asyncio.ensure_future(transactions.end(End(name, me, True, False)))
    await until(lambda: transactions.core._stored[name].state is State.PREPARE_COMMIT)
    cluster.stores = False
    init = asyncio.ensure_future(transactions.init(Init(fresh, 60_000)))
    await turns()
    assert not end.done() and not init.done()
    cluster.lose(0)
    assert (await end).error is MOVED and (await init).error is MOVED
    cluster.marks = cluster.stores = True
    await turns()
    assert cluster.markers == [], "it is the next one's to write them"
    assert asyncio.all_tasks() == before, "and nobody waits to try it again"

    cluster.lead(0, epoch=6)
    await cluster.transactions(name).settled()
    assert [(each.queue_id, each.commit, each.coordinator_epoch) for each in cluster.markers] == [(7, True, 6)]
    ((_, record),) = cluster.coordinators.transactions(Filter(), cluster.now_ms)
    assert record.state is State.COMPLETE_COMMIT
    assert (await cluster.transactions(name).end(End(name, me, True, False))).error is OK, "the retry is answered"
    assert cluster.transactions(fresh).core.describe(fresh) is None, "that was never stored"
    await cluster.coordinators.close()


@scenario
async def test_sessions_begin_anew_from_what_is_stored() -> None:
    cluster = Cluster()
    cluster.lead(0)
    await cluster.coordinators.start()
    group, told = cluster.id_in(0), list[Response | None]()
    cluster.group(group).join(joining(group), told.append)
    await turns()
    joined = told[0]
    assert isinstance(joined, Joined)
    cluster.group(group).sync(Sync(group, 1, joined.member_id, assignments={joined.member_id: b"x"}), told.append)
    await turns()
    assert isinstance(told[-1], Synced) and told[-1].error is OK
    cluster.now_ms += 9_000
    cluster.lose(0)
    cluster.lead(0)
    coordinator = cluster.group(group)
    cluster.now_ms += 9_000
    assert list(coordinator.groups.advance(cluster.now_ms)) == [], "18 s since it was heard, 9 s since the load"
    assert coordinator.heartbeat(group, joined.member_id, None, 1) is OK
    cluster.now_ms += 11_000
    assert list(coordinator.groups.advance(cluster.now_ms)) != []
    await cluster.coordinators.close()


@scenario
async def test_nothing_is_left_of_it() -> None:
    """Also while the journal has not said yet what became of its last writes."""
    cluster = Cluster()
    before = asyncio.all_tasks()
    cluster.lead(0)
    await cluster.coordinators.start()
    group, name = cluster.id_in(0), cluster.id_in(0, "t")
    told: list[Response | None] = []
    cluster.group(group).join(joining(group), told.append)
    await cluster.transactions(name).init(Init(name, 60_000))
    cluster.stores = False
    commit = asyncio.ensure_future(cluster.group(group).commit(committing("x" + group, 5)))
    known = [
        weakref.ref(each)
        for one in cluster.coordinators.loaded
        for each in (one, one.coordinator.groups, one.transactions.core, one.purge, one.coordinator)
    ]
    assert len(known) == 5 and asyncio.all_tasks() - before
    cluster.lose(0)
    await commit
    await turns()
    del told, commit
    gc.collect()
    assert [each() for each in known] == [None] * 5
    assert asyncio.all_tasks() == before and not cluster.purges._of
    assert cluster.coordinators.loaded == ()


@scenario
async def test_a_purge_that_waits_for_its_next_try_ends() -> None:
    cluster, before = Cluster(), asyncio.all_tasks()
    fact = put(OffsetKey(cluster.id_in(0), b"x" * 16, 0), Committed(2))
    cluster.keyed[fact[:2]] = fact[2] or b""
    cluster.stores = False
    cluster.lead(0)
    await cluster.coordinators.start()
    cluster.store(0, Fault("the disk is full"))
    await turns()
    cluster.lose(0)
    await turns()
    assert asyncio.all_tasks() == before and len(cluster.writes) == 1


@scenario
async def test_records_that_fail_when_it_moves_begin_nothing() -> None:
    """What a failure puts back goes on with its markers, where the journal stays."""
    cluster, before = Cluster(), asyncio.all_tasks()
    cluster.lead(0)
    name = cluster.id_in(0, "t")
    transactions = cluster.transactions(name)
    me = Producer((await transactions.init(Init(name, 60_000))).producer_id, 0)
    assert await transactions.added(Add(name, me, (7,))) is OK
    cluster.marks = False
    end = asyncio.ensure_future(transactions.end(End(name, me, True, False)))
    await until(lambda: transactions.core._stored[name].state is State.PREPARE_COMMIT)
    cluster.marks, cluster.stores = True, False
    transactions._begin(transactions.core.resume()[0])
    await until(lambda: len(cluster.writes) == 4)
    cluster.lose(0)
    assert (await end).error is MOVED
    await turns()
    assert asyncio.all_tasks() == before, "complete could not be stored, and its markers are not written again"


@scenario
async def test_leading_again_forgets_what_was_live() -> None:
    cluster = Cluster()
    cluster.lead(0, epoch=1)
    group = cluster.id_in(0)
    cluster.stores = False
    lost = asyncio.ensure_future(cluster.group(group).commit(committing(group, 5)))
    await turns()
    cluster.lead(0, epoch=2)
    assert (await lost).errors == [MOVED] and cluster.offset(group) is None
    cluster.stores = True
    assert (await cluster.group(group).commit(committing(group, 6))).errors == [OK] and cluster.offset(group) == 6
