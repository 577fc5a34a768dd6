"""The shared nouns: plain numbers with a name, and buffers. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NewType, TypeAlias

from msgspec import Struct

QueueId = NewType("QueueId", int)
Offset = NewType("Offset", int)
Position = NewType("Position", int)
Epoch = NewType("Epoch", int)

# Producer ids given out here begin far above Kafka's, which count from 0: in an imported queue a new producer must not
# be taken for one whose records came along, its batches for duplicates.
OWN_PRODUCERS_FROM = 1 << 40

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = Sequence[Buffer]


def host_port(host: str, port: int) -> str:
    """An address as people write it: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Caller(Struct, frozen=True, gc=False):
    """Who sent a request, as its connection knows it: one value per connection, which has a number. A later principal
    stands here too."""

    host: str = ""
    is_far: bool = False  # a round trip to it takes long
    listener: str = "PLAINTEXT"  # by name: a client is told addresses that it can reach
    connection: int = 0


class Counters(Struct, frozen=True, gc=False):
    """What the metadata store has handed out, and must not hand out again: none of these ever falls."""

    epoch: int = 0  # the last that was given
    next_queue_id: int = 1
    next_producer_id: int = 0
    revision: int = 0  # of the last change


def highest(*known: Counters) -> Counters:
    """Field by field."""
    fields = zip(*((c.epoch, c.next_queue_id, c.next_producer_id, c.revision) for c in known), strict=True)
    return Counters(*map(max, fields))


class SlotPlace(NamedTuple):
    """Where facts of coordinators are: the queue id that their entries bear, and its journal."""

    queue_id: int
    journal: int


class Slots(Struct, frozen=True, gc=False):
    """The system queues of the coordinators, made once for the life of a cluster. A group or transactional id belongs
    to the slot that has the rest of its checksum; `cycle` names the journals of the slots, over and over."""

    first: int
    count: int
    cycle: tuple[int, ...]

    def of(self, checksum: int) -> SlotPlace:
        slot = checksum % self.count
        return SlotPlace(self.first + slot, self.cycle[slot % len(self.cycle)])

    def place(self, queue_id: int) -> SlotPlace:
        """Of a slot by its queue id."""
        return self.of(queue_id - self.first)


class TopicPartition(Struct, frozen=True, gc=False):
    """A queue as clients name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
