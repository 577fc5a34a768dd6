"""Keys of brokers and journals: what is written is read, and a proposal is one transaction with all its conditions."""

from __future__ import annotations

import msgspec
import pytest

from cairnmq.metadata.cluster_records import (
    BrokerEntry,
    Outdated,
    broker_key,
    decode_broker,
    decode_journal,
    decode_member,
    encode_broker,
    encode_journal,
    encode_member,
    journal_key,
    live_key,
    number_of,
    operations,
    put_journal,
)
from cairnmq.metadata.store import Check, NextEpoch, Put
from cairnmq.replication.records import BrokerRecord, JournalRecord, Member, Proposal, PublishedEnd
from cairnmq.types import Epoch

ONE, TWO = Member(1, 5), Member(2, 6)
JOURNAL = JournalRecord(3, (1, 2), ONE, 9, (ONE, TWO), resigned=2, weak=True, recovered=7, unclean=8)
BROKER = BrokerEntry(
    BrokerRecord(1, 5, 4, True, True, frozenset({3, 9}), {3: PublishedEnd(9, 8, 700)}),
    "host", 1, "::1", 2, "rack", "directory", (1, 3),
)  # fmt: skip
BROKERS = {1: BROKER, 2: BrokerEntry(BrokerRecord(2, 6), "h", 1, "h", 2)}
REVISIONS = {1: 11, 2: 12}


def test_what_is_written_is_read() -> None:
    assert decode_journal(encode_journal(JOURNAL)) == JOURNAL
    assert decode_broker(encode_broker(BROKER)) == BROKER
    assert decode_member(encode_member(TWO)) == TWO


def test_what_an_earlier_version_wrote_is_read() -> None:
    """Fields are only added, with defaults."""
    early = b'{"journal":3,"replicas":[1],"leader":null,"epoch":9,"isr":[{"broker":1,"broker_epoch":5}]}'
    assert decode_journal(early) == JournalRecord(3, (1,), None, 9, (ONE,))
    early = b'{"record":{"broker":1,"broker_epoch":5},"host":"h","port":1,"internal_host":"i","internal_port":2}'
    assert decode_broker(early).record == BrokerRecord(1, 5)
    with pytest.raises(msgspec.DecodeError):
        decode_journal(b"{}")


def test_keys() -> None:
    assert (journal_key(3), broker_key(12), live_key(12)) == ("journals/3", "brokers/12", "live/12")
    assert [number_of(key) for key in ("journals/3", "brokers/12")] == [3, 12]


def test_a_proposal_has_all_its_conditions() -> None:
    election = Proposal(JOURNAL, 21, (ONE,), 10)
    other = Proposal(JournalRecord(4, (2,), TWO, 10, (TWO,)), 22, (TWO, ONE), 10)
    assert operations([election, other], BROKERS, REVISIONS) == [
        NextEpoch(Epoch(10)),
        Check("brokers/1", 11),
        Check("brokers/2", 12),
        put_journal(JOURNAL, 21),
        Put("journals/4", encode_journal(other.record), 22),
    ]


def test_a_change_without_an_election_gives_out_no_epoch() -> None:
    assert operations([Proposal(JOURNAL, 21)], BROKERS, REVISIONS) == [put_journal(JOURNAL, 21)]


@pytest.mark.parametrize("member", [Member(1, 4), Member(7, 1)])
def test_a_life_that_is_not_registered(member: Member) -> None:
    assert operations([Proposal(JOURNAL, 21, (member,))], BROKERS, REVISIONS) == Outdated(member)
