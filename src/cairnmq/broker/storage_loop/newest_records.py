"""The newest records of some queues, for people: a batch at a time, from the end backwards.

The loop never waits: disks are read on the cold pool, batches unpacked on their thread, and what one look may read,
unpack and give back is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TypeVar

from msgspec import Struct

from cairnmq.broker.runtime import Executor
from cairnmq.codec.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, read_header
from cairnmq.codec.compression import CodecMissing, Undecodable
from cairnmq.codec.records import Record, last_records
from cairnmq.errors import Fault
from cairnmq.storage.api.serving import Batches, NotCached, Queue, ReadFailure, Reads, failure_of, frameless

T = TypeVar("T")

BATCHES_MAX = 500  # of one look: markers and what compaction has emptied count too
READ_BYTES_MAX = 16 << 20
UNPACKED_BYTES_MAX = 8 << 20  # of one batch, or less: cairn.decompressed.bytes.max
LOADS_MAX = 3

OPEN, ABORTED = "open", "aborted"


class Seen(Struct, frozen=True, gc=False):
    """A record and what became of its transaction: empty if it has none, or one that was committed."""

    queue: Queue
    record: Record
    transaction: str = ""


class Newest(Struct):
    """The newest first. `failures`: partitions and what could not be read there. Not `complete`: a bound was met."""

    records: list[Seen]
    failures: list[tuple[int, str]]
    complete: bool = True


class _Walk:
    """One queue, read backwards: its records from `end` on are known, `left` are those not given yet, oldest first."""

    __slots__ = ("queue", "end", "left")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.end = queue.high_watermark
        self.left: list[Seen] = []


class NewestRecords:
    """One store's; runs on the loop thread."""

    def __init__(
        self,
        reads: Reads,
        queues: Mapping[int, Queue],
        cold: Executor,
        unpacker: Executor,
        unpacked_max: Callable[[], int],
        found_damage: Callable[[Queue, ReadFailure], bool],
    ) -> None:
        self._reads = reads
        self._queues = queues
        self._cold = cold
        self._unpacker = unpacker
        self._unpacked_max = unpacked_max
        self._found_damage = found_damage
        self._loop = asyncio.get_running_loop()

    async def find(self, queues: Sequence[Queue], count: int) -> Newest:
        """By time over all queues; of each queue in the order of its offsets."""
        return await _Look(self, count).run(queues)

    async def read(self, queue: Queue, offset: int) -> memoryview | None:
        """The batch that holds an offset; None if it is gone."""
        if not self._exists(queue):
            return None
        read = await self._cached(partial(self._reads.read_batch, queue, offset, cached=True))
        return memoryview(read.buffers[0]) if isinstance(read, Batches) and read.buffers else None

    async def unpack(self, batch: memoryview, count: int) -> list[Record]:
        most = min(UNPACKED_BYTES_MAX, self._unpacked_max())
        return await self._loop.run_in_executor(self._unpacker, last_records, batch, count, most)

    async def aborted(self, queue: Queue, header: BatchHeader) -> bool:
        first, behind = header.base_offset, header.last_offset + 1
        rows = await self._cached(partial(self._reads.aborted, queue, first, behind, cached=True))
        return any(row.producer_id == header.producer_id and row.first <= first <= row.last for row in rows)

    def failed(self, queue: Queue, error: Exception) -> str:
        failure = failure_of(error)
        if self._exists(queue):  # of a topic that was deleted meanwhile the files may be gone
            self._found_damage(queue, failure)
        return failure.text

    def _exists(self, queue: Queue) -> bool:
        return self._queues.get(queue.queue_id) is queue

    async def _cached(self, read: Callable[[], T | NotCached]) -> T:
        for _ in range(LOADS_MAX):
            found = read()
            if not isinstance(found, NotCached):
                return found
            await self._loop.run_in_executor(self._cold, frameless, found.load)
        raise Fault("not enough memory for messages read from disk; try again later")


class _Look:
    """One question: what is left of its bounds."""

    def __init__(self, source: NewestRecords, count: int) -> None:
        self._source = source
        self._count = count
        self._batches = BATCHES_MAX
        self._bytes = READ_BYTES_MAX
        self._found = Newest([], [])

    async def run(self, queues: Sequence[Queue]) -> Newest:
        newest: list[tuple[int, int, _Walk]] = []
        walks = [_Walk(queue) for queue in queues]
        while True:
            for walk in walks:
                if not walk.left:
                    await self._fill(walk)
                if walk.left:
                    heappush(newest, (-walk.left[-1].record.timestamp, walk.queue.queue_id, walk))
            if not newest:
                return self._found
            walks = [heappop(newest)[2]]
            self._found.records.append(walks[0].left.pop())
            if len(self._found.records) >= self._count:
                return self._found

    async def _fill(self, walk: _Walk) -> None:
        """Goes back until there is a batch with records."""
        queue = walk.queue
        while not walk.left and walk.end > queue.log_start:
            if not self._batches or self._bytes <= 0:
                self._found.complete = False
                return
            self._batches -= 1
            await asyncio.sleep(0)
            try:
                await self._step(walk)
            except (Undecodable, CodecMissing) as error:
                self._found.failures.append((queue.partition, str(error)))
            except (Fault, OSError) as error:
                self._found.failures.append((queue.partition, self._source.failed(queue, error)))
                return

    async def _step(self, walk: _Walk) -> None:
        queue, end = walk.queue, walk.end
        batch = await self._source.read(queue, end - 1)
        if batch is None:
            walk.end = 0
            return
        self._bytes -= len(batch)
        header = read_header(batch)
        walk.end = min(header.base_offset, end - 1)
        if header.attributes & CONTROL_BIT or not header.count:
            return
        transaction = ""
        if header.attributes & TRANSACTIONAL_BIT:
            if header.last_offset >= queue.last_stable:
                transaction = OPEN
            elif await self._source.aborted(queue, header):
                transaction = ABORTED
        first = max(queue.log_start, header.base_offset)
        walk.left = [
            Seen(queue, record, transaction)
            for record in await self._source.unpack(batch, self._count - len(self._found.records))
            if first <= record.offset < end  # nobody has checked what the producer wrote
        ]
