"""A replica takes the role that its record says, also when the disk or the metadata are slow, or away."""

from __future__ import annotations

import asyncio
import errno

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster import journal_replica
from cairnmq.replication.history import EpochEnd
from cairnmq.replication.messages import Accepted, Diverging, FencedEpoch
from cairnmq.replication.records import BrokerRecord, Member, PublishedEnd
from cairnmq.storage.files.damage import Place
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.write_path import WritePath
from cairnmq.testing.sim_disk import SimDisk
from unit.broker.cluster.replica_desk import RECORD, A, B, C, Desk, Source, fed, follows
from unit.broker.rig import scenario, until

LEADERLESS = replace(RECORD, leader=None, epoch=21)
LED_BY_B = replace(RECORD, leader=B, epoch=21)


def refuse(desk: Desk, *operations: str) -> None:
    """The disk refuses these from now on."""

    def observe(disk: SimDisk) -> None:
        if disk.last_operation.startswith(operations):
            raise OSError(errno.EIO, "no")

    desk.disk.observe = observe


# ------------------------------------------------------------------------------------------------------------ elected


@scenario
async def test_it_leads_when_the_head_of_the_epoch_is_written_and_not_before() -> None:
    async with Desk() as desk:
        gate = desk.hold_writes()
        desk.see(RECORD)
        await until(lambda: isinstance(desk.state.path, WritePath))
        await asyncio.sleep(0.01)
        assert desk.replica.leader is None and not desk.told and desk.end == 0
        gate.set()
        await until(lambda: desk.replica.leader is not None)
        assert desk.leads_from == [desk.end] and desk.end > 0
        assert desk.is_true() and desk.histories[0] == [(20, 0)]


@scenario
async def test_it_is_ready_when_all_members_have_the_head() -> None:
    async with Desk() as desk:
        await desk.lead()
        desk.asked(B)
        assert "ready" not in desk.told and not desk.replica.is_ready
        desk.asked(C, end=0)
        assert not desk.replica.is_ready
        desk.asked(C)
        assert desk.replica.is_ready and desk.told.count("ready") == 1


@pytest.mark.parametrize("is_stopped", [False, True], ids=["refuses the head", "refuses before"])
@scenario
async def test_a_disk_that_refuses_gives_the_leadership_back(is_stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_replica, "HEAD_SECONDS", 0.1)
    async with Desk() as desk:
        refuse(desk, "append ", "create ")
        if is_stopped:
            desk.state.path.refuse("the disk refused what a leader sent")
        kept = desk.see(RECORD)
        await until(lambda: desk.proposals)
        assert desk.proposals[0].record == replace(RECORD, leader=None, resigned=1)
        assert desk.proposals[0].expect == kept.revision and desk.proposals[0].registered == (A,)
        await until(lambda: isinstance(desk.state.path, FollowPath))
        assert desk.replica.leader is None and "leads" not in desk.told
        assert "elected, and the disk takes no writes" in desk.state.trouble


@scenario
async def test_a_write_that_hangs_gives_the_leadership_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's write, which nobody may overtake."""
    monkeypatch.setattr(journal_replica, "HEAD_SECONDS", 0.1)
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, replace(RECORD, leader=B))
        gate = desk.hold_writes()
        waits = asyncio.ensure_future(fed(desk, source))
        await until(lambda: desk.loop._writing)
        desk.see(replace(RECORD, epoch=21))
        await until(lambda: desk.proposals)
        assert desk.proposals[0].record.leader is None and desk.proposals[0].record.resigned == 1
        gate.set()
        await waits
        assert desk.is_true()


@scenario
async def test_a_disk_that_refuses_for_a_moment_costs_nothing() -> None:
    async with Desk() as desk:
        desk.disk.faults[desk.disk.operations + 1] = errno.EIO
        await desk.lead()
        assert not desk.proposals and desk.is_true()


@scenario
async def test_a_head_that_came_too_late_is_known_and_the_leadership_still_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_replica, "HEAD_SECONDS", 0.05)
    async with Desk() as desk:
        gate, desk.is_away = desk.hold_writes(), True
        desk.see(RECORD)
        await until(lambda: desk.proposals)
        gate.set()
        await until(lambda: isinstance(desk.state.path, FollowPath) and desk.end > 0)
        await until(desk.is_true)
        assert desk.histories[0] == [(20, 0)], "the bytes are of the epoch in which it was elected"
        before, desk.is_away = len(desk.proposals), False
        await until(lambda: desk.cluster.kept is not None and desk.cluster.kept.record.leader is None)
        assert len(desk.proposals) > before and "leads" not in desk.told
        await until(lambda: desk.published)
        assert desk.published[0] == PublishedEnd(20, 20, desk.end)


