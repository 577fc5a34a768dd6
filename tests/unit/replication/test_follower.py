"""What a follower does with its leader's replies."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.replication.follower import Append, Cut, Ignore, Install, JournalFollower, KnownEnds, Reread, Stop
from cairnmq.replication.history import EpochEnd, EpochHistory
from cairnmq.replication.messages import Accepted, Diverging, FencedEpoch, Gone, StaleBroker, UnknownEpoch
from cairnmq.replication.records import JournalRecord, Member

ME, LEADER = Member(2, 20), Member(1, 10)
RECORD = JournalRecord(0, (1, 2, 3), LEADER, 5, (LEADER, ME))


def follower(known: KnownEnds = KnownEnds(60, 50, 3), record: JournalRecord = RECORD) -> JournalFollower:  # noqa: B008
    return JournalFollower(ME, record, EpochHistory([(1, 0), (3, 40)], 100), synced=80, known=known)


def test_it_asks_from_its_own_end() -> None:
    asked = follower().position()
    assert (asked.follower, asked.epoch, asked.end, asked.last_epoch, asked.synced) == (ME, 5, 100, 3, 80)


def test_ends_are_known_only_as_far_as_the_own_journal_reaches() -> None:
    one = follower()
    reply = Accepted(500, 90, sync=True, sent_ms=7)
    assert one.replied(one.position(), reply) == Append(sync=True)
    one.appended(reply)
    assert one.known == KnownEnds(100, 90, 5)
    assert one.position().echo_ms == 7


def test_it_cuts_where_the_leader_parts_from_it() -> None:
    one = follower()
    assert one.replied(one.position(), Diverging(EpochEnd(3, 70))) == Cut(70)
    one.was_cut(70)
    assert (one.history.end, one.synced) == (70, 70)


def test_it_never_cuts_below_the_replicated_end() -> None:
    one = follower()
    step = one.replied(one.position(), Diverging(EpochEnd(3, 59)))
    assert isinstance(step, Stop) and "lacks replicated bytes from 59 on" in step.reason


def test_after_a_recovery_election_it_cuts_down_to_the_durable_end() -> None:
    recovered = replace(RECORD, recovered=4)
    one = follower(record=recovered)
    assert one.replied(one.position(), Diverging(EpochEnd(3, 50))) == Cut(50)
    assert isinstance(one.replied(one.position(), Diverging(EpochEnd(3, 49))), Stop)
    later = follower(KnownEnds(60, 50, 4), recovered)
    assert isinstance(later.replied(later.position(), Diverging(EpochEnd(3, 59))), Stop), "learned after it"


def test_after_an_unclean_election_it_cuts_anywhere() -> None:
    one = follower(record=replace(RECORD, unclean=5))
    assert one.replied(one.position(), Diverging(EpochEnd(1, 10))) == Cut(10)
    one.was_cut(10)
    assert one.known == KnownEnds(10, 10, 3)


def test_a_late_reply_means_nothing() -> None:
    """Also when the journal has grown to the same end again after a cut."""
    one = follower()
    asked = one.position()
    one.was_cut(70)
    one.history.begin(5, 70)
    one.history.extend(100)
    assert one.replied(asked, Diverging(EpochEnd(3, 70))) == Ignore()
    assert one.replied(replace(asked, epoch=4), Accepted(1, 1, sync=False, sent_ms=0)) == Ignore()


def test_who_knows_more_is_believed_by_reading_again() -> None:
    one = follower()
    for reply in (FencedEpoch(6), UnknownEpoch(), StaleBroker()):
        assert one.replied(one.position(), reply) == Reread()


def test_after_a_position_that_is_gone_all_of_the_journal_is_taken_over() -> None:
    one = follower()
    assert one.replied(one.position(), Gone(400)) == Install(400)
