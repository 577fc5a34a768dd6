"""What storage must know of a queue that exists: the metadata's part of it."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.files.format import queue_directory


class QueueSpec(Struct, frozen=True, gc=False):
    """What storage must know of a queue that exists."""

    queue_id: int
    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig
    journal: int = 0  # where its entries go, by its topic

    @property
    def directory(self) -> str:
        return queue_directory(self.topic, self.partition)
