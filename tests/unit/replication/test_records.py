"""What the store holds about brokers and journals."""

from __future__ import annotations

from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Member

A, B = Member(1, 11), Member(2, 12)
RECORD = JournalRecord(0, (1, 2, 3), A, 5, (A, B), resigned=2)


def test_an_isr_holds_lives() -> None:
    assert RECORD.member(2) == B and RECORD.member(3) is None
    assert RECORD.without([A]).isr == (B,)
    assert RECORD.without([Member(1, 12)]).isr == (A, B), "another life is another member"


def test_a_resignation_is_forgotten_when_the_isr_grows() -> None:
    grown = RECORD.joined_by(Member(3, 13))
    assert grown.isr == (A, B, Member(3, 13)) and grown.resigned is None


def test_live_is_one_life_with_a_session() -> None:
    registered = {1: BrokerRecord(1, 11), 2: BrokerRecord(2, 14, previous=12)}
    view = ClusterView(9, 5, {}, registered, {1: 11, 2: 12})
    assert view.is_live(A)
    assert not view.is_live(B), "registered again since"
    assert not view.is_live(Member(2, 14)), "no session yet"
    assert view.present(1) == registered[1] and view.present(2) is None and view.present(3) is None
