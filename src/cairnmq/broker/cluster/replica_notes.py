"""Keeps `replica.json` of each journal up to date: the ends that a start may fold up to at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from cairnmq.broker.cluster.journal_replica import JournalReplica
from cairnmq.errors import Fault
from cairnmq.os_errors import text_of
from cairnmq.replication.follower import KnownEnds
from cairnmq.storage.api.serving import ReplicaNote

log = logging.getLogger("cairnmq.broker")

PAUSE_SECONDS = 5.0


class ReplicaNotes:
    """Writes a note when there is something new, every now and then."""

    def __init__(self, replicas: Mapping[int, JournalReplica]) -> None:
        self._replicas = replicas
        self._noted: dict[int, KnownEnds] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            await self.write()

    async def write(self) -> None:
        """As far as the own journals are synced."""
        for journal, replica in list(self._replicas.items()):
            state = replica.state
            known = state.known
            if known == self._noted.get(journal) or known.replicated > state.path.journal.synced:
                continue
            try:
                await state.store.note(journal, ReplicaNote(known.replicated, known.durable, known.epoch))
                self._noted[journal] = known
            except (Fault, OSError) as error:
                log.warning("journal %d: its known ends cannot be noted down: %s", journal, text_of(error))