@scenario
async def test_after_a_head_that_was_never_written_bytes_of_earlier_epochs_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another member has more of the epoch before, and is elected next."""
    monkeypatch.setattr(journal_replica, "HEAD_SECONDS", 0.05)
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, replace(RECORD, leader=B))
        await fed(desk, source)
        refuse(desk, "append ", "create ")
        desk.see(replace(RECORD, epoch=21))
        await until(lambda: desk.proposals and isinstance(desk.state.path, FollowPath))
        desk.disk.observe = None
        source.put()
        source.elected(22)
        await follows(desk, source, replace(RECORD, leader=B, epoch=22))
        await until(lambda: desk.state.path.stopped is None)
        await fed(desk, source)
        assert desk.end == source.machine.end() and desk.is_true()
        assert [epoch for epoch, _ in desk.histories[0]] == [20, 22]


@scenario
async def test_entries_of_queues_that_nobody_knows_wait_for_the_metadata() -> None:
    async with Desk() as desk:
        source = Source()
        source.put()
        await follows(desk, source, replace(RECORD, leader=B))
        await fed(desk, source)
        assert desk.machine.engine.hosting is not None
        path = desk.machine.following()
        known, path._fold.next_queue = path._fold.next_queue, 1
        desk.see(replace(RECORD, epoch=21))
        await until(lambda: desk.rereads >= 2)
        assert desk.replica.leader is None and not desk.proposals, "it is not the disk's fault"
        desk.store.knows_queues(known)
        await until(lambda: desk.replica.leader is not None)
        assert desk.is_true()


@scenario
async def test_an_election_that_is_over_before_the_head_is_there_does_not_count() -> None:
    async with Desk() as desk:
        gate = desk.hold_writes()
        desk.see(RECORD)
        await until(lambda: isinstance(desk.state.path, WritePath))
        desk.see(LED_BY_B)
        gate.set()
        await until(lambda: "follows 2" in desk.told)
        assert "leads" not in desk.told and isinstance(desk.state.path, FollowPath)
        assert desk.is_true() and desk.histories[0] == [(20, 0)]


# --------------------------------------------------------------------------------------------------------------- lost


@scenario
async def test_who_waits_hears_at_once_that_it_leads_no_more() -> None:
    async with Desk() as desk:
        await desk.lead()
        placed, answers = desk.put(), list[bool]()
        desk.store.when(placed, answers.append)
        await until(lambda: desk.end == placed.end)
        desk.see(LED_BY_B)
        assert desk.told[-1] == "lost" and desk.replica.leader is None, "in the same turn"
        assert desk.asked(B) is None
        await until(lambda: answers)
        assert answers == [False]
        await until(lambda: "follows 2" in desk.told)
        assert desk.is_true() and desk.end == placed.end, "what is written stays until its leader says so"


@scenario
async def test_a_group_that_is_being_written_while_the_leadership_ends_is_in_the_history() -> None:
    async with Desk() as desk:
        await desk.lead()
        gate = desk.hold_writes()
        placed = desk.put()
        await until(lambda: desk.loop._writing)
        desk.see(LED_BY_B)
        await asyncio.sleep(0.01)
        assert isinstance(desk.state.path, WritePath)
        gate.set()
        await until(lambda: "follows 2" in desk.told)
        assert desk.end == placed.end and desk.is_true()


@scenario
async def test_without_a_session_it_leads_nothing_and_in_the_next_life_only_after_an_election() -> None:
    async with Desk() as desk:
        await desk.lead()
        desk.member = None
        desk.replica.see(desk.cluster.kept)
        assert desk.told[-1] == "lost" and not desk.replica.may_answer_alone()
        await until(lambda: isinstance(desk.state.path, FollowPath))
        desk.member = later = Member(1, 40)
        desk.replica.see(desk.cluster.kept)
        await asyncio.sleep(0.01)
        assert desk.replica.leader is None, "it was elected in another life"
        await desk.lead(replace(RECORD, leader=later, isr=(later, B, C), epoch=41))
        assert desk.leader.me == later and desk.is_true()


# ------------------------------------------------------------------------------------------------- changes of the ISR


def away(desk: Desk, member: Member) -> None:
    del desk.cluster.live[member.broker]


@scenario
async def test_while_it_is_not_known_who_joined_both_sets_count() -> None:
    async with Desk() as desk:
        await desk.lead(replace(RECORD, isr=(A, B)))
        desk.asked(B)
        replicated = desk.leader.replicated_end
        assert replicated == desk.end
        desk.asked(C)
        desk.held = asyncio.Event()
        desk.replica.look_after(desk.cluster.view())
        await until(lambda: desk.proposals)
        assert desk.proposals[0].record.isr == (A, B, C) and desk.proposals[0].registered == (A, C)
        await desk.produced()
        desk.asked(B)
        assert desk.leader.replicated_end == replicated, "C may be a member"
        desk.is_away = True
        desk.held.set()
        await asyncio.sleep(0.01)
        desk.asked(B)
        assert desk.leader.in_flight and desk.leader.replicated_end == replicated, "nobody can say"
        desk.is_away = False
        await until(lambda: not desk.leader.in_flight)
        assert desk.leader.replicated_end == desk.end, "it was not made"


@scenario
async def test_the_end_of_one_change_is_not_that_of_the_next() -> None:
    """A change was seen, and the next one is under way, before whoever made the first one is back."""
    async with Desk() as desk:
        await desk.lead(replace(RECORD, isr=(A, B)))
        desk.asked(B)
        first = desk.held = asyncio.Event()
        desk.replica.admit_weak()
        await until(lambda: desk.proposals)
        desk.see(desk.proposals[0].record)  # the metadata are looked at all the time
        assert desk.leader.record.weak and not desk.leader.in_flight
        desk.asked(C)
        desk.held = asyncio.Event()
        desk.replica.look_after(desk.cluster.view())
        await until(lambda: len(desk.proposals) == 2)
        rereads = desk.rereads
        first.set()
        await until(lambda: desk.rereads > rereads)
        await asyncio.sleep(0.01)
        assert desk.leader.in_flight and desk.leader.members() == {A, B, C}
        replicated = desk.leader.replicated_end
        await desk.produced()
        desk.asked(B)
        assert desk.leader.replicated_end == replicated, "C may be a member"
        desk.held.set()
        await until(lambda: desk.leader.record.isr == (A, B, C))


@scenario
async def test_leadership_that_ends_while_a_change_is_under_way_ends_both() -> None:
    async with Desk() as desk:
        leader = await desk.lead(replace(RECORD, isr=(A, B)))
        desk.asked(C)
        desk.held = asyncio.Event()
        desk.replica.look_after(desk.cluster.view())
        await until(lambda: desk.proposals)
        desk.see(replace(LED_BY_B, isr=(A, B)))
        desk.held.set()
        await until(lambda: "follows 2" in desk.told)
        again = await desk.lead(replace(RECORD, epoch=22, isr=(A, B)))
        assert again is not leader and not again.in_flight
        assert desk.cluster.kept is not None and desk.cluster.kept.record.isr == (A, B)


@scenario
async def test_a_member_without_a_session_leaves_when_the_others_have_synced() -> None:
    async with Desk() as desk:
        await desk.lead()
        await desk.produced()
        desk.asked(B, synced=0)
        desk.asked(C)
        away(desk, C)
        desk.replica.look_after(desk.cluster.view())
        assert not desk.proposals and "news" in desk.told
        reply = desk.asked(B, synced=0)
        assert isinstance(reply, Accepted) and reply.sync, "B is asked to sync"
        desk.asked(B)
        await until(lambda: desk.state.path.journal.synced == desk.end)
        desk.replica.look_after(desk.cluster.view())
        await until(lambda: desk.leader.record.isr == (A, B))


@scenario
async def test_the_lease_is_that_of_the_store_or_of_members() -> None:
    async with Desk() as desk:
        await desk.lead()
        assert desk.replica.may_answer_alone()
        desk.time_ms += desk.session_ms
        assert not desk.replica.may_answer_alone()
        desk.asked(B)
        assert desk.replica.may_answer_alone(), "a member has echoed what was sent just now"
        desk.time_ms += desk.session_ms
        assert not desk.replica.may_answer_alone()
        desk.confirmed = desk.time_ms
        desk.replica.look_after(desk.cluster.view())
        assert desk.replica.may_answer_alone()
        desk.time_ms += desk.session_ms
        desk.see(replace(RECORD, isr=(A,)))
        assert desk.replica.may_answer_alone(), "nobody else can be elected"


@scenario
async def test_a_stranger_in_sync_confirms_no_lease() -> None:
    async with Desk() as desk:
        await desk.lead(replace(RECORD, isr=(A, B)))
        desk.time_ms += desk.session_ms
        desk.asked(C)
        assert not desk.replica.may_answer_alone(), "C is no member: it may follow another leader tomorrow"


# --------------------------------------------------------------------------------------------------- without a leader


@scenario
async def test_the_end_is_published_when_nothing_is_under_way() -> None:
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, replace(RECORD, leader=B))
        gate = desk.hold_writes()
        waits = asyncio.ensure_future(fed(desk, source))
        await until(lambda: desk.loop._writing)
        desk.see(LEADERLESS)
        await until(lambda: desk.copying.follower is None)
        await asyncio.sleep(0.01)
        assert not desk.published
        gate.set()
        await waits
        await until(lambda: desk.published)
        assert desk.published == [PublishedEnd(21, 20, source.machine.end())] and desk.is_true()
        desk.replica.see(desk.cluster.kept)
        await asyncio.sleep(0.01)
        assert len(desk.published) == 1, "once"


@scenario
async def test_a_cut_that_waits_for_the_disk_is_done_before_the_end_is_published() -> None:
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, replace(RECORD, leader=B))
        await fed(desk, source)
        parted = desk.end
        await fed_more(desk, source)
        other = Source(C, 20)
        gate = desk.hold_syncs()
        desk.loop.sync()
        await follows(desk, other, replace(RECORD, leader=C, epoch=21))
        cut = asyncio.ensure_future(diverged(desk, parted))
        await until(lambda: desk.loop._noting.locked())
        desk.see(replace(LEADERLESS, epoch=22))
        await until(lambda: desk.copying.follower is None)
        await asyncio.sleep(0.01)
        assert not desk.published, "it would tell of bytes that go"
        gate.set()
        await cut
        await until(lambda: desk.published)
        assert desk.published == [PublishedEnd(22, 20, parted)] and desk.end == parted and desk.is_true()


async def fed_more(desk: Desk, source: Source) -> None:
    source.put()
    await fed(desk, source)


async def diverged(desk: Desk, end: int) -> None:
    """Its leader's journal ends there."""
    assert desk.copying.follower is not None
    await desk.copying.replied(desk.copying.follower.position(), Diverging(EpochEnd(20, end)), memoryview(b""))


