"""Offsets committed inside transactions that have not ended: keyed facts that nobody reads as committed yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct, structs

from cairnmq.decision import KeyedRecord
from cairnmq.groups.offsets import Committed, OffsetKey, Offsets
from cairnmq.groups.offsets import put as put_offset

SPACE = "pending"

Place: TypeAlias = tuple[bytes, int]  # topic id, partition


class PendingKey(Struct, frozen=True, array_like=True, gc=False):
    """Whose position in which queue, and the producer whose transaction will decide about it."""

    group: str
    producer_id: int
    topic_id: bytes
    partition: int


class Pending(Committed, frozen=True, array_like=True, gc=False):
    """A position that waits: the producer's epoch in its transaction, and that of the coordinator who admitted it.
    Those stored by earlier versions have neither, and any end takes them."""

    producer_epoch: int = -1
    coordinator_epoch: int = -1

    @classmethod
    def waiting(cls, value: Committed, producer_epoch: int, coordinator_epoch: int) -> Pending:
        """A position that a client commits inside a transaction."""
        fields = value.offset, value.leader_epoch, value.metadata, value.commit_ms, value.expire_ms, value.order
        return cls(*fields, producer_epoch, coordinator_epoch)

    def decided(self) -> Committed:
        """As it is stored when its transaction has committed."""
        return Committed(self.offset, self.leader_epoch, self.metadata, self.commit_ms, self.expire_ms, self.order)


class EndLimit(Struct, frozen=True, gc=False):
    """Which transaction of a producer ends: one of this epoch, or of a lower one if the epoch was `raised` for the end.
    The end of an earlier coordinator takes nothing that a later one has admitted."""

    producer_epoch: int
    raised: bool
    coordinator_epoch: int

    def is_fenced_by(self, value: Pending) -> bool:
        """A later coordinator has admitted it: who sends this end is none any more."""
        return value.coordinator_epoch > self.coordinator_epoch

    def takes(self, value: Pending) -> bool:
        """Whether it belongs to the transaction that ends."""
        epoch = self.producer_epoch - self.raised
        return not self.is_fenced_by(value) and value.producer_epoch <= epoch


_encoder = msgspec.msgpack.Encoder()
_keys = msgspec.msgpack.Decoder(PendingKey)
_values = msgspec.msgpack.Decoder(Pending)


def group_of(key: bytes) -> str:
    """Whose position it is."""
    return _keys.decode(key).group


def put(key: PendingKey, value: Pending) -> KeyedRecord:
    return SPACE, _encoder.encode(key), _encoder.encode(value)


def drop(key: PendingKey) -> KeyedRecord:
    return SPACE, _encoder.encode(key), None


class PendingOffsets:
    """group -> producer id -> place -> committed."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, dict[Place, Pending]]] = {}

    def apply(self, fact: KeyedRecord) -> None:
        space, encoded, value = fact
        assert space == SPACE, f"a fact of {space!r} is not about pending offsets"
        key = _keys.decode(encoded)
        place = key.topic_id, key.partition
        if value is not None:
            producers = self._groups.setdefault(key.group, {})
            producers.setdefault(key.producer_id, {})[place] = _values.decode(value)
            return
        producers = self._groups.get(key.group, {})
        places = producers.get(key.producer_id, {})
        places.pop(place, None)
        if not places:
            producers.pop(key.producer_id, None)
        if not producers:
            self._groups.pop(key.group, None)

    def groups(self) -> Collection[str]:
        return self._groups.keys()

    def holds(self, group: str) -> bool:
        return group in self._groups

    def has(self, group: str, topic_id: bytes, partition: int) -> bool:
        """Whether a transaction has yet to decide about this offset."""
        producers = self._groups.get(group)
        return producers is not None and any((topic_id, partition) in places for places in producers.values())

    def of(self, group: str, producer_id: int) -> Mapping[Place, Pending]:
        return self._groups.get(group, {}).get(producer_id, {})

    def commit(self, key: OffsetKey, value: Committed, offsets: Offsets) -> KeyedRecord:
        """What is stored for a commit outside of transactions: it is later than what any of them holds now."""
        present = offsets.get(key.group, key.topic_id, key.partition)
        order = max(present.order if present is not None else 0, self._latest(key) + 1)
        return put_offset(key, structs.replace(value, order=order) if order else value)

    def hold(self, key: PendingKey, value: Pending, offsets: Offsets) -> KeyedRecord:
        """What is stored for a commit inside a transaction."""
        present = offsets.get(key.group, key.topic_id, key.partition)
        order = max(present.order if present is not None else 0, self._latest(key)) + 1
        return put(key, structs.replace(value, order=order))

    def _latest(self, key: OffsetKey | PendingKey) -> int:
        """The order of the last commit that waits for its transaction; -1 if there is none."""
        place = key.topic_id, key.partition
        producers = self._groups.get(key.group)
        if producers is None:
            return -1
        return max((places[place].order for places in producers.values() if place in places), default=-1)

    def fences(self, group: str, producer_id: int, limit: EndLimit) -> bool:
        """Whether a later coordinator than the one who sends this end has admitted something."""
        return any(limit.is_fenced_by(value) for value in self.of(group, producer_id).values())

    def end(
        self, group: str, producer_id: int, *, commit: bool, offsets: Offsets, limit: EndLimit | None = None
    ) -> list[KeyedRecord]:
        """What must be stored when the producer's transaction ends. An offset that was committed later, outside of the
        transaction, stays. `limit`: which transaction of the producer; None: whatever it has."""
        facts: list[KeyedRecord] = []
        for (topic_id, partition), value in self.of(group, producer_id).items():
            if limit is not None and not limit.takes(value):
                continue
            if commit:
                present = offsets.get(group, topic_id, partition)
                if present is None or present.order <= value.order:
                    facts.append(put_offset(OffsetKey(group, topic_id, partition), value.decided()))
            facts.append(drop(PendingKey(group, producer_id, topic_id, partition)))
        return facts

    def forget(self, unwanted: Callable[[PendingKey], bool]) -> list[KeyedRecord]:
        """What must be stored when a group or a topic is deleted."""
        return [drop(key) for key in self._keys() if unwanted(key)]

    def _keys(self) -> Iterator[PendingKey]:
        for group, producers in self._groups.items():
            for producer_id, places in producers.items():
                for topic_id, partition in places:
                    yield PendingKey(group, producer_id, topic_id, partition)
