"""The shared nouns: plain numbers with a name, and buffers. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, TypeAlias

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


class TopicPartition(Struct, frozen=True, gc=False):
    """A queue as clients name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
