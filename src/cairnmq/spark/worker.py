"""What a worker process keeps from one task to the next: Spark runs many in it, one after the other."""

from __future__ import annotations

import gc
import os
import uuid

from cairnmq.client.records import ProducerId
from cairnmq.spark.task_names import TaskNames
from cairnmq.types import TopicPartition


class Numbering:
    """A producer id, and the sequence that comes next in each partition."""

    def __init__(self, producer: ProducerId) -> None:
        self.producer = producer
        self.sequences: dict[TopicPartition, int] = {}


class Worker:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.names = TaskNames(lambda: uuid.uuid4().hex)
        self.numberings: dict[str, Numbering] = {}
        """Cluster id -> of tasks without transactions. Brokers remember each producer id for a day, in every partition.
        A task takes it out, and puts it back when all it sent was answered."""


_worker: Worker | None = None


def this_worker() -> Worker:
    """A process that was forked has nothing of its parent's."""
    global _worker
    if _worker is None or _worker.process != os.getpid():
        _worker = Worker()
        # Spark collects garbage after each task, and looks at all modules every time: a tenth of what a task costs.
        gc.freeze()
    return _worker
