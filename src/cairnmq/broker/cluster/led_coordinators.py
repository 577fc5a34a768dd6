"""Coordinators come and go with the journals that hold their facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.broker.cluster.journal_replica import JournalReplica

if TYPE_CHECKING:
    from cairnmq.broker.coordination.coordinators import Coordinators
    from cairnmq.broker.live_catalog import LiveCatalog
    from cairnmq.broker.storage_loop.store import Store


class LedCoordinators:
    """Loads what a led journal holds of slots, once nothing that it acts on can be taken back (R24)."""

    def __init__(self, coordinators: Coordinators, catalog: LiveCatalog, store: Store) -> None:
        self._coordinators = coordinators
        self._catalog = catalog
        self._store = store
        self._loaded: set[int] = set()

    def look(self, replica: JournalReplica) -> None:
        """The journal is led and settled, or slots are new."""
        slots, leader = self._catalog.image.slots, replica.leader
        self._store.slots = slots
        if slots is None or leader is None or not replica.is_settled or replica.number in self._loaded:
            return
        if replica.number in slots.cycle:
            self._loaded.add(replica.number)
            unclean_epoch = leader.record.unclean
            self._coordinators.lead(replica.number, leader.epoch, self._store.engine.keyed, unclean_epoch)

    def lost(self, journal: int) -> None:
        """This broker leads the journal no more."""
        self._loaded.discard(journal)
        self._coordinators.drop(journal)
