"""Elections that a person asks for: the preferred replica, or one that may lack records."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cairnmq.broker.cluster.metadata_changes import MetadataChanges
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.replication.controller import elect_preferred, elect_unclean
from cairnmq.replication.records import ClusterView, Proposal

log = logging.getLogger("cairnmq.broker")


ATTEMPTS = 5  # others may be given the epoch that an election was to have


class AskedElections:
    """Any broker may make them: a proposal counts only if the record is still the one that it was made for."""

    def __init__(self, metadata: MetadataChanges, wall_ms: Callable[[], int]) -> None:
        self._metadata = metadata
        self._wall_ms = wall_ms

    async def preferred(self, journal: int) -> Refusal | None:
        """The first replica, if it is in sync."""
        return await self._elect(journal, _preferred)

    async def unclean(self, journal: int) -> Refusal | None:
        """A person accepts a loss."""
        return await self._elect(journal, lambda view, number: _unclean(view, number, self._wall_ms()))

    async def _elect(self, journal: int, decide: Callable[[ClusterView, int], Proposal | Refusal]) -> Refusal | None:
        for _ in range(ATTEMPTS):
            view = self._metadata.view()
            if journal not in view.journals:
                return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no journal {journal}")
            decided = decide(view, journal)
            if isinstance(decided, Refusal):
                return decided
            if await self._metadata.propose(decided):
                return None
            await self._metadata.reread()
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"journal {journal} changes all the time; look again")


def _preferred(view: ClusterView, journal: int) -> Proposal | Refusal:
    record = view.journals[journal].record
    first = record.replicas[0]
    if record.leader is not None and record.leader.broker == first and view.is_live(record.leader):
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"broker {first} leads journal {journal} already")
    why = f"broker {first}, the preferred leader of journal {journal}, is not live and in sync"
    return elect_preferred(view, journal) or Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)


def _unclean(view: ClusterView, journal: int, wall_ms: int) -> Proposal | Refusal:
    proposal = elect_unclean(view, journal, wall_ms)
    if proposal is None:
        why = f"a replica of journal {journal} that has everything can lead, or no replica is live"
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, why)
    log.warning("journal %d: unclean election, as a person asked: records may be lost", journal)
    return proposal
