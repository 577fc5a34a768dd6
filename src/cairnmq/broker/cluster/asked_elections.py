"""Elections that a person asks for: the preferred replica, or one that may lack records."""

from __future__ import annotations

import logging

from cairnmq.broker.cluster.metadata_changes import MetadataChanges
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.replication.controller import elect_preferred, elect_unclean
from cairnmq.replication.records import Proposal

log = logging.getLogger("cairnmq.broker")


class AskedElections:
    """Any broker may make them: a proposal counts only if the record is still the one that it was made for."""

    def __init__(self, metadata: MetadataChanges) -> None:
        self._metadata = metadata

    async def preferred(self, journal: int) -> Refusal | None:
        """The first replica, if it is in sync."""
        view = self._metadata.view()
        if journal not in view.journals:
            return _unknown(journal)
        record = view.journals[journal].record
        first = record.replicas[0]
        if record.leader is not None and record.leader.broker == first and view.is_live(record.leader):
            return Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"broker {first} leads journal {journal} already")
        proposal = elect_preferred(view, journal)
        if proposal is None:
            why = f"broker {first}, the preferred leader of journal {journal}, is not live and in sync"
            return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
        return await self._elected(proposal)

    async def unclean(self, journal: int) -> Refusal | None:
        """A person accepts a loss."""
        view = self._metadata.view()
        if journal not in view.journals:
            return _unknown(journal)
        proposal = elect_unclean(view, journal)
        if proposal is None:
            why = f"a replica of journal {journal} that has everything can lead, or no replica is live"
            return Refusal(ErrorCode.ELECTION_NOT_NEEDED, why)
        log.warning("journal %d: unclean election, as a person asked: records may be lost", journal)
        return await self._elected(proposal)

    async def _elected(self, proposal: Proposal) -> Refusal | None:
        if await self._metadata.propose(proposal):
            return None
        why = f"journal {proposal.record.journal} changed meanwhile; look again"
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, why)


def _unknown(journal: int) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no journal {journal}")
