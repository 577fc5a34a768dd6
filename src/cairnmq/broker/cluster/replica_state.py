"""One replica of a journal, whatever its role: where it is, what it knows, and how its storage is reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairnmq.replication.follower import KnownEnds
from cairnmq.replication.history import EpochHistory
from cairnmq.replication.messages import Room
from cairnmq.replication.records import JournalRecord, Member

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.replica_loop import ReplicaLoop
    from cairnmq.broker.storage_loop.store import Store
    from cairnmq.storage.api.serving import JournalRole


class ReplicaState:
    """`known`: the ends that this replica knows, and the epoch in which it learned them. `trouble`: why it stays out,
    for a person. `installing`: how far it is taken over from its leader, if that is what it waits for."""

    def __init__(self, number: int, store: Store, known: KnownEnds, history: EpochHistory) -> None:
        self.number = number
        self.store = store
        self.known = known
        self.history = history
        self.trouble = ""
        self.installing = ""

    @classmethod
    def found(cls, number: int, store: Store, record: JournalRecord) -> ReplicaState:
        """As a start, or the first record of a new journal, found it."""
        engine = store.engine
        assert engine.hosting is not None
        ends, note = engine.paths[number].journal, engine.hosting.notes[number].kept
        known = KnownEnds(note.replicated, note.durable, note.epoch)
        known = KnownEnds(min(known.floor(record), ends.end), min(known.durable, ends.end), known.epoch)
        starts, end = engine.histories(number)
        return cls(
            number,
            store,
            known.learned(ends.replicated_end, ends.durable_end, known.epoch),
            EpochHistory(starts, end),
        )

    @property
    def path(self) -> JournalRole:
        """Of storage, in the role of now."""
        return self.store.engine.paths[self.number]

    @property
    def loop(self) -> ReplicaLoop:
        """Its writes and syncs."""
        return self.store.loops[self.number]

    @property
    def split_end(self) -> int:
        """Records before it are in queue logs."""
        return self.store.engine.split[self.number]

    def room(self, free_bytes: int) -> Room:
        """What this replica has left."""
        engine, path = self.store.engine, self.path
        config, backlog_bytes = engine.config, path.journal.end - self.split_end
        share = max(backlog_bytes / config.unsplit_bytes_max, path.unsplit_entries / config.unsplit_entries_max)
        return Room(engine.checkpointed[self.number], int(100 * share), free_bytes, backlog_bytes)

    def hold_producers(self, short: Sequence[Member]) -> None:
        """They wait for these followers; none: for nobody."""
        self.store.backlog.hold(self.number, [member.broker for member in short])

    @property
    def told_trouble(self) -> str | None:
        """None: all is well."""
        if self.installing:
            return f"journal {self.number}: this replica is {self.installing}"
        return self.trouble or self.path.stopped or None
