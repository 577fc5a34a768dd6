"""Brokers and journals as the store keeps them, and proposed changes of them as one transaction. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from cairnmq.metadata.store import Check, NextEpoch, Op, Put, leader_key
from cairnmq.replication.records import BrokerRecord, JournalRecord, Member, Proposal
from cairnmq.types import Epoch

JOURNALS = "journals/"
BROKERS = "brokers/"
LIVE = "live/"
CONTROLLER = "controller"
CONTROLLER_KEY = leader_key(CONTROLLER)
NEXT_JOURNAL = "ids/next-journal"
LEVEL_KEY = "cluster-level"
SECRET_KEY = "cluster-secret"
"""What the secret of the brokers makes of the cluster's id; empty if they have none. Each registration writes it, so of
two at the same time with different secrets one is made again."""

LEVEL = 1
"""Of a cluster that this version begins: nobody writes what is newer."""

FIRST_JOURNAL = 1


class BrokerEntry(Struct, frozen=True):
    """A broker's one key: its registration, and where it is reached."""

    record: BrokerRecord
    host: str  # for clients
    port: int
    internal_host: str  # for brokers
    internal_port: int
    rack: str | None = None
    directory_id: str = ""
    level: tuple[int, int] = (LEVEL, LEVEL)  # message versions that it speaks, from and to


class Outdated(Struct, frozen=True):
    """A proposal names a life of a broker that is over."""

    member: Member


def journal_key(journal: int) -> str:
    return f"{JOURNALS}{journal}"


def broker_key(broker: int) -> str:
    return f"{BROKERS}{broker}"


def live_key(broker: int) -> str:
    return f"{LIVE}{broker}"


def encode_journal(record: JournalRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_journal(value: bytes) -> JournalRecord:
    return msgspec.json.decode(value, type=JournalRecord)


def encode_broker(entry: BrokerEntry) -> bytes:
    return msgspec.json.encode(entry)


def decode_broker(value: bytes) -> BrokerEntry:
    return msgspec.json.decode(value, type=BrokerEntry)


def encode_member(member: Member) -> bytes:
    return msgspec.json.encode(member)


def decode_member(value: bytes) -> Member:
    return msgspec.json.decode(value, type=Member)


def number_of(key: str) -> int:
    """Of a journal or broker, from its key."""
    return int(key.rpartition("/")[2])


def put_journal(record: JournalRecord, expect: int | None = None) -> Put:
    return Put(journal_key(record.journal), encode_journal(record), expect)


def operations(
    proposals: Sequence[Proposal], brokers: Mapping[int, BrokerEntry], revisions: Mapping[int, int]
) -> list[Op | NextEpoch] | Outdated:
    """Proposals as one transaction: each record at the revision that was expected, each member's registration as it is
    known here, and the one new epoch that they share."""
    members = {member for proposal in proposals for member in proposal.registered}
    for member in sorted(members):
        known = brokers.get(member.broker)
        if known is None or known.record.broker_epoch != member.broker_epoch:
            return Outdated(member)
    epochs = {proposal.new_epoch for proposal in proposals} - {0}
    assert len(epochs) <= 1, f"one transaction gives out one epoch, not {sorted(epochs)}"
    checks = [Check(broker_key(broker), revisions[broker]) for broker in sorted({one.broker for one in members})]
    puts = [put_journal(proposal.record, proposal.expect) for proposal in proposals]
    return [*(NextEpoch(Epoch(epoch)) for epoch in epochs), *checks, *puts]
