"""format("stopping"): ours, with points at which a test stops the process that comes there.

A point is a request, counted from the beginning of a task, of a commit or of a look for more: before it is sent, or
when it is sent and not answered. The request `Return` stands for the end of it all. The first process that comes to
the armed point takes it, and dies (-9), or waits until it is told to go on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from cairnmq.client import blocking
from cairnmq.client.session import Ask
from cairnmq.spark import options as options_module
from cairnmq.spark import outbox, sink, source
from cairnmq.spark.options import ReadOptions, WriteOptions
from cairnmq.spark.row_shape import RowShape

if TYPE_CHECKING:
    import pyarrow as pa

REQUEST_BYTES = 60  # so small that a task sends several requests
SECONDS = 60.0


class StopPoint(Struct, frozen=True):
    where: Literal["plan", "read", "write", "commit"]
    request: str
    count: int = 1
    moment: Literal["before", "sent"] = "before"


class Stops:
    """A directory in which test and processes meet."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._armed, self._taken, self._go = (place / name for name in ("armed", "taken", "go"))

    def arm(self, point: StopPoint, action: Literal["die", "wait"]) -> None:
        self.place.mkdir(exist_ok=True)
        for old in (self._taken, self._go):
            old.unlink(missing_ok=True)
        fresh = self.place / "fresh"
        fresh.write_bytes(msgspec.json.encode([point, action]))
        fresh.rename(self._armed)

    def taken(self) -> bool:
        return self._taken.exists()

    def go_on(self) -> None:
        self._go.touch()

    def reach(self, point: StopPoint) -> None:
        """Of a process: goes on, unless a test has armed this very point."""
        action = self._claimed(point)
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "wait":
            deadline = time.monotonic() + SECONDS
            while not self._go.exists() and time.monotonic() < deadline:
                time.sleep(0.02)

    def outlive(self, point: StopPoint) -> None:
        """Dies a moment later, when Spark was told how it ended."""
        if self._claimed(point) is not None:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def _claimed(self, point: StopPoint) -> str | None:
        try:
            armed, action = msgspec.json.decode(self._armed.read_bytes(), type=tuple[StopPoint, str])
            if armed != point:
                return None
            self._armed.rename(self._taken)  # only one can
        except FileNotFoundError:
            return None
        return action

    @contextmanager
    def watching(self, where: Literal["plan", "read", "write", "commit"]) -> Iterator[None]:
        send, counts = blocking._Link.send, Counter[str]()

        def watched(link: blocking._Link, ask: Ask, deadline: float) -> int:
            name = type(ask.request).__name__.removesuffix("Request")
            counts[name] += 1
            self.reach(StopPoint(where, name, counts[name], "before"))
            number = send(link, ask, deadline)
            self.reach(StopPoint(where, name, counts[name], "sent"))
            return number

        blocking._Link.send = watched  # type: ignore[method-assign]
        try:
            yield
        finally:
            blocking._Link.send = send  # type: ignore[method-assign]
        self.reach(StopPoint(where, "Return"))


@contextmanager
def changed(module: ModuleType, name: str, value: object) -> Iterator[None]:
    usual = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, usual)


class StoppingWriter(sink.StreamWriter):
    def __init__(self, options: WriteOptions, shape: RowShape, stops: Stops) -> None:
        super().__init__(options, shape)
        self._stops = stops

    def write(self, iterator: Iterator[pa.RecordBatch]) -> sink.Written:
        with changed(outbox, "TOTAL_BYTES", REQUEST_BYTES), self._stops.watching("write"):
            written = super().write(iterator)
        self._stops.outlive(StopPoint("write", "Return", moment="sent"))
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        with self._stops.watching("commit"):
            super().commit(messages, batchId)


class StoppingBatchWriter(sink.BatchWriter):
    def __init__(self, options: WriteOptions, shape: RowShape, stops: Stops) -> None:
        super().__init__(options, shape)
        self._stops = stops

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with self._stops.watching("commit"):
            super().commit(messages)


class StoppingReader(source.BatchReader):
    def __init__(self, options: ReadOptions, names: tuple[str, ...], stops: Stops) -> None:
        super().__init__(options, names)
        self._stops = stops

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with self._stops.watching("read"):
            yield from super().read(partition)


class StoppingStreamReader(source.StreamReader):
    def __init__(self, options: ReadOptions, names: tuple[str, ...], stops: Stops) -> None:
        super().__init__(options, names)
        self._stops = stops

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with self._stops.watching("plan"):
            return super().latestOffset(start, limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with self._stops.watching("read"):
            yield from super().read(partition)


class StoppingSource(source.CairnSource):
    """Its option `stops` names the directory."""

    def __init__(self, options: Any) -> None:
        super().__init__({name: text for name, text in options.items() if name.lower() != "stops"})
        self._stops = Stops(Path(options["stops"]))

    @classmethod
    def name(cls) -> str:
        return "stopping"

    def reader(self, schema: StructType) -> StoppingReader:
        usual = super().reader(schema)
        return StoppingReader(usual._options, usual._names, self._stops)

    def streamReader(self, schema: StructType) -> StoppingStreamReader:
        usual = super().streamReader(schema)
        return StoppingStreamReader(usual._options, usual._names, self._stops)

    def writer(self, schema: StructType, overwrite: bool) -> StoppingBatchWriter:
        usual = super().writer(schema, overwrite)
        return StoppingBatchWriter(usual._options, usual._shape, self._stops)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoppingWriter:
        with changed(options_module, "LEAST_TRANSACTION_MS", 1):  # no test waits for a minute
            usual = super().streamWriter(schema, overwrite)
        return StoppingWriter(usual._options, usual._shape, self._stops)
