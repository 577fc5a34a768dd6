"""Elections, one situation at a time."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.replication.controller import (
    ABSENT_MAX_MS,
    PREFERRED_AFTER_MS,
    PREFERRED_EVERY_MS,
    ControllerMemory,
    decide,
    elect_preferred,
    elect_unclean,
    preferred_due,
    reach,
    unclean_winner,
)
from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member, Proposal, PublishedEnd

A, B, C = Member(1, 11), Member(2, 12), Member(3, 13)
RECORD = JournalRecord(7, (1, 2, 3), A, 20, (A, B, C))


def view(record: JournalRecord, *brokers: BrokerRecord, live: tuple[Member, ...] = ()) -> ClusterView:
    registered = {member.broker: BrokerRecord(member.broker, member.broker_epoch) for member in (A, B, C)}
    registered.update((one.broker, one) for one in brokers)
    sessions = {member.broker: member.broker_epoch for member in live}
    return ClusterView(50, 30, {7: Kept(record, 44)}, registered, sessions)


def due(seen: ClusterView, memory: ControllerMemory | None = None, now_ms: int = 0) -> Proposal | None:
    proposals = decide(seen, memory or ControllerMemory(), now_ms)
    assert len(proposals) <= 1
    return proposals[0] if proposals else None


def test_nothing_while_the_leader_is_live() -> None:
    assert due(view(RECORD, live=(A, B, C))) is None


def test_the_first_live_member_leads_under_a_new_epoch_and_the_isr_stays() -> None:
    assert due(view(RECORD, live=(B, C))) == Proposal(
        replace(RECORD, leader=B, epoch=31), 44, registered=(B,), new_epoch=31
    )


def test_all_journals_of_a_dead_leader_move_at_once() -> None:
    """In one transaction, under one new epoch. Partitions are no part of it, however many there are."""
    led = {
        number: Kept(replace(RECORD, journal=number, leader=A if number % 2 else B), 40 + number)
        for number in range(1, 9)
    }
    seen = replace(view(RECORD, live=(B, C)), journals=led)
    proposals = decide(seen, ControllerMemory(), 0)
    assert [(one.record.journal, one.expect) for one in proposals] == [(1, 41), (3, 43), (5, 45), (7, 47)]
    assert {(one.record.leader, one.record.epoch, one.new_epoch) for one in proposals} == {(B, 31, 31)}


def test_who_resigned_leads_again_only_if_nobody_else_can() -> None:
    resigned = replace(RECORD, leader=None, resigned=1)
    assert _leader(due(view(resigned, live=(A, C)))) == C
    assert _leader(due(view(resigned, live=(A,)))) == A


def test_a_stopping_leader_hands_over() -> None:
    stopping = BrokerRecord(1, 11, stopping=True)
    assert _leader(due(view(RECORD, stopping, live=(A, B)))) == B
    assert due(view(RECORD, stopping, live=(A,))) is None


def test_leadership_goes_back_to_the_first_replica_after_a_while_one_journal_at_a_time() -> None:
    led_by_b = replace(RECORD, leader=B)
    seen = view(led_by_b, live=(A, B, C))
    seen = replace(seen, journals={7: Kept(led_by_b, 44), 8: Kept(replace(led_by_b, journal=8), 45)})
    memory = ControllerMemory()
    assert preferred_due(seen, memory, 0) is None
    assert preferred_due(seen, memory, PREFERRED_AFTER_MS - 1) is None
    first = preferred_due(seen, memory, PREFERRED_AFTER_MS)
    assert first is not None and first.record.leader == A and first.record.epoch == 31
    assert preferred_due(seen, memory, PREFERRED_AFTER_MS + PREFERRED_EVERY_MS - 1) is None
    assert preferred_due(seen, memory, PREFERRED_AFTER_MS + PREFERRED_EVERY_MS) is not None
    without_a = replace(seen, live={2: 12, 3: 13})
    assert preferred_due(without_a, memory, 3 * PREFERRED_AFTER_MS) is None and not memory.returnable


def test_an_unclean_election_takes_who_reaches_furthest_and_marks_the_record() -> None:
    lost = replace(RECORD, leader=None, epoch=25, isr=(A, B))
    assert elect_unclean(view(lost, live=(A, C)), 7) is None, "A has everything"
    assert elect_unclean(view(lost), 7) is None, "nobody is there"
    b = BrokerRecord(2, 26, previous=12, ends={7: PublishedEnd(25, 20, 900)})
    proposal = elect_unclean(view(lost, b, live=(Member(2, 26), C)), 7)
    assert proposal is not None and proposal.record.leader == Member(2, 26) and proposal.record.unclean == 31
    assert proposal.record.isr == (Member(2, 26),) and proposal.new_epoch == 31
    only_c = elect_unclean(view(lost, live=(C,)), 7)
    assert only_c is not None and only_c.record.leader == C


def damaged(number: int, last_epoch: int, end: int) -> BrokerRecord:
    """A broker that lost bytes of journal 7, and reaches so far."""
    lost = frozenset({7})
    return BrokerRecord(number, 20 + number, damaged=lost, ends={7: PublishedEnd(25, last_epoch, end)})


def test_an_unclean_election_counts_what_damaged_replicas_still_have() -> None:
    lost = replace(RECORD, leader=None, epoch=25)
    lives = Member(1, 21), Member(2, 22), Member(3, 23)
    brokers = damaged(1, 0, 0), damaged(2, 20, 500), damaged(3, 20, 9000)
    assert decide(view(lost, *brokers, live=lives), ControllerMemory(), 0) == [], "nobody leads by itself"
    proposal = elect_unclean(view(lost, *brokers, live=lives), 7)
    assert proposal is not None and proposal.record.leader == Member(3, 23)
    later = damaged(1, 0, 0), damaged(2, 24, 500), damaged(3, 20, 9000)
    assert unclean_winner(lost, view(lost, *later, live=lives)) == 2, "the last epoch counts first"
    silent = BrokerRecord(1, 21, damaged=frozenset({7}))
    assert unclean_winner(lost, view(lost, silent, damaged(3, 0, 0), live=(lives[0], lives[2]))) == 3
    former = damaged(3, 20, 9000)
    former = replace(former, ends={7: PublishedEnd(24, 20, 9000)})
    assert reach(3, lost, view(lost, former, live=lives)) is None, "told in another epoch"


def test_a_later_life_is_not_a_candidate_unless_it_stopped_cleanly() -> None:
    restarted = BrokerRecord(2, 25, previous=12)
    proposal = due(view(replace(RECORD, isr=(A, B)), restarted, live=(Member(2, 25),)))
    assert proposal is not None and proposal.record.leader is None and proposal.new_epoch == 31, "fenced, no leader"
    clean = replace(restarted, clean=True)
    revived = due(view(RECORD, clean, live=(A, Member(2, 25), C)))
    assert revived == Proposal(replace(RECORD, isr=(A, Member(2, 25), C)), 44, registered=(Member(2, 25),))


def test_a_clean_marker_of_an_earlier_life_does_not_count() -> None:
    restarted = BrokerRecord(2, 26, previous=25, clean=True)
    assert due(view(RECORD, restarted, live=(A, Member(2, 26), C))) is None


def test_a_damaged_member_is_no_candidate() -> None:
    damaged = BrokerRecord(2, 12, damaged=frozenset({7}))
    assert _leader(due(view(RECORD, damaged, live=(B, C)))) == C


def _restarted(broker: int, end: PublishedEnd | None, **named: bool) -> BrokerRecord:
    return BrokerRecord(broker, broker + 100, ends={} if end is None else {7: end}, **named)


LEADERLESS = replace(RECORD, leader=None, isr=(A, B))
BOTH = (Member(1, 101), Member(2, 102))


def test_recovery_takes_the_one_that_reaches_furthest() -> None:
    seen = view(LEADERLESS, _restarted(1, PublishedEnd(20, 8, 900)), _restarted(2, PublishedEnd(20, 9, 500)), live=BOTH)
    winner = Member(2, 102)
    assert due(seen) == Proposal(
        replace(LEADERLESS, leader=winner, epoch=31, isr=(winner,), recovered=31), 44, registered=BOTH, new_epoch=31
    )


def test_recovery_waits_for_all_who_count() -> None:
    told = PublishedEnd(20, 9, 500)
    assert due(view(LEADERLESS, _restarted(1, told), live=BOTH[:1])) is None, "the other one is away"
    assert due(view(LEADERLESS, _restarted(1, told), _restarted(2, None), live=BOTH)) is None, "has not told"
    old = PublishedEnd(19, 9, 500)
    assert due(view(LEADERLESS, _restarted(1, told), _restarted(2, old), live=BOTH)) is None, "told in another epoch"


def test_after_a_minute_recovery_goes_without_those_who_are_away_unless_records_may_be_missing() -> None:
    memory = ControllerMemory()
    seen = view(LEADERLESS, _restarted(1, PublishedEnd(20, 9, 500)), live=BOTH[:1])
    assert due(seen, memory, 1_000) is None
    assert due(seen, memory, 1_000 + ABSENT_MAX_MS - 1) is None
    assert _leader(due(seen, memory, 1_000 + ABSENT_MAX_MS)) == Member(1, 101)
    weak = view(replace(LEADERLESS, weak=True), _restarted(1, PublishedEnd(20, 9, 500)), live=BOTH[:1])
    assert due(weak, memory, 10 * ABSENT_MAX_MS) is None, "a person decides"


def test_the_preferred_leader_is_elected_only_from_the_isr() -> None:
    led_by_b = replace(RECORD, leader=B)
    assert _leader(elect_preferred(view(led_by_b, live=(A, B, C)), 7)) == A
    assert elect_preferred(view(RECORD, live=(A, B, C)), 7) is None
    assert elect_preferred(view(replace(led_by_b, isr=(B, C)), live=(A, B, C)), 7) is None


def _leader(proposal: Proposal | None) -> Member | None:
    assert proposal is not None
    return proposal.record.leader