@scenario
async def test_each_life_publishes_the_end() -> None:
    """A registration begins without ends."""
    async with Desk() as desk:
        desk.see(LEADERLESS)
        await until(lambda: desk.published)
        desk.member = None
        desk.replica.see(desk.cluster.kept)
        desk.member = Member(1, 40)
        desk.replica.see(desk.cluster.kept)
        await until(lambda: len(desk.published) == 2)
        assert desk.published[0] == desk.published[1] == PublishedEnd(21, 0, 0)


@scenario
async def test_who_is_no_member_publishes_nothing() -> None:
    async with Desk() as desk:
        desk.see(replace(LEADERLESS, isr=(B, C)))
        await until(lambda: desk.replica.epoch == 21)
        await asyncio.sleep(0.01)
        assert not desk.published and "whole" not in desk.told


@scenario
async def test_who_is_no_member_tells_how_far_it_reaches_when_nobody_in_sync_is_there() -> None:
    """A person who gives up what they have must know who is next."""
    async with Desk() as desk:
        desk.cluster.live = {1: A.broker_epoch, 2: B.broker_epoch + 40}  # C is away, and B has restarted
        desk.see(replace(LEADERLESS, isr=(B, C)))
        await until(lambda: desk.published)
        assert desk.published == [PublishedEnd(21, 0, 0)] and "whole" not in desk.told


