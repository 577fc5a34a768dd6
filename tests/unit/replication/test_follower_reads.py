"""How late a follower is, and whether it may answer readers."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.replication.follower import JournalFollower, KnownEnds
from cairnmq.replication.follower_reads import READERS_MS, FollowerReads, sends_within_ms
from cairnmq.replication.history import EpochHistory
from cairnmq.replication.messages import Accepted
from cairnmq.replication.records import JournalRecord, Member

ME, LEADER = Member(2, 20), Member(1, 10)
RECORD = JournalRecord(0, (1, 2, 3), LEADER, 5, (LEADER, ME))


def test_nothing_is_served_before_all_was_shown_once() -> None:
    reads = FollowerReads()
    assert reads.lag_ms(100) is None and not reads.may_serve(100, 1 << 40) and not reads.has_all_of(0)
    reads.shows(80, 81, 100)
    assert not reads.may_serve(100, 1 << 40), "the leader shows one byte more"
    reads.shows(81, 81, 100)
    assert reads.may_serve(150, 50) and not reads.may_serve(151, 50)


def test_it_is_late_from_when_it_asked() -> None:
    """However long the reply was on its way."""
    reads = FollowerReads()
    reads.shows(81, 81, asked_ms=100)
    assert reads.lag_ms(900) == 800
    reads.shows(90, 91, asked_ms=850)
    assert reads.lag_ms(900) == 800, "there is more than is shown"
    reads.shows(91, 91, asked_ms=40)
    assert reads.lag_ms(900) == 800, "a late reply"
    reads.shows(91, 91, asked_ms=860)
    assert reads.lag_ms(900) == 40 and reads.has_all_of(860) and not reads.has_all_of(861)


def test_readers_count_for_a_while() -> None:
    reads = FollowerReads()
    assert not reads.has_readers(0)
    reads.read(1_000)
    assert reads.has_readers(1_000 + READERS_MS) and not reads.has_readers(1_001 + READERS_MS)


def test_a_leader_expects_more_than_a_follower_asks_of_itself() -> None:
    assert 0 < sends_within_ms(1_000) < 1_000


def test_each_epoch_begins_with_nothing() -> None:
    def follows(epoch: int) -> JournalFollower:
        history = EpochHistory([(1, 0), (3, 40)], 100)
        return JournalFollower(ME, replace(RECORD, epoch=epoch), history, synced=80, known=KnownEnds(100, 100, 3))

    one = follows(5)
    asked = one.position(now_ms=70)
    reply = Accepted(100, 100, sync=False, sent_ms=7)
    one.replied(asked, reply)
    one.appended(reply)
    one.shows(asked, reply, 100)
    assert one.reads.lag_ms(75) == 5
    assert follows(6).reads.lag_ms(75) is None, "the next leader may have lost what this replica shows"


def test_a_request_tells_of_readers() -> None:
    one = JournalFollower(ME, RECORD, EpochHistory([(1, 0)], 100), synced=80, known=KnownEnds())
    assert not one.position(now_ms=70).has_readers
    one.reads.read(70)
    asked = one.position(now_ms=71)
    assert asked.has_readers and asked.asked_ms == 71
