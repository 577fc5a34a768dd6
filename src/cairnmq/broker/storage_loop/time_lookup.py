"""Lookups by time on the event loop: what waits for disks is on the cold pool, what unpacks batches on its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from cairnmq.broker.runtime import Executor
from cairnmq.errors import Refusal
from cairnmq.storage.api.serving import Batches, NotCached, Queue, Reads, find_record, frameless, newest_in_tail

AT_ONCE = 2  # batches in memory for this: one is looked into, the next is ready
BATCHES_MAX = 16  # nobody has checked what a header says of its records; of those behind it another may have that time

Answer: TypeAlias = tuple[int, int, int]  # offset, timestamp, leader epoch


class TimeLookup:
    """One store's; runs on the loop thread."""

    def __init__(self, reads: Reads, cold: Executor, unpacker: Executor, unpacked_max: Callable[[], int]) -> None:
        self._reads = reads
        self._cold = cold
        self._unpacker = unpacker
        self._unpacked_max = unpacked_max
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._loop = asyncio.get_running_loop()

    async def find(self, queue: Queue, timestamp: int) -> Answer | None:
        """The first record that reaches `timestamp`."""
        while True:
            place = queue.split_end, queue.segments_from
            in_log = await self._loop.run_in_executor(self._cold, frameless, self._reads.find_in_log, queue, timestamp)
            if in_log is not None or place == (queue.split_end, queue.segments_from):
                break  # otherwise records moved while we looked, from the tail to the log or from segments to packs
        offset = self._reads.find_batch(queue, timestamp, in_log)
        while offset is not None and offset < queue.high_watermark:
            found, offset = await self._find_record(queue, offset, timestamp)
            if found is not None:
                return found
        return None

    async def newest(self, queue: Queue) -> Answer | None:
        """The first record with the largest timestamp."""
        in_tail = newest_in_tail(queue)
        while True:
            place = queue.split_end, queue.segments_from
            in_log = await self._loop.run_in_executor(self._cold, frameless, self._reads.newest_in_log(queue))
            if in_log is not None or place == (queue.split_end, queue.segments_from):
                break  # otherwise records moved while we looked
        newest = in_log if in_tail is None or (in_log and in_log.timestamp >= in_tail.timestamp) else in_tail
        offset = newest.offset if newest is not None else None
        for _ in range(BATCHES_MAX):
            if newest is None or offset is None or offset >= queue.high_watermark:
                break
            found, offset = await self._find_record(queue, offset, newest.timestamp)
            if found is not None:
                return found
        return None

    async def _find_record(self, queue: Queue, offset: int, timestamp: int) -> tuple[Answer | None, int | None]:
        """In the batch that holds `offset`; and where the next one begins, None if there is none."""
        while True:
            async with self._turns:
                read = self._reads.read_batch(queue, max(offset, queue.log_start), cached=True)
                if not isinstance(read, NotCached):
                    return await self._look_into(read, timestamp, queue.log_start)
            await self._loop.run_in_executor(self._cold, frameless, read.load)

    async def _look_into(
        self, read: Batches | Refusal, timestamp: int, log_start: int
    ) -> tuple[Answer | None, int | None]:
        if not isinstance(read, Batches) or not read.buffers:
            return None, None
        # The future has no name here. With one it would be a reference cycle (error, frame, future, error), and the
        # batch would stay in memory until the garbage collector runs.
        found = await self._loop.run_in_executor(
            self._unpacker, frameless, find_record, read.buffers[0], timestamp, log_start, self._unpacked_max()
        )
        return (found.offset, found.timestamp, found.leader_epoch) if found is not None else None, read.next_offset
