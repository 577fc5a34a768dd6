"""Committed offsets as keyed facts: deciding gives facts, `apply` is the only mutation, replay gives the same state.

Keys hold the topic id, not its name: a topic that is deleted and made again starts without offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from cairnmq.decision import KeyedRecord

SPACE = "offset"


class OffsetKey(Struct, frozen=True, array_like=True, gc=False):
    """Whose position in which queue."""

    group: str
    topic_id: bytes
    partition: int


class Committed(Struct, frozen=True, array_like=True, gc=False):
    """A stored position. `expire_ms` is set only by clients that still send a retention time (OffsetCommit 2-4).

    `order` tells which of two commits of a queue came later where transactions take part: clocks can be set back.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int = -1
    order: int = 0


_encoder = msgspec.msgpack.Encoder()
_keys = msgspec.msgpack.Decoder(OffsetKey)
_values = msgspec.msgpack.Decoder(Committed)


def group_of(key: bytes) -> str:
    """Whose position it is."""
    return _keys.decode(key).group


def put(key: OffsetKey, value: Committed) -> KeyedRecord:
    return SPACE, _encoder.encode(key), _encoder.encode(value)


def drop(key: OffsetKey) -> KeyedRecord:
    return SPACE, _encoder.encode(key), None


class Offsets:
    """group -> topic id -> partition -> committed."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[bytes, dict[int, Committed]]] = {}

    @classmethod
    def load(cls, stored: Iterable[tuple[bytes, bytes]]) -> Offsets:
        offsets = cls()
        for key, value in stored:
            offsets.apply((SPACE, key, value))
        return offsets

    def apply(self, fact: KeyedRecord) -> None:
        space, encoded, value = fact
        assert space == SPACE, f"a fact of {space!r} is not about offsets"
        key = _keys.decode(encoded)
        if value is not None:
            topics = self._groups.setdefault(key.group, {})
            topics.setdefault(key.topic_id, {})[key.partition] = _values.decode(value)
            return
        topics = self._groups.get(key.group, {})
        partitions = topics.get(key.topic_id, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic_id, None)
        if not topics:
            self._groups.pop(key.group, None)

    def groups(self) -> Collection[str]:
        return self._groups.keys()

    def topics(self, group: str) -> Mapping[bytes, Mapping[int, Committed]]:
        return self._groups.get(group, {})

    def get(self, group: str, topic_id: bytes, partition: int) -> Committed | None:
        return self._groups.get(group, {}).get(topic_id, {}).get(partition)

    def forget_group(self, group: str) -> list[KeyedRecord]:
        """What must be stored when a group is deleted."""
        return [
            drop(OffsetKey(group, topic_id, partition))
            for topic_id, partitions in self.topics(group).items()
            for partition in partitions
        ]

    def forget_topic(self, topic_id: bytes) -> list[KeyedRecord]:
        """What must be stored when a topic is deleted."""
        return [
            drop(OffsetKey(group, topic_id, partition))
            for group, topics in self._groups.items()
            for partition in topics.get(topic_id, ())
        ]

    def forget_unknown(self, topic_ids: Collection[bytes]) -> list[KeyedRecord]:
        """What a crash between the deletion of a topic and that of its offsets left behind."""
        known = frozenset(topic_ids)
        return [
            drop(OffsetKey(group, topic_id, partition))
            for group, topics in self._groups.items()
            for topic_id, partitions in topics.items()
            if topic_id not in known
            for partition in partitions
        ]
