"""The journals that this broker hosts, as the catalog asks for them before it shows topics whose queues are in them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cairnmq.metadata.cluster_image import ClusterImage

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.store import Store

log = logging.getLogger("cairnmq.broker")


class HostedJournals:
    """A `live_catalog.Hosting`."""

    def __init__(self, node_id: int, store: Store) -> None:
        self._node_id = node_id
        self._store = store

    def hosts(self, journal: int) -> bool:
        return journal in self._store.engine.paths

    async def host(self, cluster: ClusterImage) -> None:
        """Makes the journals that are new and that this broker is a replica of."""
        for journal, kept in cluster.view.journals.items():
            if self._node_id in kept.record.replicas and not self.hosts(journal):
                log.info("journal %d: this broker is one of its replicas", journal)
                self._store.host(journal)

    def knows_queues(self, next_queue: int) -> None:
        self._store.knows_queues(next_queue)
