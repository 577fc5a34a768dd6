"""The metadata store of replicas on real storage: a value, always there. `sim_store.py` is the one that is away."""

from __future__ import annotations

from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member, Proposal


class StoredStore:
    """Brokers, their sessions, and the record of the one journal."""

    def __init__(self, replicas: tuple[int, ...], *, weak: bool) -> None:
        self.brokers: dict[int, BrokerRecord] = {}
        self.live: dict[int, int] = {}
        # A journal begins with an ISR of all its replicas, in the life before their first.
        isr = tuple(Member(broker, 0) for broker in replicas)
        self.kept = Kept(JournalRecord(0, replicas, None, 0, isr, weak=weak), 1)
        self.last_epoch = 0

    def register(self, broker: int, *, clean: bool) -> Member:
        """A new life. `clean`: it has all that the one before had."""
        before = self.brokers.get(broker)
        previous = before.broker_epoch if before is not None else 0
        self.brokers[broker] = BrokerRecord(broker, previous + 1, previous, clean or before is None)
        self.live[broker] = previous + 1
        return Member(broker, previous + 1)

    def view(self) -> ClusterView:
        """As of now."""
        return ClusterView(self.kept.revision, self.last_epoch, {0: self.kept}, dict(self.brokers), dict(self.live))

    def apply(self, proposal: Proposal) -> bool:
        """False: something has changed since."""
        current = {broker: record.broker_epoch for broker, record in self.brokers.items()}
        if proposal.expect != self.kept.revision:
            return False
        if any(current[member.broker] != member.broker_epoch for member in proposal.registered):
            return False
        self.last_epoch = max(self.last_epoch, proposal.new_epoch)
        self.kept = Kept(proposal.record, self.kept.revision + 1)
        return True
