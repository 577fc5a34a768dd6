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


_encoder = msgspec.msgpack.Encoder()
_keys = msgspec.msgpack.Decoder(PendingKey)
_values = msgspec.msgpack.Decoder(Committed)


def group_of(key: bytes) -> str:
    """Whose position it is."""
    return _keys.decode(key).group


def put(key: PendingKey, value: Committed) -> KeyedRecord:
    return SPACE, _encoder.encode(key), _encoder.encode(value)


def drop(key: PendingKey) -> KeyedRecord:
    return SPACE, _encoder.encode(key), None


class PendingOffsets:
    """group -> producer id -> place -> committed."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, dict[Place, Committed]]] = {}

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

    def of(self, group: str, producer_id: int) -> Mapping[Place, Committed]:
        return self._groups.get(group, {}).get(producer_id, {})

    def commit(self, key: OffsetKey, value: Committed, offsets: Offsets) -> KeyedRecord:
        """What is stored for a commit outside of transactions: it is later than what any of them holds now."""
        present = offsets.get(key.group, key.topic_id, key.partition)
        order = max(present.order if present is not None else 0, self._latest(key) + 1)
        return put_offset(key, structs.replace(value, order=order) if order else value)

    def hold(self, key: PendingKey, value: Committed, offsets: Offsets) -> KeyedRecord:
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

    def end(self, group: str, producer_id: int, *, commit: bool, offsets: Offsets) -> list[KeyedRecord]:
        """What must be stored when the producer's transaction ends. An offset that was committed later, outside of the
        transaction, stays."""
        facts: list[KeyedRecord] = []
        for (topic_id, partition), value in self.of(group, producer_id).items():
            if commit:
                present = offsets.get(group, topic_id, partition)
                if present is None or present.order <= value.order:
                    facts.append(put_offset(OffsetKey(group, topic_id, partition), value))
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
