"""What a leader counts, and when it proposes which change."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.replication.follower_reads import readable
from cairnmq.replication.history import EpochEnd, EpochHistory
from cairnmq.replication.leader import JournalLeader, LeaderSettings
from cairnmq.replication.messages import (
    Accepted,
    Diverging,
    FencedEpoch,
    FetchPosition,
    Gone,
    Room,
    StaleBroker,
    UnknownEpoch,
)
from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member

ME, B, C = Member(1, 11), Member(2, 12), Member(3, 13)
START, LAG_MS = 100, 1_000
RECORD = JournalRecord(0, (1, 2, 3), ME, 5, (ME, B, C))


def cluster(record: JournalRecord = RECORD, revision: int = 40, *brokers: BrokerRecord) -> ClusterView:
    registered = {member.broker: BrokerRecord(member.broker, member.broker_epoch) for member in (ME, B, C)}
    registered.update((one.broker, one) for one in brokers)
    live = {broker: one.broker_epoch for broker, one in registered.items()}
    return ClusterView(revision, 5, {0: Kept(record, revision)}, registered, live)


def leader(record: JournalRecord = RECORD, *, written: int = 150) -> JournalLeader:
    history = EpochHistory([(3, 0), (5, START)], written)
    return JournalLeader(
        ME,
        Kept(record, 40),
        history,
        start=START,
        synced=written,
        replicated_end=90,
        durable_end=80,
        now_ms=0,
        settings=LeaderSettings(LAG_MS),
    )


def asks(one: JournalLeader, follower: Member, end: int, synced: int, now_ms: int = 10) -> object:
    asked = FetchPosition(follower, 5, end, 5 if end > START else 3, synced)
    return one.fetched(asked, cluster(one.record), now_ms)


def ends(one: JournalLeader) -> tuple[int, int]:
    return one.replicated_end, one.durable_end


def test_nothing_moves_before_every_member_was_heard_in_this_epoch() -> None:
    one = leader()
    asks(one, B, 150, 150)
    assert ends(one) == (90, 80) and not one.ready
    asks(one, C, 130, 120)
    assert ends(one) == (130, 120) and one.ready


def test_ends_never_fall() -> None:
    one = leader()
    for end in (150, 120):
        asks(one, B, end, end)
        asks(one, C, end, end)
    assert ends(one) == (150, 150)


def test_what_is_checked_before_a_position_counts() -> None:
    one = leader()
    view = cluster()
    asked = FetchPosition(B, 5, 150, 5, 150)
    assert one.fetched(replace(asked, epoch=4), view, 0) == FencedEpoch(5)
    assert one.fetched(replace(asked, epoch=6), view, 0) == UnknownEpoch()
    assert one.fetched(replace(asked, follower=Member(2, 11)), view, 0) == StaleBroker()
    assert one.fetched(replace(asked, follower=Member(2, 13)), view, 0) == UnknownEpoch()
    assert one.fetched(replace(asked, end=160), view, 0) == Diverging(EpochEnd(5, 150))
    assert one.fetched(replace(asked, last_epoch=4), view, 0) == Diverging(EpochEnd(3, START))
    asks(one, C, 150, 150)
    assert ends(one) == (90, 80), "none of them has counted"


def test_a_member_that_lags_leaves_after_the_others_have_synced() -> None:
    one = leader()
    asks(one, B, 150, 100)
    asks(one, C, 150, 150)
    late = LAG_MS + 500
    asks(one, B, 150, 100, late)
    assert one.propose(cluster(), late) is None, "B has not synced what may have been acknowledged"
    assert one.sync_wanted(cluster(), late) == 150
    asks(one, B, 150, 150, late)
    proposal = one.propose(cluster(), late)
    assert proposal is not None and proposal.record.isr == (ME, B) and proposal.expect == 40


def test_a_member_whose_session_has_ended_leaves_without_the_lag_time() -> None:
    one = leader()
    asks(one, C, 150, 150)
    view = cluster()
    without_b = replace(view, live={broker: epoch for broker, epoch in view.live.items() if broker != B.broker})
    assert one.propose(view, 20) is None
    proposal = one.propose(without_b, 20)
    assert proposal is not None and proposal.record.isr == (ME, C)
    patient = JournalLeader(
        ME,
        Kept(RECORD, 40),
        EpochHistory([(3, 0), (5, START)], 150),
        start=START,
        synced=150,
        replicated_end=90,
        durable_end=80,
        now_ms=0,
        settings=LeaderSettings(LAG_MS, prompt=False),
    )
    asks(patient, C, 150, 150)
    assert patient.propose(without_b, 20) is None


def test_a_leader_whose_disk_hangs_resigns() -> None:
    one = leader()
    resignation = one.resign()
    assert resignation is not None and resignation.expect == 40
    assert (resignation.record.leader, resignation.record.resigned, resignation.record.isr) == (None, 1, (ME, B, C))
    assert one.in_flight and one.resign() is None


def test_the_replicated_end_stands_still_while_a_member_leaves() -> None:
    one = leader()
    late = LAG_MS + 500
    asks(one, C, 150, 150)
    asks(one, B, 150, 150, late)
    assert one.propose(cluster(), late) is not None and one.in_flight
    one.history.extend(200)
    one.written()
    asks(one, B, 200, 200, late)
    asks(one, C, 200, 200, late)
    assert one.replicated_end == 150
    assert one.seen(Kept(replace(RECORD, isr=(ME, B)), 41))
    one.synced_to(200)
    assert ends(one) == (200, 200)


def test_a_proposed_member_counts_until_the_outcome_is_known() -> None:
    alone_with_b = replace(RECORD, isr=(ME, B))
    one = leader(alone_with_b)
    asks(one, B, 150, 150)
    asks(one, C, 150, 150)
    proposal = one.propose(cluster(alone_with_b), 20)
    assert proposal is not None and proposal.record.isr == (ME, B, C) and proposal.registered == (ME, C)
    one.history.extend(200)
    one.written()
    asks(one, B, 200, 200)
    assert one.replicated_end == 150 and one.in_sync() == 2
    one.refused()
    assert one.replicated_end == 200, "without the change C does not count"


def test_who_may_join() -> None:
    alone_with_b = replace(RECORD, isr=(ME, B))
    one = leader(alone_with_b)
    asks(one, B, 150, 150)
    asks(one, C, 149, 149)
    assert one.propose(cluster(alone_with_b), 20) is None, "it lacks what is replicated"
    asks(one, C, 150, 149)
    assert one.propose(cluster(alone_with_b), 20) is None, "it has not synced what is durable"
    asks(one, C, 150, 150)
    later_life = cluster(alone_with_b, 40, BrokerRecord(3, 14))
    assert one.propose(later_life, 20) is None, "it is no longer registered"
    assert one.propose(cluster(alone_with_b), 20) is not None


def test_a_leader_that_would_be_alone_resigns_once() -> None:
    one = leader()
    late = LAG_MS + 500
    resignation = one.propose(cluster(), late)
    assert resignation is not None
    assert (resignation.record.leader, resignation.record.resigned, resignation.record.isr) == (None, 1, (ME, B, C))
    second = leader(replace(RECORD, resigned=2))
    alone = second.propose(cluster(), late)
    assert alone is not None and alone.record.isr == (ME,) and alone.record.leader == ME


def test_it_is_over_when_the_record_says_so() -> None:
    one = leader()
    assert one.seen(Kept(replace(RECORD, epoch=4), 39)), "older than what it knows"
    assert not one.seen(Kept(replace(RECORD, epoch=6), 41))
    assert not leader().seen(Kept(replace(RECORD, leader=Member(1, 12)), 41)), "another life"


def test_the_mark_of_weak_journals_is_proposed_once() -> None:
    one = leader()
    proposal = one.admit_weak()
    assert proposal is not None and proposal.record.weak
    assert one.admit_weak() is None
    assert one.seen(Kept(proposal.record, 41)) and one.admit_weak() is None


def test_a_producer_that_waits_for_a_sync_makes_followers_sync() -> None:
    one = leader()
    one.durable_wanted = 150
    assert asks(one, B, 150, 120) == Accepted(90, 80, sync=True, sent_ms=10)
    assert asks(one, C, 150, 150) == Accepted(150, 120, sync=False, sent_ms=10)


def test_what_is_before_the_own_beginning_is_gone_whatever_epoch_it_is_of() -> None:
    one = leader()
    one.first = 60
    assert asks(one, B, 59, 59) == Gone(60)
    old = FetchPosition(B, 5, 30, 2, 30)
    assert one.fetched(old, cluster(), 10) == Gone(60), "its epochs say nothing about what is not here"
    assert isinstance(asks(one, B, 60, 60), Accepted)


def tells(one: JournalLeader, follower: Member, room: Room, now_ms: int) -> object:
    return one.fetched(FetchPosition(follower, 5, 150, 5, 150, room=room), cluster(one.record), now_ms)


def test_answers_say_from_where_on_the_journal_is_kept() -> None:
    one = leader()
    one.room.checkpointed = 85
    for follower, checkpointed, kept in ((B, 60, 0), (C, 70, 60)):
        accepted = tells(one, follower, Room(checkpointed), 10)
        assert isinstance(accepted, Accepted) and accepted.keep_from == kept


def test_a_follower_before_the_journal_is_gone() -> None:
    one = leader()
    one.first = 120
    assert asks(one, B, 110, 110) == Gone(120)
    one.history = EpochHistory([(5, 120)], 150)  # as a start finds it
    asked = FetchPosition(B, 5, 130, 3, 130)
    assert one.fetched(asked, cluster(), 10) == Gone(120), "nobody knows where its last epoch ended"


def test_a_follower_without_room_leaves_without_a_resignation() -> None:
    record = replace(RECORD, isr=(ME, B))
    one = leader(record)
    one.room.producers_wait = True
    short = Room(0, 95)
    for now_ms in (0, 600, 1_200):
        tells(one, B, short, now_ms)
        proposal = one.propose(cluster(record), now_ms)
    assert proposal is not None and proposal.record.isr == (ME,) and proposal.record.leader == ME


def test_a_follower_without_room_does_not_join() -> None:
    record = replace(RECORD, isr=(ME, B))
    one = leader(record)
    tells(one, B, Room(), 10)
    tells(one, C, Room(0, 95), 10)
    assert one.propose(cluster(record), 10) is None
    tells(one, C, Room(0, 50), 20)
    proposal = one.propose(cluster(record), 20)
    assert proposal is not None and proposal.record.isr == (ME, B, C)


def test_syncs_are_wanted_while_producers_wait_for_splitters() -> None:
    one = leader(written=150)
    one.synced = 120
    for member in (B, C):
        asks(one, member, 150, 120)
    assert one.sync_wanted(cluster(), 10) == 0
    one.room.producers_wait = True
    assert one.sync_wanted(cluster(), 10) == 150


def test_whom_readers_are_sent_to() -> None:
    one = leader()
    view = cluster()
    asks(one, B, 150, 150, now_ms=20)
    assert readable(one, view, 20, 500) == [], "it is not certain yet how far queues are"
    asks(one, C, 140, 140, now_ms=20)
    assert one.ready
    assert readable(one, view, 20, 500) == [2], "broker 3 has not had all since the epoch began"
    assert readable(one, view, 20, 0) == [2] and readable(one, view, 30, 9) == []
    asks(one, C, 150, 150, now_ms=25)
    assert readable(one, view, 30, 500) == [2, 3]
    stopping = cluster(RECORD, 40, BrokerRecord(2, 12, stopping=True))
    assert readable(one, stopping, 30, 500) == [3]
    dead = replace(view, live={1: 11, 2: 12})
    assert readable(one, dead, 30, 500) == [2]
    one.seen(Kept(RECORD.without([B]), 41))
    assert readable(one, view, 30, 500) == [3], "out of the ISR"


def test_followers_tell_whether_they_have_readers() -> None:
    one = leader()
    asked = FetchPosition(B, 5, 150, 5, 150, has_readers=True)
    assert not one.followers.have_readers
    one.fetched(asked, cluster(), 10)
    assert one.followers.have_readers
    one.fetched(replace(asked, has_readers=False), cluster(), 20)
    assert not one.followers.have_readers
