"""A person asks for a leader: the preferred one, or one that may lack records."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from cairnmq.broker.cluster.asked_elections import AskedElections
from cairnmq.broker.cluster.metadata_changes import MetadataChanges
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.replication.records import JournalRecord, Proposal
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, A, B, C, Cluster
from unit.broker.rig import scenario

NOW = 1_700_000_000_000


class Metadata(Cluster):
    """`is_late`: somebody changes the record before a proposal arrives."""

    def __init__(self, record: JournalRecord, *dead: int) -> None:
        super().__init__(A, B, C)
        self.put(record)
        self.late = 0  # proposals that are for a record which changed meanwhile
        for broker in dead:
            del self.live[broker]

    async def propose(self, proposal: Proposal) -> bool:
        assert self.kept is not None
        if self.late:
            self.late -= 1
            self.put(self.kept.record)
        if self.kept.revision != proposal.expect:
            return False
        self.put(proposal.record)
        return True

    async def reread(self) -> None:
        """It is the newest anyway."""

    @property
    def record(self) -> JournalRecord:
        assert self.kept is not None
        return self.kept.record


def elections(metadata: Metadata) -> AskedElections:
    return AskedElections(cast(MetadataChanges, metadata), lambda: NOW)


def code(answer: Refusal | None) -> ErrorCode | None:
    return None if answer is None else answer.code


@scenario
async def test_the_preferred_leader_leads_again() -> None:
    metadata = Metadata(replace(RECORD, leader=B))
    assert await elections(metadata).preferred(JOURNAL) is None
    assert metadata.record.leader == A and metadata.record.epoch == 31
    assert code(await elections(metadata).preferred(JOURNAL)) is ErrorCode.ELECTION_NOT_NEEDED


@scenario
async def test_the_preferred_leader_must_be_live_and_in_sync() -> None:
    for metadata in (Metadata(replace(RECORD, leader=B), 1), Metadata(replace(RECORD, leader=B, isr=(B, C)))):
        before = metadata.record
        assert code(await elections(metadata).preferred(JOURNAL)) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert metadata.record is before
    dead = Metadata(RECORD, 1)
    assert code(await elections(dead).preferred(JOURNAL)) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@scenario
async def test_an_unclean_election_is_only_for_journals_that_nobody_else_can_lead() -> None:
    metadata = Metadata(replace(RECORD, isr=(A,)), 1)
    assert await elections(metadata).unclean(JOURNAL) is None
    assert metadata.record.leader in (B, C) and metadata.record.unclean == metadata.record.epoch == 31
    healthy = Metadata(RECORD)
    assert code(await elections(healthy).unclean(JOURNAL)) is ErrorCode.ELECTION_NOT_NEEDED
    assert healthy.record == RECORD


@scenario
async def test_a_record_that_changed_meanwhile_is_decided_on_again_a_few_times() -> None:
    metadata = Metadata(replace(RECORD, leader=B))
    metadata.late = 2
    assert await elections(metadata).preferred(JOURNAL) is None and metadata.record.leader == A
    busy = Metadata(replace(RECORD, leader=B))
    busy.late = 1_000
    refusal = await elections(busy).preferred(JOURNAL)
    assert refusal is not None and "changes all the time" in refusal.message and busy.record.leader == B


@scenario
async def test_unknown_journals_are_refused() -> None:
    metadata = Metadata(RECORD)
    for ask in (elections(metadata).preferred, elections(metadata).unclean):
        assert code(await ask(77)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@scenario
async def test_the_date_of_an_unclean_election_is_kept() -> None:
    metadata = Metadata(replace(RECORD, leader=None, isr=(A,)), A.broker)
    assert await elections(metadata).unclean(JOURNAL) is None
    assert (metadata.record.unclean, metadata.record.unclean_ms) == (31, NOW)
