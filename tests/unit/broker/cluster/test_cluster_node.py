"""Three brokers: what one writes the others have, and one of them takes over when the leader goes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.coordination.coordinator import Coordinator
from cairnmq.errors import ErrorCode, Unreachable
from cairnmq.metadata.cluster_records import SECRET_KEY
from cairnmq.metadata.store import Put
from cairnmq.replication.records import Member
from unit.broker.cluster.rig import OneBroker, cluster
from unit.broker.rig import scenario, until


@scenario
async def test_what_is_acknowledged_is_on_every_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        await rig.produce(leader, b"before", b"after")
        assert b"after" in await rig.equal(journal)
        for one in rig.followers(journal):
            await until(lambda one=one: rig.queue(one).high_watermark == 2)


@scenario
async def test_a_dropped_leader_is_missed_before_its_session_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path, cairn_session_ms="600000") as rig:
        journal = await rig.journal()
        first = await rig.leader(journal)
        await rig.produce(first, b"before")
        await rig.drop(first.number)
        second = await rig.leader(journal)
        await rig.produce(second, b"after")
        again = await rig.start(first.number)
        await until(lambda: len(again.record(journal).isr) == 3)
        content = await rig.equal(journal)
        assert content.index(b"before") < content.index(b"after")


@scenario
async def test_a_broker_that_stops_hands_over_first_and_comes_back_clean(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        first = await rig.leader(journal)
        await rig.produce(first, b"before")
        await first.broker.hand_over()
        second = await rig.leader(journal, but=[first.number])
        assert journal not in first.leadership.led
        await rig.produce(second, b"after")
        await rig.stop(first.number)
        again = await rig.start(first.number)
        assert again.was_clean and again.node._loop.cluster.view.brokers[again.number].clean
        await until(lambda: len(second.record(journal).isr) == 3)
        await rig.equal(journal)


@scenario
async def test_what_acks_1_promised_is_copied_before_another_broker_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cairnmq.broker.cluster.cluster_node.COPY_SECONDS", 300.0)
    monkeypatch.setattr("cairnmq.broker.cluster.cluster_node.HAND_OVER_SECONDS", 300.0)
    async with cluster(tmp_path, replica_lag_time_max_ms="300000") as rig:
        journal = await rig.journal()
        first = await rig.leader(journal)
        far, near = rig.followers(journal)
        await far.node._links.data.close()  # it copies no more, and does not look dead
        await rig.produce(first, b"acknowledged by one", acks=1)
        handing_over = asyncio.ensure_future(first.broker.hand_over())
        await until(lambda: first.leadership.is_leaving)
        await asyncio.sleep(0.3)
        leader = first.replica(journal).leader
        assert leader is not None and leader.replicated_end < first.end(journal)
        assert not near.node._loop.cluster.view.brokers[first.number].stopping and journal in first.leadership.led
        # The one that has not got it is found dead, so that it cannot lead.
        await rig.drop(far.number)
        await near.node._metadata.remove_dead(far.number, near.node._loop.cluster)
        await handing_over
        second = await rig.leader(journal)
        assert second is near and journal not in first.leadership.led
        assert b"acknowledged by one" in second.bytes_of(journal)


@scenario
async def test_followers_that_do_not_copy_delay_a_stop_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cairnmq.broker.cluster.cluster_node.COPY_SECONDS", 0.1)
    async with cluster(tmp_path, replica_lag_time_max_ms="300000") as rig:
        journal = await rig.journal()
        first = await rig.leader(journal)
        far, _ = rig.followers(journal)
        await far.node._links.data.close()  # it copies no more, and does not look dead
        await rig.produce(first, b"acknowledged by one", acks=1)
        await first.broker.hand_over()
        assert first.node._loop.cluster.view.brokers[first.number].stopping


@scenario
async def test_one_that_stops_after_the_others_acknowledges_nothing_alone(tmp_path: Path) -> None:
    """Those that stopped before it may be started, and elected, while its clients still have connections."""
    async with cluster(tmp_path, 1, 2, replica_lag_time_max_ms="300000") as rig:
        journal = await rig.journal(factor=2)
        last = await rig.leader(journal)
        (first,) = rig.followers(journal)
        await until(lambda: len(last.record(journal).isr) == 2)
        await first.node._metadata.stopping()
        await until(lambda: last.node._loop.cluster.view.brokers[first.number].stopping)
        assert not last.node._to_hand_over() and last.leadership.may_acknowledge_alone(journal)
        await last.broker.hand_over()
        assert journal in last.leadership.led and len(last.record(journal).isr) == 2
        assert not last.leadership.may_acknowledge_alone(journal)


@scenario
async def test_the_last_broker_stops_without_waiting_for_anybody(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as rig:
        journal = await rig.journal(factor=1)
        only = await rig.leader(journal)
        await rig.produce(only, b"before")
        assert not only.node._to_hand_over()
        await only.broker.hand_over()
        assert only.leadership.may_acknowledge_alone(journal), "there is nobody else who could lead"
        await rig.stop(1)
        again = await rig.start(1)
        assert again.was_clean
        await rig.leader(journal)
        assert rig.queue(again).high_watermark == 1


@scenario
async def test_a_session_that_ended_is_followed_by_another_life(tmp_path: Path) -> None:
    """Nothing is lost, and nobody acts on what the earlier life was."""
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        first = await rig.leader(journal)
        await rig.produce(first, b"before")
        life = first.node.identity().broker_epoch
        other = rig.followers(journal)[0]
        await other.node._metadata.remove_dead(first.number, other.node._loop.cluster)  # a false alarm
        await until(lambda: first.node.identity().broker_epoch > life)
        later = first.node.identity().broker_epoch
        await until(lambda: first.record(journal).member(first.number) is not None)
        member = first.record(journal).member(first.number)
        await until(lambda: any(one.broker_epoch == later for one in first.record(journal).isr))
        leader = await rig.leader(journal)
        await rig.produce(leader, b"after")
        assert member is not None and len(leader.record(journal).isr) == 3
        content = await rig.equal(journal)
        assert content.index(b"before") < content.index(b"after")
        hosting = first.store.engine.hosting
        assert hosting is not None and hosting.member.broker_epoch == later


@scenario
async def test_a_session_that_ended_while_the_others_got_another_secret_ends_the_process(tmp_path: Path) -> None:
    """As a start would be refused. A store that is away is no such reason."""
    async with cluster(tmp_path, 1, 2) as rig:
        one, other = rig[1], rig[2]
        store = other.shared.store._store

        def another_secret() -> None:
            kept = store.get(SECRET_KEY)
            assert kept is not None
            assert isinstance(store.transact([Put(SECRET_KEY, b"of another secret", kept.revision)]), int)

        await other.node._loop.call(another_secret)
        register, away = one.shared.store.register, list[str]()

        def first_away(*arguments: Any) -> Member:
            one.shared.store.register = register  # type: ignore[method-assign]
            away.append("once")
            raise Unreachable("the store does not respond")

        one.shared.store.register = first_away  # type: ignore[method-assign]
        await other.node._metadata.remove_dead(1, other.node._loop.cluster)  # a false alarm
        await until(lambda: one.stop_reasons)
        assert away == ["once"] and len(one.stop_reasons) == 1
        assert "this broker has no cairn.cluster.secret, and broker 2 has one" in one.stop_reasons[0]
        assert "secret" not in one.node._loop.away, "the store itself responds"


@scenario
async def test_too_few_brokers_for_coordinators_are_told_to_who_asks(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, 2) as rig:
        coordinators = rig[1].broker.ctx.coordinators
        assert coordinators.find("group") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        text = "consumer groups begin when 3 brokers have been live together"
        await until(lambda: text in coordinators.why(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert coordinators.why(ErrorCode.COORDINATOR_NOT_AVAILABLE).endswith("live now: 1, 2")
        await rig.start(3)
        coordinators.find("group")
        await until(lambda: rig[1].catalog.image.slots is not None)
        await until(lambda: text not in coordinators.why(ErrorCode.COORDINATOR_NOT_AVAILABLE))


@scenario
async def test_slots_are_made_when_somebody_asks_and_each_leader_coordinates_its_own(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        await rig.journal()
        one = rig[1]
        assert one.catalog.image.slots is None
        one.broker.ctx.coordinators.place("group")  # a client asks
        await until(lambda: one.catalog.image.slots is not None)
        for each in rig.brokers.values():
            await until(lambda each=each: each.catalog.image.slots is not None)
        journal = one.broker.ctx.coordinators.place("group")
        assert journal is not None
        leader = await rig.leader(journal)

        def coordinates(broker: OneBroker) -> bool:
            return isinstance(broker.broker.ctx.coordinators.of_group("group"), Coordinator)

        await until(lambda: coordinates(leader))
        assert [broker for broker in rig.brokers.values() if coordinates(broker)] == [leader]
        await rig.drop(leader.number)
        second = await rig.leader(journal)
        await until(lambda: coordinates(second))


@scenario
async def test_an_election_that_is_asked_for_moves_the_leadership(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        first = await rig.leader(journal)
        assert first.record(journal).replicas[0] == first.number
        await rig.drop(first.number)
        second = await rig.leader(journal)
        await rig.start(first.number)
        await until(lambda: len(second.record(journal).isr) == 3)
        third = next(one for one in rig.brokers.values() if one.number not in (first.number, second.number))
        await until(lambda: len(third.record(journal).isr) == 3)
        assert await third.node.elections.preferred(journal) is None, "any broker can be asked"
        await rig.leader(journal, but=[second.number])
        assert rig[first.number].is_ready(journal)


@scenario
async def test_a_broker_that_is_gone_for_good_is_forgotten(tmp_path: Path) -> None:
    """Not while it is up, nor while it is a replica of something."""
    async with cluster(tmp_path, 1, 2) as rig:
        await rig.journal(factor=2)
        await rig.start(3)
        one = rig[1].node
        journals = sorted(one._metadata.view().journals)

        async def refusal(broker: int) -> str:
            refused = await one.forget(broker)
            return "" if refused is None else refused.message

        assert await refusal(9) == "broker 9 is not registered"
        assert await refusal(3) == "broker 3 is up; stop it first"
        await rig.stop(3)
        await rig.stop(2)
        assert await refusal(2) == f"broker 2 is a replica of journals {', '.join(map(str, journals))}"
        assert await refusal(3) == ""
        assert set(one._metadata.view().brokers) == {1, 2}
        await rig.start(3)
        await until(lambda: 3 in one._metadata.view().brokers)