@scenario
async def test_who_is_damaged_and_was_not_cut_tells_nothing() -> None:
    """It takes no entries, so it cannot lead."""
    async with Desk() as desk:
        desk.store.engine.scans[desk.replica.number].damage = Place("0/x", 5)
        desk.see(LEADERLESS)
        await until(lambda: desk.replica.epoch == 21)
        await asyncio.sleep(0.01)
        assert not desk.published


# ---------------------------------------------------------------------------------------------------------- followers


@scenario
async def test_requests_of_other_epochs_and_lives_are_told_so() -> None:
    async with Desk() as desk:
        await desk.lead()
        view = desk.cluster.view()
        position = desk.position(B)
        assert desk.replica.asked(replace(position, epoch=19), view) == FencedEpoch(20)
        desk.cluster.brokers[2] = BrokerRecord(2, 99)
        assert type(desk.replica.asked(position, desk.cluster.view())).__name__ == "StaleBroker"


@scenario
async def test_records_wait_for_all_members_before_readers_see_them() -> None:
    async with Desk() as desk:
        await desk.lead()
        queue = desk.machine.engine.queues[1]
        await desk.produced()
        desk.asked(B)
        assert queue.high_watermark == 0
        desk.asked(C)
        await until(lambda: desk.state.path.journal.synced == desk.end)
        assert queue.high_watermark == 1, "all have written and synced it"
