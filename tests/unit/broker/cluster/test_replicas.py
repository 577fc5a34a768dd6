"""All journals of a broker together: marks before acknowledgements, disks that refuse, brokers that come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cairnmq.broker.leadership import NOBODY
from unit.broker.cluster.rig import OneBroker, cluster
from unit.broker.rig import scenario, until


@scenario
async def test_a_journal_is_marked_as_weak_before_acks_all_may_go_unsynced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal(cairn_flush="interval")
        leader = await rig.leader(journal)
        assert not leader.store.syncs_first(rig.queue(leader))
        assert not leader.record(journal).weak and not leader.leadership.admits_unsynced(journal)
        await until(lambda: leader.record(journal).weak)
        assert leader.leadership.admits_unsynced(journal) and not leader.leadership.weak_wanted
        for one in rig.brokers.values():
            await until(lambda one=one: one.leadership.view(journal).is_weak)


@scenario
async def test_a_leader_whose_disk_refuses_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairnmq.broker.cluster.disk_watch.REFUSES_SECONDS", 0.1)
    async with cluster(tmp_path, replica_lag_time_max_ms="1000") as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        await rig.produce(leader, b"before")
        leader.store.loops[journal]._rewriting = True  # nothing makes it writable again by itself
        leader.replica(journal).state.path.refuse("the disk is full")
        second = await rig.leader(journal, but=[leader.number])
        assert second.record(journal).resigned == leader.number
        await rig.produce(second, b"after")


@scenario
async def test_the_only_member_keeps_the_leadership_whatever_its_disk_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cairnmq.broker.cluster.disk_watch.REFUSES_SECONDS", 0.0)
    async with cluster(tmp_path, 1) as rig:
        journal = await rig.journal(factor=1)
        leader = await rig.leader(journal)
        replica = leader.replica(journal)
        replica.state.path.refuse("the disk is full")
        await asyncio.sleep(0.4)
        assert leader.is_ready(journal) and leader.record(journal).resigned is None
        replica.state.path.resume()
        await rig.produce(leader, b"before")


@scenario
async def test_every_broker_knows_who_leads_and_who_is_away(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        others = rig.followers(journal)
        for one in rig.brokers.values():
            await until(lambda one=one: one.leadership.view(journal).leader == leader.number)
            assert [each.node_id for each in one.leadership.brokers] == [1, 2, 3]
        gone = others[0]
        await rig.drop(gone.number)
        for one in rig.brokers.values():
            await until(lambda one=one: one.leadership.view(journal).offline == (gone.number,))
            await until(lambda one=one: gone.number not in one.leadership.view(journal).isr)
        await rig.produce(leader, b"before")
        await rig.start(gone.number)
        await until(lambda: len(leader.leadership.view(journal).isr) == 3)
        assert b"before" in await rig.equal(journal)


@scenario
async def test_broken_links_are_made_again_and_nothing_is_missing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        for number in range(8):
            placed = [rig.append(leader, b"%d-%d" % (number, each)) for each in range(4)]
            for one in rig.brokers.values():
                one.break_links()
            await leader.store.reached(placed[-1])
        content = await rig.equal(journal)
        assert all(b"%d-3" % number in content for number in range(8))
        for one in rig.brokers.values():
            assert not one.replica(journal).state.trouble


@scenario
async def test_a_follower_asks_the_next_leader_and_cuts_what_that_one_lacks(tmp_path: Path) -> None:
    """The leader is cut off while it writes; when it is back, its last records are gone from all."""
    async with cluster(tmp_path, cairn_session_ms="1500") as rig:
        journal = await rig.journal()
        first = await rig.leader(journal)
        await rig.produce(first, b"acknowledged")
        end = first.end(journal)
        await until(lambda: all(one.end(journal) == end for one in rig.brokers.values()))
        for one in rig.followers(journal):
            one.break_links()
        await first.cut_off()
        rig.append(first, b"nobody has heard of it")
        await until(lambda: first.end(journal) > end)
        await rig.drop(first.number)
        second = await rig.leader(journal)
        await rig.produce(second, b"later")
        assert b"nobody has heard" not in second.bytes_of(journal)
        await rig.start(first.number)
        content = await rig.equal(journal)
        assert b"nobody has heard" not in content and b"acknowledged" in content and b"later" in content


@scenario
async def test_what_is_known_is_noted_at_the_end(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        await rig.produce(leader, b"before")
        follower = rig.followers(journal)[0]
        await until(lambda: rig.queue(follower).high_watermark == 1)
        known = follower.replica(journal).state.known
        await rig.stop(follower.number)
        again = await rig.start(follower.number)
        assert again.replica(journal).state.known.replicated >= known.replicated > 0
        assert rig.queue(again).high_watermark == 1, "at once: no leader had to say it"


@scenario
async def test_no_leader_is_told_while_there_is_none(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal(factor=1)
        leader = await rig.leader(journal)
        await rig.drop(leader.number)
        one: OneBroker = next(iter(rig.brokers.values()))
        await until(lambda: one.leadership.view(journal).leader == NOBODY)
        assert one.leadership.refusal(journal) is not None
