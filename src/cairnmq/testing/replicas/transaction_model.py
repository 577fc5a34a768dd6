"""What journals of the simulation of transactions hold, and what it means: queues with producers, and keyed facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from cairnmq.decision import KeyedRecord
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.files.format import ProducerRow
from cairnmq.storage.queue.producers import after, after_marker
from cairnmq.testing.replicas.machine import ModelEntry


class Batch(Struct, frozen=True):
    """One record of a transaction. `transaction`: its number, as only clients and the judge know it."""

    queue: int
    producer_id: int
    epoch: int
    sequence: int
    transaction: int
    staged_ms: int = 0


class Facts(Struct, frozen=True):
    """Of a coordinator."""

    facts: tuple[KeyedRecord, ...]


Content: TypeAlias = Batch | Marker | Facts


class QueueModel:
    """A queue as its leader knows it, with all that is staged."""

    def __init__(self) -> None:
        self.producers: dict[int, ProducerRow] = {}
        self.end = 0

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """A transaction of this very epoch is open here: a marker will come."""
        row = self.producers.get(producer_id)
        return row is not None and row.epoch == epoch and row.txn_start >= 0

    def apply(self, content: Batch | Marker) -> None:
        """It is appended."""
        known = self.producers.get(content.producer_id)
        if isinstance(content, Batch):
            row = after(known, content.producer_id, content.epoch, content.sequence, 1, self.end, 0, transactional=True)
        else:
            row = after_marker(known, content.producer_id, content.producer_epoch, content.coordinator_epoch, 0)
        self.producers[content.producer_id] = row
        self.end += 1


class JournalState:
    """A journal as far as it was folded."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueModel] = {}
        self.keyed: dict[tuple[str, bytes], bytes] = {}

    @classmethod
    def of(cls, entries: Iterable[ModelEntry], contents: Mapping[int, Content]) -> JournalState:
        """Of all these."""
        state = cls()
        for entry in entries:
            if entry.payload:
                state.apply(contents[entry.payload])
        return state

    def queue(self, number: int) -> QueueModel:
        """Made when it is first used."""
        return self.queues.setdefault(number, QueueModel())

    def apply(self, content: Content) -> None:
        """It is appended."""
        if isinstance(content, Batch):
            self.queue(content.queue).apply(content)
        elif isinstance(content, Marker):
            self.queue(content.queue_id).apply(content)
        else:
            for space, key, value in content.facts:
                if value is None:
                    self.keyed.pop((space, key), None)
                else:
                    self.keyed[space, key] = value
