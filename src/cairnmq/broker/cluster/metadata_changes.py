"""What a broker changes in the cluster's metadata: each call returns when it is known what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from cairnmq.broker.cluster.cluster_store import ClusterStore, Done, Outcome
from cairnmq.broker.cluster.metadata_loop import MetadataLoop
from cairnmq.errors import Fault
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.store import InDoubt
from cairnmq.replication.records import ClusterView, Member, Proposal, PublishedEnd

DOUBT_SECONDS = 0.1


class MetadataChanges:
    """`refresh` folds what the store has, and tells whoever follows the metadata."""

    def __init__(self, loop: MetadataLoop, store: ClusterStore, refresh: Callable[[], Awaitable[None]]) -> None:
        self._loop = loop
        self._store = store
        self._refresh = refresh

    @property
    def cluster(self) -> ClusterImage:
        """As last folded."""
        return self._loop.cluster

    @property
    def confirmed_ms(self) -> int:
        """When the store last said that this broker is alive; by the time of the question."""
        return self._loop.confirmed_ms

    def view(self) -> ClusterView:
        return self._loop.cluster.view

    def controller(self) -> Member | None:
        return self._loop.cluster.controller

    async def reread(self) -> None:
        """What the store has now is known here when this returns."""
        await self._refresh()

    async def propose(self, proposal: Proposal) -> bool:
        """Of a journal's leader, or of a person."""
        store = self._store
        return await self._told(await self._loop.call(lambda: store.propose([proposal], as_controller=False)))

    async def decide(self, proposals: Sequence[Proposal]) -> bool:
        """Of the controller."""
        store = self._store
        return await self._told(await self._loop.call(lambda: store.propose(proposals, as_controller=True)))

    async def elect_controller(self) -> bool:
        return await self._loop.call(self._store.elect_controller)

    async def publish_end(self, journal: int, end: PublishedEnd) -> bool:
        return await self._told(await self._loop.call(lambda: self._store.publish_end(journal, end)))

    async def repaired(self, journal: int) -> bool:
        return await self._told(await self._loop.call(lambda: self._store.repaired(journal)))

    async def stopping(self) -> bool:
        return await self._told(await self._loop.call(self._store.stopping))

    async def forget(self, broker: int) -> bool:
        return await self._told(await self._loop.call(lambda: self._store.forget(broker)))

    async def remove_dead(self, broker: int, cluster: ClusterImage) -> bool:
        return await self._told(await self._loop.call(lambda: self._store.remove_dead(broker, cluster)))

    async def _told(self, outcome: Outcome) -> bool:
        while isinstance(outcome, InDoubt):
            await asyncio.sleep(DOUBT_SECONDS)
            try:
                outcome = await self._resolved(outcome)
            except Fault:
                continue  # nobody can say yet
        return isinstance(outcome, Done)

    def _resolved(self, doubt: InDoubt) -> Awaitable[Outcome]:
        return self._loop.call(lambda: self._store.resolve(doubt))
